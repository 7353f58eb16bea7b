"""Rules of the Messages API about tools, the tool choice and schemas."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import jsonschema_rs

from bridle.sim.claude.schema_rules import PlacedSchema, make_schema_rules
from bridle.sim.rules.engine import RawRequest, RuleFinding
from bridle.sim.rules.raw_request import JsonObject, as_list, as_mapping, field, messages, tools

from .request import blocks, custom_tools, is_custom_tool, list_blocks, rule
from .rules_fields import BLOCKS, refuse

TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
STRICT_TOOLS_MAX = 20


def _check_tool_names_unique(request: RawRequest) -> RuleFinding | None:
    names = Counter(str(item["name"]) for item in tools(request) if item.get("name"))
    return {} if any(times > 1 for times in names.values()) else None


def _has_invalid_schema(tool: JsonObject) -> bool:
    schema = {
        **as_mapping(tool.get("input_schema")),
        "$schema": "https://json-schema.org/draft/2020-12/schema",
    }
    return is_custom_tool(tool) and not jsonschema_rs.meta.is_valid(schema)


def _schema_type(tool: JsonObject) -> object:
    return as_mapping(tool.get("input_schema")).get("type")


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


def _check_choice_known(request: RawRequest) -> RuleFinding | None:
    choice = as_mapping(field(request, "tool_choice"))
    names = {item.get("name") for item in tools(request)}
    if choice.get("type") != "tool" or choice.get("name") in names:
        return None
    return {"name": choice.get("name")}


MCP_BETA = "mcp-client-2025-11-20"


def _check_mcp_servers(request: RawRequest) -> RuleFinding | None:
    """A tool set must refer to a server of the request, and every server needs one."""
    if MCP_BETA not in request.headers.get("anthropic-beta", ""):
        return None  # an earlier version had no tool sets
    servers = [str(as_mapping(each).get("name")) for each in as_list(field(request, "mcp_servers"))]
    sets = [str(item.get("mcp_server_name")) for item in tools(request) if item.get("type") == "mcp_toolset"]
    for name in sets:
        if name not in servers:
            return {"name": name, "problem": "is not defined in mcp_servers"}
    for name in servers:
        if sets.count(name) != 1:
            return {"name": name, "problem": "must be referenced by exactly one mcp_toolset"}
    return None


TOOL_RULES = (
    rule("mcp-servers-used", _check_mcp_servers, "tools: MCP server '{name}' {problem}", evidence="K"),
    refuse(
        "search-domains",
        "tools[]",
        lambda tool: bool(tool.get("allowed_domains")) and bool(tool.get("blocked_domains")),
        "{at}: only one of allowed_domains and blocked_domains may be given",
        evidence="K",
    ),
    refuse(
        "tool-name",
        "tools[]",
        lambda tool: is_custom_tool(tool) and not TOOL_NAME.fullmatch(str(tool.get("name", ""))),
        "{at}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'",
        evidence="S",
    ),
    rule("tool-names-unique", _check_tool_names_unique, "tools: Tool names must be unique.", evidence="F"),
    refuse(
        "tool-schema-shape",
        "tools[]",
        lambda tool: is_custom_tool(tool) and not isinstance(tool.get("input_schema"), Mapping),
        "{at}.custom.input_schema: Input does not match the expected shape.",
        evidence="S",
    ),
    refuse(
        "tool-schema-type",
        "tools[]",
        lambda tool: is_custom_tool(tool) and _schema_type(tool) is None,
        "{at}.custom.input_schema.type: Field required",
        evidence="S",
    ),
    refuse(
        "tool-schema-object",
        "tools[]",
        lambda tool: is_custom_tool(tool) and _schema_type(tool) != "object",
        "{at}.custom.input_schema.type: Input should be 'object'",
        evidence="S",
    ),
    refuse(
        "tool-schema-valid",
        "tools[]",
        _has_invalid_schema,
        "{at}.custom.input_schema: JSON schema is invalid. It must match JSON Schema draft 2020-12",
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
    refuse(
        "choice-without-tools",
        "",
        lambda body: (
            as_mapping(body.get("tool_choice")).get("type") == "any" and not as_list(body.get("tools"))
        ),
        "tool_choice.any may only be specified while providing tools",
        evidence="S",
    ),
    rule("choice-known", _check_choice_known, "Tool '{name}' not found in provided tools", evidence="S"),
)


# Schemas that are compiled. An answer's schema is in `output_config.format`, or in `output_format`, which older
# clients send.


def _list_answer_schemas(request: RawRequest) -> Iterator[PlacedSchema]:
    yield from (
        (f"{place}.schema", as_mapping(format_.get("schema")))
        for place, format_ in (
            ("output_config.format", as_mapping(as_mapping(field(request, "output_config")).get("format"))),
            ("output_format", as_mapping(field(request, "output_format"))),
        )
        if "schema" in format_
    )


def _list_strict_schemas(request: RawRequest) -> Iterator[PlacedSchema]:
    for place, item in custom_tools(request):
        if item.get("strict") is True:
            yield place, as_mapping(item.get("input_schema"))


FORMAT_RULES = make_schema_rules(
    rule,
    _list_answer_schemas,
    _list_strict_schemas,
    evidence={
        "tools-optional-most": "S",
        "tools-unions-most": "S",
        "tool-schema-circle": "S",
        "format-closed": "S",
        "format-bounds": "S",
        "format-circle": "S",
    },
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
"""Matches every accepted tool type: those listed and those of previews, with any date."""
BLOCK_TAGS = frozenset(
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


def _describe_unknown_tag(item: JsonObject, tags: Sequence[str], known: frozenset[str]) -> RuleFinding | None:
    type_ = item.get("type")
    if not isinstance(type_, str) or type_ in known:
        return None
    return {"type": type_, "tags": ", ".join(f"'{tag}'" for tag in tags)}


def _check_block_tag(request: RawRequest) -> RuleFinding | None:
    for place, block in _list_conversation_blocks(request):
        if unknown := _describe_unknown_tag(block, _COMMON, BLOCK_TAGS):
            return {"at": place, **unknown}
    return None


def _check_result_block_tag(request: RawRequest) -> RuleFinding | None:
    for place, block in _list_conversation_blocks(request):
        inside = as_list(block.get("content")) if block.get("type") == "tool_result" else []
        for index, each in enumerate(inside):
            if unknown := _describe_unknown_tag(as_mapping(each), RESULT_TAGS, RESULT_BLOCKS):
                return {"at": f"{place}.tool_result.content.{index}", **unknown}
    return None


def _list_conversation_blocks(request: RawRequest) -> Iterator[tuple[str, JsonObject]]:
    """Yield the blocks of user and assistant messages with their paths."""
    for index, message in enumerate(messages(request)):
        for inner, block in enumerate(blocks(message) if message.get("role") != "system" else ()):
            yield f"messages.{index}.content.{inner}", block


def _find_unknown_tool_tag(tool: JsonObject) -> RuleFinding | None:
    dated = KNOWN.fullmatch(str(tool.get("type")))
    return None if dated else _describe_unknown_tag(tool, TAGS, frozenset())


FOREIGN_RULES = (
    rule("block-tag", _check_block_tag, _BLOCK, evidence="S"),
    rule("result-block-tag", _check_result_block_tag, _BLOCK, evidence="S"),
    refuse("tool-tag", "tools[]", _find_unknown_tool_tag, _TAG, evidence="S"),
    refuse(
        "call-input",
        BLOCKS,
        lambda block: block.get("type") == "tool_use" and not isinstance(block.get("input"), dict),
        "{at}.tool_use.input: Input should be a valid dictionary",
        evidence="S",
    ),
)
