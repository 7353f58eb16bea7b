"""Tools of the Chat Completions wire, the choice among them, and the shape of an answer."""

from collections.abc import Iterator, Mapping

from ._rules_openai_chat_shape import SHAPES, asked, messages, shaped, tool, tools, user
from ._rules_openai_schema import Shape, demands
from ._rules_openai_shape import (
    rule,
)
from ._rules_openai_tools import chosen, formatted, named, offered, wanted
from ._rules_reading import (
    field,
    mapping,
)
from ._rules_shapes import (
    Row,
)
from .rules import Asked, Found


def _functions(request: Asked) -> Iterator[Shape]:
    for index, item in enumerate(tools(request)):
        function = mapping(item.get("function"))
        # Without parameters it takes none, and a strict one has to say so.
        schema = function.get("parameters") or {"type": "object"}
        at = f"tools[{index}].function.parameters"
        yield Shape(str(function.get("name")), schema, function.get("strict") is True, at)


def _answers(request: Asked) -> Iterator[Shape]:
    shape = mapping(mapping(field(request, "response_format")).get("json_schema"))
    if "schema" in shape:
        name, strict = str(shape.get("name")), shape.get("strict") is True
        yield Shape(name, shape.get("schema"), strict, "response_format")


def _with_tool(schema: Mapping[str, object], strict: object) -> Asked:
    return asked(tools=[tool(parameters=schema, strict=strict)])


def _with_answer(schema: Mapping[str, object], strict: object) -> Asked:
    return asked(**shaped(schema=schema, strict=strict))


def _choice_alone(request: Asked) -> Found | None:
    return {} if field(request, "tool_choice") is not None and not field(request, "tools") else None


def _parallel_alone(request: Asked) -> Found | None:
    return {} if field(request, "parallel_tool_calls") is not None and not field(request, "tools") else None


def _unknown_choice(request: Asked) -> Found | None:
    choice = mapping(mapping(field(request, "tool_choice")).get("function"))
    names = [mapping(item.get("function")).get("name") for item in tools(request)]
    return {"name": choice.get("name")} if choice and choice.get("name") not in names else None


def _unsaid_json(request: Asked) -> Found | None:
    wanted = mapping(field(request, "response_format")).get("type") == "json_object"
    return {} if wanted and "json" not in str(messages(request)).lower() else None


TYPES = ("function", "custom")
_PATCH = {"type": "custom", "custom": {"name": "patch"}}
_BARE = (
    (
        asked(tools=[tool(parameters=None, strict=True)]),
        "In context=(), 'additionalProperties' is required to be supplied and to be false.",
    ),
)

