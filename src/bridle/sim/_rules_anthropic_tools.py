"""Tools, the choice among them, and schemas."""

import re
from collections import Counter
from collections.abc import Mapping

import jsonschema_rs

from ._rules_anthropic_shape import (
    FORCEABLE,
    asked,
    assistant,
    blocks,
    call,
    custom_tools,
    placed_blocks,
    result,
    rule,
    tool,
    tools,
    user,
)
from ._rules_reading import (
    field,
    mapping,
    to,
)
from .rules import Asked, Found

TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
STRICT_TOOLS_MAX = 20


def _bad_name(request: Asked) -> Found | None:
    for place, item in custom_tools(request):
        if not TOOL_NAME.fullmatch(str(item.get("name", ""))):
            return {"at": place}
    return None


def _same_name(request: Asked) -> Found | None:
    names = Counter(str(item["name"]) for item in tools(request) if item.get("name"))
    return {} if any(times > 1 for times in names.values()) else None


def _no_schema(request: Asked) -> Found | None:
    for place, item in custom_tools(request):
        if not isinstance(item.get("input_schema"), Mapping):
            return {"at": place}
    return None


def _untyped_schema(request: Asked) -> Found | None:
    for place, item in custom_tools(request):
        if mapping(item.get("input_schema")).get("type") is None:
            return {"at": place}
    return None


def _no_object(request: Asked) -> Found | None:
    for place, item in custom_tools(request):
        if mapping(item.get("input_schema")).get("type") != "object":
            return {"at": place}
    return None


def _bad_schema(request: Asked) -> Found | None:
    for place, item in custom_tools(request):
        schema = {
            **mapping(item.get("input_schema")),
            "$schema": "https://json-schema.org/draft/2020-12/schema",
        }
        if not jsonschema_rs.meta.is_valid(schema):
            return {"at": place}
    return None


def _many_strict(request: Asked) -> Found | None:
    strict = sum(item.get("strict") is True for item in tools(request))
    return {"count": strict} if strict > STRICT_TOOLS_MAX else None


def _all_deferred(request: Asked) -> Found | None:
    listed_tools = tools(request)
    return {} if listed_tools and all(item.get("defer_loading") is True for item in listed_tools) else None


def _unknown_reference(request: Asked) -> Found | None:
    known = {str(item.get("name")) for item in tools(request)}
    for place, block in placed_blocks(request):
        for piece in blocks(block):
            if piece.get("type") == "tool_reference" and piece.get("tool_name") not in known:
                return {"at": place, "name": str(piece.get("tool_name"))}
    return None


def _nothing_to_choose(request: Asked) -> Found | None:
    return {} if mapping(field(request, "tool_choice")).get("type") == "any" and not tools(request) else None


def _unknown_choice(request: Asked) -> Found | None:
    choice = mapping(field(request, "tool_choice"))
    names = {item.get("name") for item in tools(request)}
    if choice.get("type") != "tool" or choice.get("name") in names:
        return None
    return {"name": choice.get("name")}


def _referring(name: str) -> Asked:
    found = result(content=[{"type": "tool_reference", "tool_name": name}])
    said = [user("find a tool"), assistant(call()), user(found)]
    return asked(messages=said, tools=[tool(), tool("find", defer_loading=True)])


TOOL_RULES = (
    rule(
        "tool-name",
        _bad_name,
        "{at}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'",
        evidence="S",
        passes=asked(tools=[tool("look-up_2")]),
        offends=asked(tools=[tool("look up")]),
        says="tools.0.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'",
    ),
    rule(
        "tool-names-unique",
        _same_name,
        "tools: Tool names must be unique.",
        evidence="F",
        passes=asked(tools=[tool("look"), tool("find")]),
        offends=asked(tools=[tool("look"), tool("look")]),
    ),
    rule(
        "tool-schema-shape",
        _no_schema,
        "{at}.input_schema: Input does not match the expected shape.",
        evidence="S",
        passes=asked(tools=[tool()]),
        offends=asked(tools=[tool(input_schema=True)]),
        says="tools.0.custom.input_schema: Input does not match the expected shape.",
    ),
    rule(
        "tool-schema-type",
        _untyped_schema,
        "{at}.input_schema.type: Field required",
        evidence="S",
        passes=asked(tools=[tool()]),
        offends=asked(tools=[tool(), tool("find", input_schema={"properties": {}})]),
        says="tools.1.custom.input_schema.type: Field required",
    ),
    rule(
        "tool-schema-object",
        _no_object,
        "{at}.input_schema.type: Input should be 'object'",
        evidence="S",
        passes=asked(tools=[tool()]),
        offends=asked(tools=[tool(input_schema={"type": "string"})]),
        says="tools.0.custom.input_schema.type: Input should be 'object'",
    ),
    rule(
        "tool-schema-valid",
        _bad_schema,
        "{at}.input_schema: JSON schema is invalid. It must match JSON Schema draft 2020-12",
        evidence="S",
        passes=asked(tools=[tool(input_schema={"type": "object", "required": ["a"]})]),
        offends=asked(tools=[tool(input_schema={"type": "object", "required": ["a", "a"]})]),
        says="tools.0.custom.input_schema: JSON schema is invalid. It must match JSON Schema draft 2020-12",
    ),
    rule(
        "tools-strict-most",
        _many_strict,
        "Too many strict tools ({count}). The maximum number of strict tools supported is 20."
        " Try reducing the number of tools marked as strict.",
        evidence="S",
        passes=asked(tools=[tool(f"t{n}", strict=True) for n in range(20)]),
        offends=asked(tools=[tool(f"t{n}", strict=True) for n in range(21)]),
        says="Too many strict tools (21). The maximum number of strict tools supported is 20."
        " Try reducing the number of tools marked as strict.",
    ),
    rule(
        "tools-deferred",
        _all_deferred,
        "All tools have defer_loading: true",
        evidence="D",
        passes=asked(tools=[tool(), tool("find", defer_loading=True)]),
        offends=asked(tools=[tool(defer_loading=True), tool("find", defer_loading=True)]),
    ),
    rule(
        "tool-reference-known",
        _unknown_reference,
        "{at}: Tool reference '{name}' not found in available tools",
        evidence="K",
        passes=_referring("find"),
        offends=_referring("gone"),
        says="messages.2.content.0: Tool reference 'gone' not found in available tools",
    ),
    rule(
        "choice-without-tools",
        _nothing_to_choose,
        "tool_choice.any may only be specified while providing tools",
        evidence="S",
        passes=to(FORCEABLE, asked(tool_choice={"type": "any"}, tools=[tool()])),
        offends=to(FORCEABLE, asked(tool_choice={"type": "any"})),
    ),
    rule(
        "choice-known",
        _unknown_choice,
        "Tool '{name}' not found in provided tools",
        evidence="S",
        passes=to(FORCEABLE, asked(tool_choice={"type": "tool", "name": "look"}, tools=[tool()])),
        offends=to(FORCEABLE, asked(tool_choice={"type": "tool", "name": "find"}, tools=[tool()])),
        says="Tool 'find' not found in provided tools",
    ),
)
