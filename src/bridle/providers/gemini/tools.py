"""Encodes and decodes Gemini's tools and tool choice.

Functions are declared together in one list; each hosted tool is an entry of its own. Bridle's schemas are
sent as JSON Schema. A decoded declaration may use the provider's older dialect, or have members that
`ToolSpec` does not model: then it is kept as native, and the schema is a best-effort conversion. A native
definition in another provider's format is not sent: a function is declared from its known fields, anything
else is omitted.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from bridle.providers.schema.tool_schema import compile_for_wire, is_sent_unchanged, native_definition
from bridle.providers.wire.json import dumps, loads, raw_json, text_or_empty
from bridle.values.model import Model
from bridle.values.request import ToolChoice, ToolSpec, find_wire_form

from .hosted import encode_own_hosted_tool
from .parts import FAMILY, Block, encode_tool_name, to_camel_case

TOOL_DIALECT, OUTPUT_DIALECT = "gemini_json", "gemini_json_output"
"""The JSON Schema dialects of this wire, for tools and for answers."""

DECLARATIONS = "functionDeclarations"
INCLUDE_HOSTED_CALLS = "includeServerSideToolInvocations"
_DECLARATION_MEMBERS = frozenset(
    {
        "name",
        "description",
        "parameters",
        "parametersJsonSchema",
        "response",
        "responseJsonSchema",
        "behavior",
    }
)
_FUNCTION_TYPES = (None, "function", "custom")
"""Types that other wires use for a function, if they have a type at all."""
_MODES = {"auto": "AUTO", "any": "ANY", "tool": "ANY", "none": "NONE"}
_SUBSCHEMAS = ("items", "additionalProperties")
_SUBSCHEMA_LISTS = ("anyOf", "prefixItems")
_COUNTS = ("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties")
_NO_TYPE = "TYPE_UNSPECIFIED"


def encode_tools(specs: Sequence[ToolSpec], model: Model) -> list[Block | Raw]:
    hosted = (encode_own_hosted_tool(spec, model) for spec in specs if spec.hosted is not None)
    return [*_encode_given_tools(specs), *hosted]


def _encode_given_tools(specs: Sequence[ToolSpec]) -> list[Block | Raw]:
    """Encode functions, and hosted tools in this provider's own JSON."""
    declared: list[Block | Raw] = []
    hosted: list[Block | Raw] = []
    for spec in specs:
        if spec.hosted is not None:
            continue
        native = _native_tool(spec)
        if native is None:
            declared.append(_encode_declaration(spec))
        elif native.keys() <= _DECLARATION_MEMBERS or _is_declaration(native):
            declared.append(_as_written(spec))
        elif "name" not in native and "type" not in native:
            hosted.append(_as_written(spec))
        elif native.get("type") in _FUNCTION_TYPES:
            declared.append(_encode_declaration(spec))
    return [*([{DECLARATIONS: declared}] if declared else ()), *hosted]


def has_both_tool_kinds(specs: Sequence[ToolSpec]) -> bool:
    """Return True if both functions and hosted tools are offered."""
    if all(spec.native is None for spec in specs):
        return False
    offered = _encode_given_tools(specs)
    functions = sum(isinstance(tool, dict) and DECLARATIONS in tool for tool in offered)
    hosted = len(offered) - functions + sum(spec.hosted is not None for spec in specs)
    return functions > 0 and hosted > 0


def encode_tool_config(choice: ToolChoice, specs: Sequence[ToolSpec]) -> Block:
    """Encode the tool configuration. If a request has functions and hosted tools, it must ask for hosted calls."""
    config: Block = {}
    if calling := encode_tool_choice(choice):
        config["functionCallingConfig"] = calling
    if has_both_tool_kinds(specs):
        config[INCLUDE_HOSTED_CALLS] = True
    return config


def decode_tools(tools: Iterable[Any]) -> tuple[ToolSpec, ...]:
    """Decode tools; raise `ValueError` if they are invalid."""
    specs: list[ToolSpec] = []
    for tool in tools:
        if not isinstance(tool, dict):
            raise ValueError("a tool must be an object")
        for name, value in tool.items():
            if value is None:
                continue
            if to_camel_case(name) == DECLARATIONS:
                specs += [
                    _decode_declaration(each) for each in (value if isinstance(value, list) else [value])
                ]
            else:
                native = dumps({to_camel_case(name): value}).decode()
                specs.append(ToolSpec(name=to_camel_case(name), native=native))
    return tuple(specs)


