"""Tools, the choice among them, and schemas."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping

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
    listed,
    mapping,
    to,
)
from .rules import Asked, Found

TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
STRICT_TOOLS_MAX = 20
OPTIONS_MAX = 24
BOUNDS = [
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "maxItems",
]


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


def _strict_schemas(request: Asked) -> Iterator[tuple[str, Mapping[str, object]]]:
    for place, item in custom_tools(request):
        if item.get("strict") is True:
            yield place, mapping(item.get("input_schema"))


def _many_options(request: Asked) -> Found | None:
    count = 0
    for _, root in _strict_schemas(request):
        for schema in _schemas(root):
            required = listed(schema.get("required"))
            count += sum(name not in required for name in mapping(schema.get("properties")))
    return {"count": count} if count > OPTIONS_MAX else None


def _circle(request: Asked) -> Found | None:
    for place, root in _strict_schemas(request):
        definitions = {**mapping(root.get("definitions")), **mapping(root.get("$defs"))}
        reach = {name: set(_references(inner)) for name, inner in definitions.items()}
        for name in definitions:
            path = _way_back(name, reach)
            if path:
                return {"at": place, "circle": " -> ".join(path)}
    return None


def _references(schema: object) -> Iterator[str]:
    for inner in _schemas(schema):
        reference = inner.get("$ref")
        if isinstance(reference, str):
            yield reference.rpartition("/")[2]


def _way_back(start: str, reach: Mapping[str, set[str]]) -> list[str] | None:
    """The shortest way from a definition to itself; nothing when there is none."""
    paths = [[start]]
    seen: set[str] = set()
    for path in paths:
        for name in sorted(reach.get(path[-1], ())):
            if name == start:
                return [*path, name]
            if name not in seen:
                seen.add(name)
                paths.append([*path, name])
    return None


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


def _limited_number(request: Asked) -> Found | None:
    """Schemas of answers know no bounds."""
    places = {
        "output_config.format": mapping(field(request, "output_config")).get("format"),
        "output_format": field(request, "output_format"),
    }
    for place, shape in places.items():
        for schema in _schemas(mapping(shape).get("schema")):
            kind = schema.get("type")
            bound = next((name for name in BOUNDS if name in schema), None)
            if isinstance(kind, str) and bound:
                return {"at": place, "type": kind, "bound": bound}
    return None


def _nothing_to_choose(request: Asked) -> Found | None:
    return {} if mapping(field(request, "tool_choice")).get("type") == "any" and not tools(request) else None


def _unknown_choice(request: Asked) -> Found | None:
    choice = mapping(field(request, "tool_choice"))
    names = {item.get("name") for item in tools(request)}
    if choice.get("type") != "tool" or choice.get("name") in names:
        return None
    return {"name": choice.get("name")}


def _open_object(request: Asked) -> Found | None:
    shape = mapping(mapping(field(request, "output_config")).get("format"))
    for schema in _schemas(shape.get("schema")):
        if schema.get("type") == "object" and schema.get("additionalProperties") is not False:
            return {}
    return None


def _schemas(schema: object) -> Iterator[Mapping[str, object]]:
    """A schema and every schema inside it."""
    if not isinstance(schema, Mapping):
        return
    yield schema
    for key in ("properties", "$defs", "definitions"):
        for inner in mapping(schema.get(key)).values():
            yield from _schemas(inner)
    for key in ("anyOf", "allOf", "oneOf"):
        for inner in listed(schema.get(key)):
            yield from _schemas(inner)
    yield from _schemas(schema.get("items"))


def _answer_in(schema: dict[str, object]) -> dict[str, object]:
    return {"output_config": {"format": {"type": "json_schema", "schema": schema}}}


def _optional(count: int) -> dict[str, object]:
    return {"type": "object", "properties": {f"p{number}": {} for number in range(count)}}


def _defining(**references: str) -> dict[str, object]:
    """Definitions of which each may hold another one."""
    definitions = {
        name: {"type": "object", "properties": {"next": {"$ref": f"#/$defs/{other}"}}, "required": ["next"]}
        if other
        else {"type": "string"}
        for name, other in references.items()
    }
    return {"type": "object", "properties": {}, "$defs": definitions}


_CLOSED = {"type": "object", "properties": {}, "additionalProperties": False}


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
        "tools-optional-most",
        _many_options,
        "Schemas contains too many optional parameters ({count}), which would make grammar compilation"
        " inefficient. Reduce the number of optional parameters in your tool schemas (limit: 24).",
        evidence="S",
        passes=asked(tools=[tool(strict=True, input_schema=_optional(24))]),
        offends=asked(
            tools=[
                tool(strict=True, input_schema=_optional(24)),
                tool("find", strict=True, input_schema=_optional(1)),
            ]
        ),
        says="Schemas contains too many optional parameters (25), which would make grammar compilation"
        " inefficient. Reduce the number of optional parameters in your tool schemas (limit: 24).",
        also=((asked(tools=[tool(input_schema=_optional(25))]), ""),),
    ),
    rule(
        "tool-schema-circle",
        _circle,
        "{at}: Invalid schema: Circular reference detected in schema definitions: {circle}."
        " Self-referencing or mutually-referencing definitions are not supported.",
        evidence="S",
        passes=asked(tools=[tool(strict=True, input_schema=_defining(a="b", b=""))]),
        offends=asked(tools=[tool(strict=True, input_schema=_defining(a="b", b="a"))]),
        says="tools.0.custom: Invalid schema: Circular reference detected in schema definitions: a -> b -> a."
        " Self-referencing or mutually-referencing definitions are not supported.",
        also=((asked(tools=[tool(input_schema=_defining(a="a"))]), ""),),
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
    rule(
        "format-closed",
        _open_object,
        "output_config.format.schema: For 'object' type, 'additionalProperties' must be explicitly"
        " set to false",
        evidence="S",
        passes=asked(**_answer_in(_CLOSED)),
        offends=asked(**_answer_in({**_CLOSED, "properties": {"inner": {"type": "object"}}})),
        also=((asked(**_answer_in({**_CLOSED, "properties": {"inner": {"type": "string"}}})), ""),),
    ),
    rule(
        "format-bounds",
        _limited_number,
        "{at}.schema: For '{type}' type, property '{bound}' is not supported",
        evidence="S",
        passes=asked(**_answer_in({**_CLOSED, "properties": {"age": {"type": "integer"}}})),
        offends=asked(**_answer_in({**_CLOSED, "properties": {"age": {"type": "integer", "minimum": 1}}})),
        says="output_config.format.schema: For 'integer' type, property 'minimum' is not supported",
        also=(
            (asked(**_answer_in({**_CLOSED, "properties": {"age": {"minimum": 1}}})), ""),
            (
                asked(output_format={"schema": {"type": "string", "maxLength": 1}}),
                "output_format.schema: For 'string' type, property 'maxLength' is not supported",
            ),
        ),
    ),
)
