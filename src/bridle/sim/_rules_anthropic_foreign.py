"""Tools and calls in the shapes of other wires, as programs send them that speak several."""

import re
from collections.abc import Iterator

from ._rules_anthropic_shape import (
    asked,
    assistant,
    blocks,
    call,
    messages,
    placed_blocks,
    result,
    rule,
    tool,
    tools,
    user,
)
from ._rules_reading import Block, listed, mapping
from .rules import Asked, Found

TAGS = (
    "advisor_20260301", "bash_20250124", "code_execution_20250522", "code_execution_20250825",
    "code_execution_20260120", "custom", "memory_20250818", "text_editor_20250124", "text_editor_20250429",
    "text_editor_20250728", "tool_search_tool_bm25", "tool_search_tool_bm25_20251119",
    "tool_search_tool_regex", "tool_search_tool_regex_20251119", "web_fetch_20250910", "web_fetch_20260209",
    "web_search_20250305", "web_search_20260209", "web_search_20260318",
)  # fmt: skip
"""The types that a refusal lists."""
KNOWN = re.compile(
    r"custom|mcp_toolset|(?:advisor|bash|browser|browser_toolset|code_execution|computer|computer_toolset"
    r"|memory|text_editor|tool_search_tool_bm25|tool_search_tool_regex|web_fetch|web_search)(?:_\d{8})?"
)
"""The same, and those of previews, under any date."""
BLOCKS = frozenset(
    {"text", "image", "document", "search_result", "thinking", "redacted_thinking", "tool_use", "tool_result"}
    | {"server_tool_use", "web_search_tool_result", "web_fetch_tool_result", "advisor_tool_result"}
    | {"code_execution_tool_result", "bash_code_execution_tool_result", "tool_search_tool_result"}
    | {"text_editor_code_execution_tool_result", "mcp_tool_use", "mcp_tool_result", "mcp_tool_listing"}
    | {"container_upload", "compaction", "tool_addition", "tool_removal", "fallback"}
)
"""Blocks of a message, those of previews included."""
_COMMON = (
    "document",
    "image",
    "redacted_thinking",
    "search_result",
    "text",
    "thinking",
    "tool_result",
    "tool_use",
)
"""Those that a refusal lists."""
RESULT_TAGS = ("document", "image", "search_result", "text", "tool_reference")
RESULT_BLOCKS = frozenset({*RESULT_TAGS, "browser_state"})
_BLOCK = "{at}: Input tag '{type}' found using 'type' does not match any of the expected tags: {tags}"
_TAG = "tools.{index}: Input tag '{type}' found using 'type' does not match any of the expected tags: {tags}"
_EXPECTED = ", ".join(f"'{tag}'" for tag in TAGS)
_DICTIONARY = "{at}.tool_use.input: Input should be a valid dictionary"


def _unknown_type(request: Asked) -> Found | None:
    for index, item in enumerate(tools(request)):
        type_ = item.get("type")
        if isinstance(type_, str) and not KNOWN.fullmatch(type_):
            return {"index": index, "type": type_, "tags": _EXPECTED}
    return None


def _unknown_block(request: Asked) -> Found | None:
    for place, block in _spoken_blocks(request):
        type_ = block.get("type")
        if isinstance(type_, str) and type_ not in BLOCKS:
            return {"at": place, "type": type_, "tags": _quoted(_COMMON)}
    return None


def _unknown_in_result(request: Asked) -> Found | None:
    for place, block in _spoken_blocks(request):
        inside = listed(block.get("content")) if block.get("type") == "tool_result" else []
        for index, each in enumerate(inside):
            type_ = mapping(each).get("type")
            if isinstance(type_, str) and type_ not in RESULT_BLOCKS:
                at = f"{place}.tool_result.content.{index}"
                return {"at": at, "type": type_, "tags": _quoted(RESULT_TAGS)}
    return None


def _spoken_blocks(request: Asked) -> Iterator[tuple[str, Block]]:
    """The blocks of users and models with their places; those of the system have a rule of their own."""
    for index, message in enumerate(messages(request)):
        for inner, block in enumerate(blocks(message) if message.get("role") != "system" else ()):
            yield f"messages.{index}.content.{inner}", block


def _quoted(tags: tuple[str, ...]) -> str:
    return ", ".join(f"'{tag}'" for tag in tags)


def _no_dictionary(request: Asked) -> Found | None:
    for place, block in placed_blocks(request):
        if block.get("type") == "tool_use" and not isinstance(block.get("input"), dict):
            return {"at": place}
    return None


_CHAT_SHAPE = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
_LOOK = {"tools": [tool()]}

_IN_RESULT: tuple[Block, Block] = ({"type": "text", "text": "Here."}, {"type": "thinking", "thinking": "Hm."})


def _answered(*content: Block) -> Asked:
    return asked(messages=[user("Look"), assistant(call()), user(result(content=list(content)))], **_LOOK)


FOREIGN_RULES = (
    rule(
        "block-tag",
        _unknown_block,
        _BLOCK,
        evidence="S",
        passes=asked(messages=[user({"type": "text", "text": "Hello"})]),
        offends=asked(
            messages=[user("Hello"), assistant("Yes?"), user({"type": "input_text", "text": "Look"})]
        ),
        says=_BLOCK.format(at="messages.2.content.0", type="input_text", tags=_quoted(_COMMON)),
        also=((asked(messages=[user({"type": "container_upload", "file_id": "file_1"})]), ""),),
    ),
    rule(
        "result-block-tag",
        _unknown_in_result,
        _BLOCK,
        evidence="S",
        passes=_answered(_IN_RESULT[0]),
        offends=_answered(*_IN_RESULT),
        says=_BLOCK.format(
            at="messages.2.content.0.tool_result.content.1", type="thinking", tags=_quoted(RESULT_TAGS)
        ),
    ),
    rule(
        "tool-tag",
        _unknown_type,
        _TAG,
        evidence="S",
        passes=asked(tools=[tool(type="custom"), {"type": "web_search_20250305", "name": "web_search"}]),
        offends=asked(tools=[tool(), _CHAT_SHAPE]),
        says=_TAG.format(index=1, type="function", tags=_EXPECTED),
        also=(
            (asked(tools=[{"type": "bash_20241022", "name": "bash"}]), ""),
            (asked(tools=[{"type": "mcp_toolset", "mcp_server_name": "files"}]), ""),
            (
                asked(tools=[{"type": "bash", "name": "bash"}, {"type": "web_search_x"}]),
                _TAG.format(index=1, type="web_search_x", tags=_EXPECTED),
            ),
        ),
    ),
    rule(
        "call-input",
        _no_dictionary,
        _DICTIONARY,
        evidence="S",
        passes=asked(messages=[user("Look"), assistant(call()), user(result())], **_LOOK),
        offends=asked(messages=[user("Look"), assistant(call(input='{"a": 1}')), user(result())], **_LOOK),
        says=_DICTIONARY.format(at="messages.1.content.0"),
        also=(
            (
                asked(messages=[user("Look"), assistant(call(input=None)), user(result())], **_LOOK),
                _DICTIONARY.format(at="messages.1.content.0"),
            ),
        ),
    ),
)
