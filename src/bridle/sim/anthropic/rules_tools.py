"""Rules of the Messages API about tools, the tool choice and schemas."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping

import jsonschema_rs

from bridle.sim.rules.engine import RawRequest, RuleFinding
from bridle.sim.rules.raw_request import JsonObject, as_list, as_mapping, field

from .request import blocks, custom_tools, list_blocks, messages, rule, tools

TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
STRICT_TOOLS_MAX = 20


def _check_tool_name(request: RawRequest) -> RuleFinding | None:
    for place, item in custom_tools(request):
        if not TOOL_NAME.fullmatch(str(item.get("name", ""))):
            return {"at": place}
    return None


def _check_tool_names_unique(request: RawRequest) -> RuleFinding | None:
    names = Counter(str(item["name"]) for item in tools(request) if item.get("name"))
    return {} if any(times > 1 for times in names.values()) else None


def _check_tool_schema_shape(request: RawRequest) -> RuleFinding | None:
    for place, item in custom_tools(request):
        if not isinstance(item.get("input_schema"), Mapping):
            return {"at": place}
    return None


def _check_tool_schema_type(request: RawRequest) -> RuleFinding | None:
    for place, item in custom_tools(request):
        if as_mapping(item.get("input_schema")).get("type") is None:
            return {"at": place}
    return None


def _check_tool_schema_object(request: RawRequest) -> RuleFinding | None:
    for place, item in custom_tools(request):
        if as_mapping(item.get("input_schema")).get("type") != "object":
            return {"at": place}
    return None


def _check_tool_schema_valid(request: RawRequest) -> RuleFinding | None:
    for place, item in custom_tools(request):
        schema = {
            **as_mapping(item.get("input_schema")),
            "$schema": "https://json-schema.org/draft/2020-12/schema",
        }
        if not jsonschema_rs.meta.is_valid(schema):
            return {"at": place}
    return None


def _check_tools_strict_most(request: RawRequest) -> RuleFinding | None:
    strict = sum(item.get("strict") is True for item in tools(request))
    return {"count": strict} if strict > STRICT_TOOLS_MAX else None


def _check_tools_deferred(request: RawRequest) -> RuleFinding | None:
    listed_tools = tools(request)
    return {} if listed_tools and all(item.get("defer_loading") is True for item in listed_tools) else None


def _check_tool_reference_known(request: RawRequest) -> RuleFinding | None:
    known = {str(item.get("name")) for item in tools(request)}
    for place, block in list_blocks(request):
        for piece in blocks(block):
            if piece.get("type") == "tool_reference" and piece.get("tool_name") not in known:
                return {"at": place, "name": str(piece.get("tool_name"))}
    return None


def _check_choice_without_tools(request: RawRequest) -> RuleFinding | None:
    return (
        {} if as_mapping(field(request, "tool_choice")).get("type") == "any" and not tools(request) else None
    )


def _check_choice_known(request: RawRequest) -> RuleFinding | None:
    choice = as_mapping(field(request, "tool_choice"))
    names = {item.get("name") for item in tools(request)}
    if choice.get("type") != "tool" or choice.get("name") in names:
        return None
    return {"name": choice.get("name")}


TOOL_RULES = (
    rule(
        "tool-name",
        _check_tool_name,
        "{at}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'",
        evidence="S",
    ),
    rule("tool-names-unique", _check_tool_names_unique, "tools: Tool names must be unique.", evidence="F"),
    rule(
        "tool-schema-shape",
        _check_tool_schema_shape,
        "{at}.input_schema: Input does not match the expected shape.",
        evidence="S",
    ),
    rule("tool-schema-type", _check_tool_schema_type, "{at}.input_schema.type: Field required", evidence="S"),
    rule(
        "tool-schema-object",
        _check_tool_schema_object,
        "{at}.input_schema.type: Input should be 'object'",
        evidence="S",
    ),
    rule(
        "tool-schema-valid",
        _check_tool_schema_valid,
        "{at}.input_schema: JSON schema is invalid. It must match JSON Schema draft 2020-12",
        evidence="S",
    ),
    rule(
        "tools-strict-most",
        _check_tools_strict_most,
        "Too many strict tools ({count}). The maximum number of strict tools supported is 20."
        " Try reducing the number of tools marked as strict.",
        evidence="S",
    ),
    rule("tools-deferred", _check_tools_deferred, "All tools have defer_loading: true", evidence="D"),
    rule(
        "tool-reference-known",
        _check_tool_reference_known,
        "{at}: Tool reference '{name}' not found in available tools",
        evidence="K",
    ),
    rule(
        "choice-without-tools",
        _check_choice_without_tools,
        "tool_choice.any may only be specified while providing tools",
        evidence="S",
    ),
    rule("choice-known", _check_choice_known, "Tool '{name}' not found in provided tools", evidence="S"),
)


# Tools and calls in the shapes of other wires, as clients of several wires send them.


TAGS = (
    "advisor_20260301", "bash_20250124", "code_execution_20250522", "code_execution_20250825",
    "code_execution_20260120", "custom", "memory_20250818", "text_editor_20250124", "text_editor_20250429",
    "text_editor_20250728", "tool_search_tool_bm25", "tool_search_tool_bm25_20251119",
    "tool_search_tool_regex", "tool_search_tool_regex_20251119", "web_fetch_20250910", "web_fetch_20260209",
    "web_search_20250305", "web_search_20260209", "web_search_20260318",
)  # fmt: skip
"""Tool types that a refusal lists."""
KNOWN = re.compile(
    r"custom|mcp_toolset|(?:advisor|bash|browser|browser_toolset|code_execution|computer|computer_toolset"
    r"|memory|text_editor|tool_search_tool_bm25|tool_search_tool_regex|web_fetch|web_search)(?:_\d{8})?"
)
"""The same, and those of previews, with any date."""
BLOCKS = frozenset(
    {"text", "image", "document", "search_result", "thinking", "redacted_thinking", "tool_use", "tool_result"}
    | {"server_tool_use", "web_search_tool_result", "web_fetch_tool_result", "advisor_tool_result"}
    | {"code_execution_tool_result", "bash_code_execution_tool_result", "tool_search_tool_result"}
    | {"text_editor_code_execution_tool_result", "mcp_tool_use", "mcp_tool_result", "mcp_tool_listing"}
    | {"container_upload", "compaction", "tool_addition", "tool_removal", "fallback"}
)
"""Block types of a message, those of previews included."""
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
"""Block types that a refusal lists."""
RESULT_TAGS = ("document", "image", "search_result", "text", "tool_reference")
RESULT_BLOCKS = frozenset({*RESULT_TAGS, "browser_state"})
_BLOCK = "{at}: Input tag '{type}' found using 'type' does not match any of the expected tags: {tags}"
_TAG = "tools.{index}: Input tag '{type}' found using 'type' does not match any of the expected tags: {tags}"
_EXPECTED = ", ".join(f"'{tag}'" for tag in TAGS)
_DICTIONARY = "{at}.tool_use.input: Input should be a valid dictionary"


def _check_tool_tag(request: RawRequest) -> RuleFinding | None:
    for index, item in enumerate(tools(request)):
        type_ = item.get("type")
        if isinstance(type_, str) and not KNOWN.fullmatch(type_):
            return {"index": index, "type": type_, "tags": _EXPECTED}
    return None


def _unknown_block(request: RawRequest) -> RuleFinding | None:
    for place, block in _conversation_blocks(request):
        type_ = block.get("type")
        if isinstance(type_, str) and type_ not in BLOCKS:
            return {"at": place, "type": type_, "tags": _quoted(_COMMON)}
    return None


def _unknown_in_result(request: RawRequest) -> RuleFinding | None:
    for place, block in _conversation_blocks(request):
        inside = as_list(block.get("content")) if block.get("type") == "tool_result" else []
        for index, each in enumerate(inside):
            type_ = as_mapping(each).get("type")
            if isinstance(type_, str) and type_ not in RESULT_BLOCKS:
                at = f"{place}.tool_result.content.{index}"
                return {"at": at, "type": type_, "tags": _quoted(RESULT_TAGS)}
    return None


def _conversation_blocks(request: RawRequest) -> Iterator[tuple[str, JsonObject]]:
    """Yield the blocks of user and assistant messages with their paths."""
    for index, message in enumerate(messages(request)):
        for inner, block in enumerate(blocks(message) if message.get("role") != "system" else ()):
            yield f"messages.{index}.content.{inner}", block


def _quoted(tags: tuple[str, ...]) -> str:
    return ", ".join(f"'{tag}'" for tag in tags)


def _check_call_input(request: RawRequest) -> RuleFinding | None:
    for place, block in list_blocks(request):
        if block.get("type") == "tool_use" and not isinstance(block.get("input"), dict):
            return {"at": place}
    return None


FOREIGN_RULES = (
    rule("block-tag", _unknown_block, _BLOCK, evidence="S"),
    rule("result-block-tag", _unknown_in_result, _BLOCK, evidence="S"),
    rule("tool-tag", _check_tool_tag, _TAG, evidence="S"),
    rule("call-input", _check_call_input, _DICTIONARY, evidence="S"),
)
