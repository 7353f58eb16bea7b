"""Tools of Gemini, both ways.

Functions are declared together, in one list; each tool the provider runs itself stands on its own.
Our schemas go out as JSON Schema.  A declaration read from elsewhere may use the provider's older
dialect, or say more than our tools can: then it is kept whole, as native, and our own schema is only
what can be made of it.  A native definition in another provider's words is not sent as it is: a
function is declared anew from what we know of it, anything else is left out.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from ..values.errors import BadTool
from ..values.request import ToolChoice, ToolSpec
from ._gemini_parts import Block, camel, wire_name, word
from ._json import dumps, is_object, loads, raw
from ._tool_schema import goes_out_as_it_is, sendable

SCHEMA, ANSWER_SCHEMA = "gemini_json", "gemini_json_output"
"""The dialects of JSON Schema that are taken here, for tools and for answers."""

DECLARATIONS = "functionDeclarations"
SHOWS_HOSTED = "includeServerSideToolInvocations"
_DECLARATION = frozenset(
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
"""What other wires call a function, where they say it at all."""
_MODES = {"auto": "AUTO", "any": "ANY", "tool": "ANY", "none": "NONE"}
_SUBSCHEMAS = ("items", "additionalProperties")
_SUBSCHEMA_LISTS = ("anyOf", "prefixItems")


def tools_of(specs: Sequence[ToolSpec]) -> list[Block | Raw]:
    declared: list[Block | Raw] = []
    hosted: list[Block | Raw] = []
    for spec in specs:
        native = _native(spec)
        if native is None:
            declared.append(_declaration(spec))
        elif native.keys() <= _DECLARATION or _is_declaration(native):
            declared.append(raw(spec.native or "{}"))
        elif "name" not in native and "type" not in native:
            hosted.append(raw(spec.native or "{}"))
        elif native.get("type") in _FUNCTION_TYPES:
            declared.append(_declaration(spec))
    return [*([{DECLARATIONS: declared}] if declared else ()), *hosted]


def is_mixed(specs: Sequence[ToolSpec]) -> bool:
    """Whether functions of ours and tools of the provider are offered together."""
    if all(spec.native is None for spec in specs):
        return False
    offered = tools_of(specs)
    functions = sum(isinstance(tool, dict) and DECLARATIONS in tool for tool in offered)
    return 0 < functions < len(offered)


def config_of(choice: ToolChoice, specs: Sequence[ToolSpec]) -> Block:
    """How tools are to be used; where both kinds are offered, every turn has to ask for hosted calls."""
    config: Block = {}
    if wire := choice_of(choice):
        config["functionCallingConfig"] = wire
    if is_mixed(specs):
        config[SHOWS_HOSTED] = True
    return config


def specs_of(tools: Iterable[Any]) -> tuple[ToolSpec, ...]:
    """Raises `ValueError` when these are no tools."""
    specs: list[ToolSpec] = []
    for tool in tools:
        if not isinstance(tool, dict):
            raise ValueError("a tool is an object")
        for name, value in tool.items():
            if value is None:
                continue
            if camel(name) == DECLARATIONS:
                specs += [_spec(each) for each in (value if isinstance(value, list) else [value])]
            else:
                native = dumps({camel(name): value}).decode()
                specs.append(ToolSpec(name=camel(name), native=native))
    return tuple(specs)


def choice_of(choice: ToolChoice) -> Block | None:
    """A choice as the provider has it; there is no switch for parallel calls."""
    if choice.mode == "auto":
        return None
    wire: Block = {"mode": _MODES[choice.mode]}
    if choice.mode == "tool":
        wire["allowedFunctionNames"] = [wire_name(choice.name)]
    return wire


def choice_in(config: object) -> ToolChoice | None:
    """A choice as we have it; None when we have no word for it."""
    if not isinstance(config, dict):
        return None
    said = {camel(name): value for name, value in config.items() if value is not None and value != []}
    mode, names = word(said.pop("mode", "AUTO")).upper(), said.pop("allowedFunctionNames", [])
    if said or not isinstance(names, list):
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


def _native(spec: ToolSpec) -> Block | None:
    if spec.native is None:
        return None
    if not is_object(spec.native):
        raise BadTool(f"the native definition of tool {spec.name!r} is no JSON object: correct it")
    native: Block = loads(spec.native)
    return native


def _is_declaration(native: Block) -> bool:
    """Whether it is one of this wire's, with members we do not know: others say a type, or `input_schema`."""
    return "name" in native and not native.keys() & {"type", "function", "input_schema"}


def _declaration(spec: ToolSpec) -> Block:
    if not is_object(spec.parameters):
        raise BadTool(f"the parameters of tool {spec.name!r} are no JSON Schema object: correct them")
    declared: Block = {"name": wire_name(spec.name)}
    if spec.description:
        declared["description"] = spec.description
    declared["parametersJsonSchema"] = sendable(spec.parameters, SCHEMA)
    return declared


def _spec(declared: object) -> ToolSpec:
    if not isinstance(declared, dict):
        raise ValueError("a function declaration is an object")
    said = {camel(name): value for name, value in declared.items() if value is not None}
    spec = ToolSpec(name=word(said.get("name")), description=word(said.get("description")))
    if isinstance(schema := said.get("parametersJsonSchema"), dict):
        spec = replace(spec, parameters=dumps(schema).decode())
        plain = said.keys() <= {"name", "description", "parametersJsonSchema"}
        if plain and goes_out_as_it_is(spec.parameters, SCHEMA):
            return spec
    elif isinstance(schema := said.get("parameters"), dict):
        spec = replace(spec, parameters=dumps(_json_schema(schema)).decode())
    return replace(spec, native=dumps(said).decode())


def _json_schema(schema: Block) -> Block:
    """The older dialect as JSON Schema: types in lower case, null among them where it is allowed."""
    plain = {camel(name): value for name, value in schema.items() if value is not None}
    nullable = plain.pop("nullable", False) is True
    if isinstance(kind := plain.get("type"), str):
        plain["type"] = [kind.lower(), "null"] if nullable else kind.lower()
    if isinstance(inner := plain.get("properties"), dict):
        plain["properties"] = {
            name: _json_schema(value) if isinstance(value, dict) else value for name, value in inner.items()
        }
    for name in _SUBSCHEMAS:
        if isinstance(plain.get(name), dict):
            plain[name] = _json_schema(plain[name])
    for name in _SUBSCHEMA_LISTS:
        if isinstance(listed := plain.get(name), list):
            plain[name] = [_json_schema(each) if isinstance(each, dict) else each for each in listed]
    return plain
