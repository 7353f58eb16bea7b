"""Rules of Chat Completions about tools, the tool choice and the answer format."""

from collections.abc import Iterator

from bridle.sim.openai.error_style import FIELD_CHECKS, refuse, rule
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
from bridle.sim.rules.raw_request import as_mapping, field, messages, tools


def _list_function_schemas(request: RawRequest) -> Iterator[RequestSchema]:
    for index, item in enumerate(tools(request)):
        function = as_mapping(item.get("function"))
        # A function without parameters takes none, and a strict one must say so.
        schema = function.get("parameters") or {"type": "object"}
        at = f"tools[{index}].function.parameters"
        yield RequestSchema(str(function.get("name")), schema, function.get("strict") is True, at)


def _list_answer_schemas(request: RawRequest) -> Iterator[RequestSchema]:
    shape = as_mapping(as_mapping(field(request, "response_format")).get("json_schema"))
    if "schema" in shape:
        name, strict = str(shape.get("name")), shape.get("strict") is True
        yield RequestSchema(name, shape.get("schema"), strict, "response_format")


def _check_choice_known(request: RawRequest) -> RuleFinding | None:
    choice = as_mapping(as_mapping(field(request, "tool_choice")).get("function"))
    names = [as_mapping(item.get("function")).get("name") for item in tools(request)]
    return {"name": choice.get("name")} if choice and choice.get("name") not in names else None


def _check_format_json_said(request: RawRequest) -> RuleFinding | None:
    wanted = as_mapping(field(request, "response_format")).get("type") == "json_object"
    return {} if wanted and "json" not in str(messages(request)).lower() else None


TYPES = ("function", "custom")

TOOL_RULES = (
    *tool_list_rules("an array of objects", "S"),
    FIELD_CHECKS.not_empty("tools", FieldRow(evidence="S")),
    FIELD_CHECKS.required("tools[].type", FieldRow(id="tool-type-required", evidence="S")),
    FIELD_CHECKS.one_of("tools[].type", TYPES, FieldRow(id="tool-type", evidence="S")),
    FIELD_CHECKS.required(
        "tools[].custom",
        FieldRow(id="tool-custom-required", only=lambda item: item.get("type") == "custom", evidence="F"),
    ),
    FIELD_CHECKS.required(
        "tools[].function",
        FieldRow(id="tool-function-required", only=lambda item: item.get("type") == "function", evidence="S"),
    ),
    FIELD_CHECKS.required("tools[].function.name", FieldRow(id="tool-name-required", evidence="S")),
    tool_name_rule("tools[].function.name"),
    FIELD_CHECKS.max_length("tools[].function.name", 64, FieldRow(id="tool-name-length", evidence="S")),
    *schema_rules("tool-schema", "function", "invalid_function_parameters", _list_function_schemas),
    tool_choice_rule(),
    refuse(
        "choice-without-tools",
        "",
        lambda body: body.get("tool_choice") is not None and not body.get("tools"),
        "Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified.",
        param="tool_choice",
        evidence="S",
    ),
    refuse(
        "parallel-without-tools",
        "",
        lambda body: body.get("parallel_tool_calls") is not None and not body.get("tools"),
        "Invalid value for 'parallel_tool_calls': 'parallel_tool_calls' is only allowed when 'tools' are"
        " specified.",
        param="parallel_tool_calls",
        evidence="S",
    ),
    FIELD_CHECKS.required("tool_choice.function.name", FieldRow(id="choice-name-required", evidence="S")),
    rule(
        "choice-known",
        _check_choice_known,
        "Invalid value for 'tool_choice': no function named {name} was specified in the 'tools' parameter.",
        param="tool_choice",
        evidence="F",
    ),
)

FORMAT_RULES = (
    FIELD_CHECKS.required("response_format.type", FieldRow(id="format-type-required", evidence="S")),
    format_type_rule("response_format"),
    format_required_rule("response_format.json_schema", "format-shape-required"),
    format_required_rule("response_format.json_schema.name", "format-name-required"),
    *schema_rules("format-schema", "response_format", "invalid_json_schema", _list_answer_schemas),
    rule(
        "format-json-said",
        _check_format_json_said,
        "'messages' must contain the word 'json' in some form, to use 'response_format' of type"
        " 'json_object'.",
        param="messages",
        evidence="S",
    ),
)