TOOL_RULES = (
    *offered(SHAPES, tool, "an array of objects", "S"),
    SHAPES.some("tools", [tool()], Row(evidence="S")),
    SHAPES.required(
        "tools[].type",
        asked(tools=[tool()]),
        Row(id="tool-type-required", evidence="S", says="Missing required parameter: 'tools[1].type'."),
        refuses=asked(tools=[tool(), {"name": "look", "input_schema": {"type": "object"}}]),
    ),
    SHAPES.one_of(
        "tools[].type",
        TYPES,
        asked(tools=[tool(), _PATCH]),
        asked(tools=[tool(), {"type": "web_search", "name": "look"}]),
        Row(
            id="tool-type",
            evidence="S",
            says="Invalid value: 'web_search'. Supported values are: 'function' and 'custom'.",
        ),
    ),
    SHAPES.required(
        "tools[].custom",
        asked(tools=[_PATCH]),
        Row(
            id="tool-custom-required",
            only=lambda item: item.get("type") == "custom",
            evidence="F",
            says="Missing required parameter: 'tools[0].custom'.",
        ),
        refuses=asked(tools=[{"type": "custom", "name": "patch"}]),
    ),
    SHAPES.required(
        "tools[].function",
        asked(tools=[tool()]),
        Row(
            id="tool-function-required",
            only=lambda item: item.get("type") == "function",
            evidence="S",
            says="Missing required parameter: 'tools[0].function'.",
        ),
        refuses=asked(tools=[{"type": "function", "name": "look"}]),
    ),
    SHAPES.required(
        "tools[].function.name",
        asked(tools=[tool()]),
        Row(
            id="tool-name-required",
            evidence="S",
            says="Missing required parameter: 'tools[1].function.name'.",
        ),
        refuses=asked(tools=[tool(), tool(None)]),
    ),
    named(SHAPES, "tools[].function.name", tool),
    SHAPES.shorter(
        "tools[].function.name",
        64,
        asked(tools=[tool("t" * 64)]),
        asked(tools=[tool("t" * 65)]),
        Row(
            id="tool-name-length",
            evidence="S",
            says="Invalid 'tools[0].function.name': string too long. Expected a string with maximum"
            " length 64,"
            " but got a string with length 65 instead.",
        ),
    ),
    *demands(
        "tool-schema",
        "function",
        "invalid_function_parameters",
        _functions,
        _with_tool,
        also={"closed": _BARE},
    ),
    chosen(SHAPES, tool),
    rule(
        "choice-without-tools",
        _choice_alone,
        "Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified.",
        param="tool_choice",
        evidence="S",
        passes=asked(tools=[tool()], tool_choice="auto"),
        offends=asked(tool_choice="auto"),
    ),
    rule(
        "parallel-without-tools",
        _parallel_alone,
        "Invalid value for 'parallel_tool_calls': 'parallel_tool_calls' is only allowed when 'tools' are"
        " specified.",
        param="parallel_tool_calls",
        evidence="S",
        passes=asked(tools=[tool()], parallel_tool_calls=False),
        offends=asked(parallel_tool_calls=False),
    ),
    SHAPES.required(
        "tool_choice.function.name",
        asked(tools=[tool()], tool_choice={"type": "function", "function": {"name": "look"}}),
        Row(
            id="choice-name-required",
            evidence="S",
            says="Missing required parameter: 'tool_choice.function.name'.",
        ),
        refuses=asked(tools=[tool()], tool_choice={"type": "function", "function": {}}),
    ),
    rule(
        "choice-known",
        _unknown_choice,
        "Invalid value for 'tool_choice': no function named {name} was specified in the 'tools' parameter.",
        param="tool_choice",
        evidence="F",
        passes=asked(tools=[tool()], tool_choice={"type": "function", "function": {"name": "look"}}),
        offends=asked(tools=[tool()], tool_choice={"type": "function", "function": {"name": "find"}}),
        says="Invalid value for 'tool_choice': no function named find was specified in the 'tools'"
        " parameter.",
    ),
)

FORMAT_RULES = (
    SHAPES.required(
        "response_format.type",
        asked(response_format={"type": "text"}),
        Row(
            id="format-type-required",
            evidence="S",
            says="Missing required parameter: 'response_format.type'.",
        ),
        refuses=asked(response_format={}),
    ),
    formatted(SHAPES, "response_format"),
    wanted(
        SHAPES,
        "response_format.json_schema",
        "format-shape-required",
        asked(**shaped()),
        asked(response_format={"type": "json_schema"}),
    ),
    wanted(
        SHAPES,
        "response_format.json_schema.name",
        "format-name-required",
        asked(**shaped()),
        asked(**shaped(name=None)),
    ),
    *demands("format-schema", "response_format", "invalid_json_schema", _answers, _with_answer),
    rule(
        "format-json-said",
        _unsaid_json,
        "'messages' must contain the word 'json' in some form, to use 'response_format' of type"
        " 'json_object'.",
        param="messages",
        evidence="S",
        passes=asked(messages=[user("Answer in JSON.")], response_format={"type": "json_object"}),
        offends=asked(response_format={"type": "json_object"}),
    ),
)
