"""Tools and calls in the shapes of other wires, as programs send them that speak several."""

import re

from ._rules_anthropic_shape import asked, assistant, call, placed_blocks, result, rule, tool, tools, user
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
_TAG = "tools.{index}: Input tag '{type}' found using 'type' does not match any of the expected tags: {tags}"
_EXPECTED = ", ".join(f"'{tag}'" for tag in TAGS)
_DICTIONARY = "{at}.tool_use.input: Input should be a valid dictionary"


def _unknown_type(request: Asked) -> Found | None:
    for index, item in enumerate(tools(request)):
        type_ = item.get("type")
        if isinstance(type_, str) and not KNOWN.fullmatch(type_):
            return {"index": index, "type": type_, "tags": _EXPECTED}
    return None


def _no_dictionary(request: Asked) -> Found | None:
    for place, block in placed_blocks(request):
        if block.get("type") == "tool_use" and not isinstance(block.get("input"), dict):
            return {"at": place}
    return None


_CHAT_SHAPE = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
_LOOK = {"tools": [tool()]}

FOREIGN_RULES = (
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
