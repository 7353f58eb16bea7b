"""Tools of the Chat Completions wire, the choice among them, and the shape of an answer."""

from collections.abc import Iterator, Mapping

from bridle.sim.openai.error_style import rule
from bridle.sim.openai.rules_schemas import RequestSchema, schema_rules
from bridle.sim.openai.rules_tools import (
    format_required_rule,
    format_type_rule,
    tool_choice_rule,
    tool_list_rules,
    tool_name_rule,
)
from bridle.sim.rules.engine import RawRequest, RuleFinding
from bridle.sim.rules.field_rules import FieldRow
from bridle.sim.rules.raw_request import as_mapping, field

from .request import FIELD_CHECKS, answer_format, example, messages, tool, tools, user


def _list_function_schemas(request: RawRequest) -> Iterator[RequestSchema]:
    for index, item in enumerate(tools(request)):
        function = as_mapping(item.get("function"))
        # Without parameters it takes none, and a strict one has to say so.
        schema = function.get("parameters") or {"type": "object"}
        at = f"tools[{index}].function.parameters"
        yield RequestSchema(str(function.get("name")), schema, function.get("strict") is True, at)


def _list_answer_schemas(request: RawRequest) -> Iterator[RequestSchema]:
    shape = as_mapping(as_mapping(field(request, "response_format")).get("json_schema"))
    if "schema" in shape:
        name, strict = str(shape.get("name")), shape.get("strict") is True
        yield RequestSchema(name, shape.get("schema"), strict, "response_format")


def _example_with_tool(schema: Mapping[str, object], strict: object) -> RawRequest:
    return example(tools=[tool(parameters=schema, strict=strict)])


def _example_with_answer(schema: Mapping[str, object], strict: object) -> RawRequest:
    return example(**answer_format(schema=schema, strict=strict))


def _check_choice_without_tools(request: RawRequest) -> RuleFinding | None:
    return {} if field(request, "tool_choice") is not None and not field(request, "tools") else None


def _check_parallel_without_tools(request: RawRequest) -> RuleFinding | None:
    return {} if field(request, "parallel_tool_calls") is not None and not field(request, "tools") else None


def _check_choice_known(request: RawRequest) -> RuleFinding | None:
    choice = as_mapping(as_mapping(field(request, "tool_choice")).get("function"))
    names = [as_mapping(item.get("function")).get("name") for item in tools(request)]
    return {"name": choice.get("name")} if choice and choice.get("name") not in names else None


def _check_format_json_said(request: RawRequest) -> RuleFinding | None:
    wanted = as_mapping(field(request, "response_format")).get("type") == "json_object"
    return {} if wanted and "json" not in str(messages(request)).lower() else None


TYPES = ("function", "custom")
_PATCH = {"type": "custom", "custom": {"name": "patch"}}
_BARE = (
    (
        example(tools=[tool(parameters=None, strict=True)]),
        "In context=(), 'additionalProperties' is required to be supplied and to be false.",
    ),
)

