"""Tools of the Responses wire, the choice among them, and the shape of an answer."""

from collections.abc import Iterator, Mapping

from ._rules_openai_responses_shape import SHAPES, asked, shaped, text, tool, tools, user
from ._rules_openai_schema import Shape, demands
from ._rules_openai_shape import (
    rule,
)
from ._rules_openai_tools import chosen, formatted, named, offered, wanted
from ._rules_reading import (
    Block,
    field,
    listed,
    mapping,
)
from ._rules_shapes import (
    Row,
    listing,
)
from .rules import Asked, Found

NAMED = ("function", "custom")
"""Kinds of tools somebody defined themselves and gave a name."""
TYPES = (
    "function", "custom", "namespace", "tool_search", "mcp", "shell", "local_shell", "apply_patch",
    "computer", "computer_use_preview", "web_search", "web_search_2025_08_26", "web_search_preview",
    "web_search_preview_2025_03_11", "file_search", "code_interpreter", "image_generation",
    "programmatic_tool_calling",
)  # fmt: skip


def _is_named(tool_: Block) -> bool:
    return tool_.get("type") in NAMED


def _functions(request: Asked) -> Iterator[Shape]:
    for index, item in enumerate(tools(request)):
        schema = item.get("parameters")
        if schema is not None:
            at = f"tools[{index}].parameters"
            yield Shape(str(item.get("name")), schema, item.get("strict") is True, at)


def _format(request: Asked) -> Block:
    return mapping(mapping(field(request, "text")).get("format"))


def _answers(request: Asked) -> Iterator[Shape]:
    shape = _format(request)
    if shape.get("schema") is not None:
        name, strict = str(shape.get("name")), shape.get("strict") is True
        yield Shape(name, shape.get("schema"), strict, "text.format.schema")


def _with_tool(schema: Mapping[str, object], strict: object) -> Asked:
    return asked(tools=[tool(parameters=schema, strict=strict)])


def _with_answer(schema: Mapping[str, object], strict: object) -> Asked:
    return asked(**shaped(schema=schema, strict=strict))


def _choice_alone(request: Asked) -> Found | None:
    choice = field(request, "tool_choice")
    return {"choice": choice} if choice == "required" and not _offered(request) else None


def _offered(request: Asked) -> bool:
    """Tools may also be kept with a prompt, or come in the middle of the input."""
    items = [mapping(item) for item in listed(field(request, "input"))]
    return bool(tools(request) or field(request, "prompt")) or any("tools" in item for item in items)


def _unknown_choice(request: Asked) -> Found | None:
    choice = mapping(field(request, "tool_choice"))
    type_, name = choice.get("type"), choice.get("name")
    if type_ not in NAMED or name is None:
        return None
    names = [item.get("name") for item in tools(request) if item.get("type") == type_]
    return None if name in names or _hidden(request) else {"type": type_}


def _hidden(request: Asked) -> bool:
    """Tools inside other tools, or looked up later, have names that do not stand at the top."""
    kinds = {item.get("type") for item in tools(request)}
    return bool(kinds & {"namespace", "tool_search", "mcp"}) or (_offered(request) and not tools(request))


def _unsaid_json(request: Asked) -> Found | None:
    if _format(request).get("type") != "json_object":
        return None
    if field(request, "previous_response_id") or field(request, "conversation") or field(request, "prompt"):
        return None
    return None if "json" in str(field(request, "input")).lower() else {}


_FIND = {"type": "function", "name": "find"}
_LATER = {"type": "additional_tools", "role": "developer", "tools": [tool("find")]}

