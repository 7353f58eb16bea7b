"""Rules of the Responses API about tools, the tool choice and the answer format."""

from collections.abc import Callable, Iterator

from bridle.sim.openai.error_style import FIELD_CHECKS, rule
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
from bridle.sim.rules.raw_request import JsonObject, as_list, as_mapping, field, tools

NAMED_TYPES = ("function", "custom")
"""Types of client tools that have a name."""
TYPES = (
    "function", "custom", "namespace", "tool_search", "mcp", "shell", "local_shell", "apply_patch",
    "computer", "computer_use_preview", "web_search", "web_search_2025_08_26", "web_search_preview",
    "web_search_preview_2025_03_11", "file_search", "code_interpreter", "image_generation",
    "programmatic_tool_calling",
)  # fmt: skip

HOSTED_MEMBERS = (
    ("file_search", "vector_store_ids"),
    ("code_interpreter", "container"),
    ("mcp", "server_label"),
)
"""Types of hosted tools, each with a member that it requires."""


def _is_named(tool_: JsonObject) -> bool:
    return tool_.get("type") in NAMED_TYPES


def _is_type(type_: str) -> Callable[[JsonObject], bool]:
    return lambda tool_: tool_.get("type") == type_


def _list_function_schemas(request: RawRequest) -> Iterator[RequestSchema]:
    for index, item in enumerate(tools(request)):
        schema = item.get("parameters")
        if schema is not None:
            at = f"tools[{index}].parameters"
            yield RequestSchema(str(item.get("name")), schema, item.get("strict") is True, at)


def _answer_format(request: RawRequest) -> JsonObject:
    return as_mapping(as_mapping(field(request, "text")).get("format"))


def _list_answer_schemas(request: RawRequest) -> Iterator[RequestSchema]:
    shape = _answer_format(request)
    if shape.get("schema") is not None:
        name, strict = str(shape.get("name")), shape.get("strict") is True
        yield RequestSchema(name, shape.get("schema"), strict, "text.format.schema")


def _check_choice_without_tools(request: RawRequest) -> RuleFinding | None:
    choice = field(request, "tool_choice")
    return {"choice": choice} if choice == "required" and not _has_tools(request) else None


def _has_tools(request: RawRequest) -> bool:
    """True if there are tools in the request, in a stored prompt or in the middle of the input."""
    items = [as_mapping(item) for item in as_list(field(request, "input"))]
    return bool(tools(request) or field(request, "prompt")) or any("tools" in item for item in items)


def _check_choice_known(request: RawRequest) -> RuleFinding | None:
    choice = as_mapping(field(request, "tool_choice"))
    type_, name = choice.get("type"), choice.get("name")
    if type_ not in NAMED_TYPES or name is None:
        return None
    names = [item.get("name") for item in tools(request) if item.get("type") == type_]
    return None if name in names or _has_unlisted_tools(request) else {"type": type_}


def _has_unlisted_tools(request: RawRequest) -> bool:
    """True if tools inside other tools, or loaded later, may have names that are not in the list."""
    kinds = {item.get("type") for item in tools(request)}
    return bool(kinds & {"namespace", "tool_search", "mcp"}) or (_has_tools(request) and not tools(request))


def _check_format_json_said(request: RawRequest) -> RuleFinding | None:
    if _answer_format(request).get("type") != "json_object":
        return None
    if field(request, "previous_response_id") or field(request, "conversation") or field(request, "prompt"):
        return None
    return None if "json" in str(field(request, "input")).lower() else {}


TOOL_RULES = (
    *tool_list_rules("an array of tools", "F"),
    FIELD_CHECKS.required("tools[].type", FieldRow(id="tool-type-required", evidence="S")),
    FIELD_CHECKS.one_of("tools[].type", TYPES, FieldRow(id="tool-type", evidence="S")),
    FIELD_CHECKS.required("tools[].name", FieldRow(id="tool-name-required", only=_is_named, evidence="S")),
    *(
        FIELD_CHECKS.required(
            f"tools[].{member}", FieldRow(id=f"tool-{type_}-{member}", only=_is_type(type_), evidence="S")
        )
        for type_, member in HOSTED_MEMBERS
    ),
    tool_name_rule("tools[].name"),
    FIELD_CHECKS.max_length("tools[].name", 128, FieldRow(id="tool-name-length", evidence="D")),
    *schema_rules("tool-schema", "function", "invalid_function_parameters", _list_function_schemas),
    tool_choice_rule(),
    rule(
        "choice-without-tools",
        _check_choice_without_tools,
        "Tool choice '{choice}' must be specified with 'tools' parameter.",
        param="tool_choice",
        evidence="S",
    ),
    rule(
        "choice-known",
        _check_choice_known,
        "Tool choice '{type}' not found in 'tools' parameter.",
        param="tool_choice",
        evidence="S",
    ),
)

FORMAT_RULES = (
    format_type_rule("text.format"),
    format_required_rule("text.format.name", "format-name-required"),
    format_required_rule("text.format.schema", "format-schema-required"),
    *schema_rules("format-schema", "response_format", "invalid_json_schema", _list_answer_schemas),
    FIELD_CHECKS.one_of("text.verbosity", ("low", "medium", "high"), FieldRow(id="verbosity", evidence="S")),
    rule(
        "format-json-said",
        _check_format_json_said,
        "Response input messages must contain the word 'json' in some form to use 'text.format' of type"
        " 'json_object'.",
        param="input",
        evidence="S",
    ),
)