TOOL_RULES = (
    *tool_list_rules(FIELD_CHECKS, tool, "an array of objects", "S"),
    FIELD_CHECKS.not_empty("tools", [tool()], FieldRow(evidence="S")),
    FIELD_CHECKS.required(
        "tools[].type",
        example(tools=[tool()]),
        FieldRow(id="tool-type-required", evidence="S", says="Missing required parameter: 'tools[1].type'."),
        refuses=example(tools=[tool(), {"name": "look", "input_schema": {"type": "object"}}]),
    ),
    FIELD_CHECKS.one_of(
        "tools[].type",
        TYPES,
        example(tools=[tool(), _PATCH]),
        example(tools=[tool(), {"type": "web_search", "name": "look"}]),
        FieldRow(
            id="tool-type",
            evidence="S",
            says="Invalid value: 'web_search'. Supported values are: 'function' and 'custom'.",
        ),
    ),
    FIELD_CHECKS.required(
        "tools[].custom",
        example(tools=[_PATCH]),
        FieldRow(
            id="tool-custom-required",
            only=lambda item: item.get("type") == "custom",
            evidence="F",
            says="Missing required parameter: 'tools[0].custom'.",
        ),
        refuses=example(tools=[{"type": "custom", "name": "patch"}]),
    ),
    FIELD_CHECKS.required(
        "tools[].function",
        example(tools=[tool()]),
        FieldRow(
            id="tool-function-required",
            only=lambda item: item.get("type") == "function",
            evidence="S",
            says="Missing required parameter: 'tools[0].function'.",
        ),
        refuses=example(tools=[{"type": "function", "name": "look"}]),
    ),
    FIELD_CHECKS.required(
        "tools[].function.name",
        example(tools=[tool()]),
        FieldRow(
            id="tool-name-required",
            evidence="S",
            says="Missing required parameter: 'tools[1].function.name'.",
        ),
        refuses=example(tools=[tool(), tool(None)]),
    ),
    tool_name_rule(FIELD_CHECKS, "tools[].function.name", tool),
    FIELD_CHECKS.max_length(
        "tools[].function.name",
        64,
        example(tools=[tool("t" * 64)]),
        example(tools=[tool("t" * 65)]),
        FieldRow(
            id="tool-name-length",
            evidence="S",
            says="Invalid 'tools[0].function.name': string too long. Expected a string with maximum"
            " length 64,"
            " but got a string with length 65 instead.",
        ),
    ),
    *schema_rules(
        "tool-schema",
        "function",
        "invalid_function_parameters",
        _list_function_schemas,
        _example_with_tool,
        also={"closed": _BARE},
    ),
    tool_choice_rule(FIELD_CHECKS, tool),
    rule(
        "choice-without-tools",
        _check_choice_without_tools,
        "Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified.",
        param="tool_choice",
        evidence="S",
        passes=example(tools=[tool()], tool_choice="auto"),
        offends=example(tool_choice="auto"),
    ),
    rule(
        "parallel-without-tools",
        _check_parallel_without_tools,
        "Invalid value for 'parallel_tool_calls': 'parallel_tool_calls' is only allowed when 'tools' are"
        " specified.",
        param="parallel_tool_calls",
        evidence="S",
        passes=example(tools=[tool()], parallel_tool_calls=False),
        offends=example(parallel_tool_calls=False),
    ),
    FIELD_CHECKS.required(
        "tool_choice.function.name",
        example(tools=[tool()], tool_choice={"type": "function", "function": {"name": "look"}}),
        FieldRow(
            id="choice-name-required",
            evidence="S",
            says="Missing required parameter: 'tool_choice.function.name'.",
        ),
        refuses=example(tools=[tool()], tool_choice={"type": "function", "function": {}}),
    ),
    rule(
        "choice-known",
        _check_choice_known,
        "Invalid value for 'tool_choice': no function named {name} was specified in the 'tools' parameter.",
        param="tool_choice",
        evidence="F",
        passes=example(tools=[tool()], tool_choice={"type": "function", "function": {"name": "look"}}),
        offends=example(tools=[tool()], tool_choice={"type": "function", "function": {"name": "find"}}),
        says="Invalid value for 'tool_choice': no function named find was specified in the 'tools'"
        " parameter.",
    ),
)

FORMAT_RULES = (
    FIELD_CHECKS.required(
        "response_format.type",
        example(response_format={"type": "text"}),
        FieldRow(
            id="format-type-required",
            evidence="S",
            says="Missing required parameter: 'response_format.type'.",
        ),
        refuses=example(response_format={}),
    ),
    format_type_rule(FIELD_CHECKS, "response_format"),
    format_required_rule(
        FIELD_CHECKS,
        "response_format.json_schema",
        "format-shape-required",
        example(**answer_format()),
        example(response_format={"type": "json_schema"}),
    ),
    format_required_rule(
        FIELD_CHECKS,
        "response_format.json_schema.name",
        "format-name-required",
        example(**answer_format()),
        example(**answer_format(name=None)),
    ),
    *schema_rules(
        "format-schema", "response_format", "invalid_json_schema", _list_answer_schemas, _example_with_answer
    ),
    rule(
        "format-json-said",
        _check_format_json_said,
        "'messages' must contain the word 'json' in some form, to use 'response_format' of type"
        " 'json_object'.",
        param="messages",
        evidence="S",
        passes=example(messages=[user("Answer in JSON.")], response_format={"type": "json_object"}),
        offends=example(response_format={"type": "json_object"}),
    ),
)