TOOL_RULES = (
    *offered(SHAPES, tool, "an array of tools", "F"),
    SHAPES.required(
        "tools[].type",
        asked(tools=[tool()]),
        Row(id="tool-type-required", evidence="S", says="Missing required parameter: 'tools[1].type'."),
        refuses=asked(tools=[tool(), {"name": "find", "parameters": {"type": "object"}}]),
    ),
    SHAPES.one_of(
        "tools[].type",
        TYPES,
        asked(tools=[tool(), {"type": "web_search"}, {"type": "custom", "name": "patch"}]),
        asked(tools=[tool(), {"type": "web_search_20250305", "name": "web_search"}]),
        Row(
            id="tool-type",
            evidence="S",
            says=f"Invalid value: 'web_search_20250305'. Supported values are: {listing(TYPES)}.",
        ),
    ),
    SHAPES.required(
        "tools[].name",
        asked(tools=[tool(), {"type": "web_search"}]),
        Row(
            id="tool-name-required",
            only=_is_named,
            evidence="S",
            says="Missing required parameter: 'tools[0].name'.",
        ),
        refuses=asked(tools=[{"type": "function", "function": {"name": "look"}}]),
    ),
    named(SHAPES, "tools[].name", tool),
    SHAPES.shorter(
        "tools[].name",
        128,
        asked(tools=[tool("t" * 128)]),
        asked(tools=[tool("t" * 129)]),
        Row(
            id="tool-name-length",
            evidence="D",
            says="Invalid 'tools[0].name': string too long. Expected a string with maximum length 128,"
            " but got a string with length 129 instead.",
        ),
    ),
    *demands("tool-schema", "function", "invalid_function_parameters", _functions, _with_tool),
    chosen(SHAPES, tool),
    rule(
        "choice-without-tools",
        _choice_alone,
        "Tool choice '{choice}' must be specified with 'tools' parameter.",
        param="tool_choice",
        evidence="S",
        passes=asked(tools=[tool()], tool_choice="required"),
        offends=asked(tool_choice="required"),
        says="Tool choice 'required' must be specified with 'tools' parameter.",
        also=(
            (asked(), ""),
            (asked(tool_choice="required", prompt={"id": "pmpt_1"}), ""),
            (asked(tool_choice="required", input=[_LATER]), ""),
            (
                asked(tool_choice="required", input=[user("Hello")]),
                "Tool choice 'required' must be specified with 'tools' parameter.",
            ),
        ),
    ),
    rule(
        "choice-known",
        _unknown_choice,
        "Tool choice '{type}' not found in 'tools' parameter.",
        param="tool_choice",
        evidence="S",
        passes=asked(tools=[tool()], tool_choice={"type": "function", "name": "look"}),
        offends=asked(tools=[tool()], tool_choice={"type": "function", "name": "find"}),
        says="Tool choice 'function' not found in 'tools' parameter.",
        also=(
            (asked(tool_choice={"type": "web_search"}, tools=[{"type": "web_search"}]), ""),
            (asked(tool_choice={"type": "mcp", "name": "find"}), ""),
            (asked(tool_choice={"type": "function"}), ""),
            (asked(tool_choice=_FIND, prompt={"id": "pmpt_1"}), ""),
            (asked(tool_choice=_FIND, tools=[{"type": "namespace", "name": "n", "tools": []}]), ""),
            (asked(tool_choice=_FIND, input=[_LATER]), ""),
            (asked(tool_choice=_FIND), "Tool choice 'function' not found in 'tools' parameter."),
        ),
    ),
)

FORMAT_RULES = (
    formatted(SHAPES, "text.format"),
    wanted(
        SHAPES,
        "text.format.name",
        "format-name-required",
        asked(**shaped()),
        asked(**shaped(name=None)),
    ),
    wanted(
        SHAPES,
        "text.format.schema",
        "format-schema-required",
        asked(**shaped()),
        asked(**shaped(schema=None)),
    ),
    *demands("format-schema", "response_format", "invalid_json_schema", _answers, _with_answer),
    SHAPES.one_of(
        "text.verbosity", ("low", "medium", "high"), "low", "tiny", Row(id="verbosity", evidence="S")
    ),
    rule(
        "format-json-said",
        _unsaid_json,
        "Response input messages must contain the word 'json' in some form to use 'text.format' of type"
        " 'json_object'.",
        param="input",
        evidence="S",
        passes=asked(input=[user(text("Answer in JSON."))], text={"format": {"type": "json_object"}}),
        offends=asked(instructions="Answer in JSON.", text={"format": {"type": "json_object"}}),
        also=(
            (asked(text={"format": {"type": "json_object"}}, previous_response_id="resp_1"), ""),
            (asked(text={"format": {"type": "json_object"}}, conversation="conv_1"), ""),
            (asked(text={"format": {"type": "json_object"}}, prompt={"id": "pmpt_1"}), ""),
        ),
    ),
)