def encode_tool_choice(choice: ToolChoice) -> Block | None:
    """Encode a tool choice; the wire has no switch for parallel calls."""
    if choice.mode == "auto":
        return None
    wire: Block = {"mode": _MODES[choice.mode]}
    if choice.mode == "tool":
        wire["allowedFunctionNames"] = [encode_tool_name(choice.name)]
    return wire


def decode_tool_choice(config: object) -> ToolChoice | None:
    """Decode a tool choice; None if `ToolChoice` cannot represent it."""
    if not isinstance(config, dict):
        return None
    members = {
        to_camel_case(name): value for name, value in config.items() if value is not None and value != []
    }
    mode, names = text_or_empty(members.pop("mode", "AUTO")).upper(), members.pop("allowedFunctionNames", [])
    if members or not isinstance(names, list):
        return None
    match mode, names:
        case "AUTO" | "MODE_UNSPECIFIED", []:
            return ToolChoice()
        case "ANY", []:
            return ToolChoice(mode="any")
        case "ANY", [str(name)]:
            return ToolChoice(mode="tool", name=name)
        case "NONE", []:
            return ToolChoice(mode="none")
    return None


def _as_written(spec: ToolSpec) -> Raw:
    return raw_json(spec.native or find_wire_form(spec, FAMILY))


def _native_tool(spec: ToolSpec) -> Block | None:
    native = native_definition(spec, FAMILY)
    return None if native is None else loads(bytes(native))


def _is_declaration(native: Block) -> bool:
    """Return True for a declaration of this wire, possibly with unknown members."""
    return "name" in native and not native.keys() & {"type", "function", "input_schema"}


def _encode_declaration(spec: ToolSpec) -> Block:
    declared: Block = {"name": encode_tool_name(spec.name)}
    if spec.description:
        declared["description"] = spec.description
    declared["parametersJsonSchema"] = compile_for_wire(spec.parameters, TOOL_DIALECT)
    return declared


def _decode_declaration(declared: object) -> ToolSpec:
    if not isinstance(declared, dict):
        raise ValueError("a function declaration must be an object")
    members = {to_camel_case(name): value for name, value in declared.items() if value is not None}
    spec = ToolSpec(
        name=text_or_empty(members.get("name")), description=text_or_empty(members.get("description"))
    )
    if isinstance(schema := members.get("parametersJsonSchema"), dict):
        spec = replace(spec, parameters=dumps(schema).decode())
        plain = members.keys() <= {"name", "description", "parametersJsonSchema"}
        if plain and is_sent_unchanged(spec.parameters, TOOL_DIALECT):
            return spec
    elif isinstance(schema := members.get("parameters"), dict):
        spec = replace(spec, parameters=dumps(convert_old_schema(schema)).decode())
    return replace(spec, native=dumps(members).decode())


def convert_old_schema(schema: Block) -> Block:
    """Convert the older dialect to JSON Schema: lower-case types, null where it is allowed, numbers, and the order."""
    plain = {to_camel_case(name): value for name, value in schema.items() if value is not None}
    nullable = plain.pop("nullable", False) is True
    if isinstance(kind := plain.pop("type", None), str) and kind != _NO_TYPE:
        plain["type"] = [kind.lower(), "null"] if nullable else kind.lower()
    for name in _COUNTS:
        if isinstance(count := plain.get(name), str) and count.isdecimal():
            plain[name] = int(count)  # a whole number of 64 bits is text in this JSON
    order = plain.pop("propertyOrdering", ())
    if isinstance(inner := plain.get("properties"), dict):
        first = [name for name in order if name in inner] if isinstance(order, list) else []
        plain["properties"] = {
            name: convert_old_schema(inner[name]) if isinstance(inner[name], dict) else inner[name]
            for name in dict.fromkeys((*first, *inner))
        }
    for name in _SUBSCHEMAS:
        if isinstance(plain.get(name), dict):
            plain[name] = convert_old_schema(plain[name])
    for name in _SUBSCHEMA_LISTS:
        if isinstance(listed := plain.get(name), list):
            plain[name] = [convert_old_schema(each) if isinstance(each, dict) else each for each in listed]
    if nullable:
        _allow_null(plain)
    return plain


def _allow_null(plain: Block) -> None:
    """Add null to the values of a converted schema whose type does not say it alone."""
    if isinstance(values := plain.get("enum"), list) and None not in values:
        plain["enum"] = [*values, None]
    if isinstance(choices := plain.get("anyOf"), list) and "type" not in plain:
        plain["anyOf"] = [*choices, {"type": "null"}]
