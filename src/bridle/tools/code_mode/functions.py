"""Python functions for tools: names, typed signatures and docstrings made from the tools' schemas.

The text is the same in every process, because it is part of the prompt.  A parameter whose value is `...` is not sent.
"""

import builtins
import inspect
import json
import keyword
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, get_type_hints

from bridle.ports.tool import Tool
from bridle.values.request import ToolSpec

HELPER_NAMES = ("ToolError", "parallel", "call_tool")
SOURCE_NAMES = ("_make", "annotations", "__builtins__")
"""Names that the definitions of functions bind or need in the module of the program."""
RESERVED_NAMES = frozenset(
    (*dir(builtins), *keyword.kwlist, *keyword.softkwlist, *HELPER_NAMES, *SOURCE_NAMES)
)
RESERVED_PARAMETERS = frozenset((*keyword.kwlist, "__debug__", "call_tool"))
"""Names that Python forbids for parameters, and the one that the body of a function uses."""
TYPE_DEPTH_MAX = 4
"""Objects inside one another that a type spells out."""
# not from outside: our own text, shown to a person or a model
ENUM_VALUES_MAX = 12
PLAIN_TYPES = {
    "string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None", "array": "list",
    "object": "dict",
}  # fmt: skip
RETURN_TYPES: Mapping[object, str] = {
    int: "int", float: "float", bool: "bool", type(None): "None", dict: "dict", list: "list", tuple: "list",
}  # fmt: skip
JsonSchema = Mapping[str, Any]


class ProgramFunction(NamedTuple):
    """A function that a program calls in place of a tool."""

    name: str
    tool: str
    """Name of the tool; the function's name if that is a valid one."""
    stub: str
    """Signature and docstring, for the model."""
    source: str
    """Definition, for the process of the program."""


def make_functions(tools: Iterable[Tool]) -> tuple[ProgramFunction, ...]:
    taken: set[str] = set()
    return tuple(_make_function(tool, taken) for tool in tools)


def _make_function(tool: Tool, taken: set[str]) -> ProgramFunction:
    spec = tool.spec
    name = _make_identifier(spec.name, taken | RESERVED_NAMES)
    taken.add(name)
    schema: JsonSchema = json.loads(spec.parameters)
    properties: JsonSchema = schema.get("properties", {})
    required = [key for key in properties if key in schema.get("required", ())]
    used = set(RESERVED_PARAMETERS)
    names: dict[str, str] = {}
    for key in (*required, *(key for key in properties if key not in required)):
        names[key] = _make_identifier(key, used)
        used.add(names[key])
    parameters = [
        f"{python}: {render_type(properties[key], schema)}{'' if key in required else ' = ...'}"
        for key, python in names.items()
    ]
    if schema.get("additionalProperties", True) is not False:
        parameters.append(f"**{_make_identifier('more', used)}: Any")
    returns = find_return_type(tool)
    signature = f"def {name}({', '.join(parameters)}) -> {returns}:"
    doc = make_docstring(spec, {names[key]: properties[key] for key in names})
    items = ", ".join(f"{key!r}: {python}" for key, python in names.items())
    if len(parameters) > len(names):
        items = ", ".join(filter(None, (items, parameters[-1].partition(":")[0])))
    body = f"return call_tool({spec.name!r}, {{{items}}}, parse={returns != 'str'})"
    # The harness's own function is bound now: a program that assigns the name `call_tool` changes nothing.
    source = (
        "from __future__ import annotations\n"
        f"def _make(call_tool):\n    {signature}\n        {doc!r}\n        {body}\n    return {name}\n"
        f"{name} = _make(call_tool)\ndel _make\n"
    )
    stub = f'{signature}\n    """{doc}"""' if doc else f"{signature} ..."
    return ProgramFunction(name, spec.name, stub, source)


def _make_identifier(name: str, taken: Iterable[str]) -> str:
    """A valid name that is not taken; the name itself if possible."""
    made = re.sub(r"\W", "_", name, flags=re.ASCII)
    if not made or made[0].isdigit():
        made = f"_{made}"
    taken = frozenset(taken)
    candidate, number = made, 1
    while candidate in taken:
        candidate = f"{made}_" if number == 1 else f"{made}_{number}"
        number += 1
    return candidate


def make_docstring(spec: ToolSpec, properties: JsonSchema) -> str:
    """The tool's description and those of its parameters."""
    lines = [" ".join(spec.description.split())]
    for name, schema in properties.items():
        about = " ".join(str(schema.get("description", "")).split()) if isinstance(schema, Mapping) else ""
        if about:
            lines.append(f"{name}: {about}")
    return "\n    ".join(line for line in lines if line)


def find_return_type(tool: Tool) -> str:
    """The type of a tool's results: `str` if they are text, `Any` if they may be JSON."""
    function = getattr(tool, "__wrapped__", None)
    try:
        found = get_type_hints(inspect.unwrap(function)).get("return", Any) if callable(function) else Any
    except (NameError, TypeError, ValueError):
        return "Any"  # an annotation that cannot be evaluated here
    if found is str:
        return "str"
    return RETURN_TYPES.get(getattr(found, "__origin__", found), "Any")


def render_type(schema: object, root: JsonSchema, depth: int = 0) -> str:
    """A JSON Schema as a Python type; an object with known fields as a dict of types, optional ones with `?`."""
    if not isinstance(schema, Mapping):
        return "Any"
    if isinstance(reference := schema.get("$ref"), str):
        found = _find_reference(reference, root)
        return "Any" if depth >= TYPE_DEPTH_MAX else render_type(found, root, depth + 1)
    if "const" in schema:
        return _render_literal([schema["const"]])
    if isinstance(values := schema.get("enum"), list) and len(values) <= ENUM_VALUES_MAX:
        return _render_literal(values)
    options = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(options, list):
        return _join_types(render_type(option, root, depth) for option in options)
    kind = schema.get("type")
    if isinstance(kind, list):
        return _join_types(render_type({**schema, "type": each}, root, depth) for each in kind)
    if kind == "array" and "items" in schema:
        return f"list[{render_type(schema['items'], root, depth)}]"
    if kind == "object":
        return _render_object(schema, root, depth)
    return PLAIN_TYPES.get(str(kind), "Any")


def _render_object(schema: JsonSchema, root: JsonSchema, depth: int) -> str:
    fields, more = schema.get("properties"), schema.get("additionalProperties")
    if isinstance(fields, Mapping) and fields and depth < TYPE_DEPTH_MAX:
        required = schema.get("required", ())
        items = (
            f"{(key if key in required else f'{key}?')!r}: {render_type(each, root, depth + 1)}"
            for key, each in fields.items()
        )
        return f"{{{', '.join(items)}}}"
    if isinstance(more, Mapping) and more:
        return f"dict[str, {render_type(more, root, depth + 1)}]"
    return "dict"


def _render_literal(values: Sequence[object]) -> str:
    return f"Literal[{', '.join(repr(value) for value in values)}]"


def _join_types(types: Iterable[str]) -> str:
    return " | ".join(dict.fromkeys(types)) or "Any"


def _find_reference(reference: str, root: JsonSchema) -> object:
    found: object = root
    for step in reference.removeprefix("#/").split("/"):
        found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
    return found
