"""Rows that both of these wires have about tools, the choice among them, and the shape of an answer.

They say the same of fields that stand in different places.
"""

from collections.abc import Callable

from bridle.sim.rules.engine import ProviderRule, RawRequest
from bridle.sim.rules.field_rules import FieldRow, FieldRules
from bridle.sim.rules.raw_request import JsonObject

NAME = "^[a-zA-Z0-9_-]+$"
CHOICES = ("none", "auto", "required")
FORMATS = ("json_object", "json_schema", "text")
_ANY = "Invalid value: 'any'. Supported values are: 'none', 'auto', and 'required'."
_JSON = "Invalid value: 'json'. Supported values are: 'json_object', 'json_schema', and 'text'."

ToolBuilder = Callable[..., JsonObject]


def tool_list_rules(
    shapes: FieldRules, tool: ToolBuilder, expected: str, evidence: str
) -> tuple[ProviderRule, ...]:
    """What a list of tools has to be."""
    most = FieldRow(
        id="tools-most",
        evidence="S",
        says="Invalid 'tools': array too long. Expected an array with maximum length 128,"
        " but got an array with length 129 instead.",
    )
    many = [tool(f"t{n}") for n in range(129)]
    return (
        shapes.of_type(
            "tools", "array|null", [tool()], "look", FieldRow(evidence=evidence), expected=expected
        ),
        shapes.max_items("tools", 128, many[:128], many, most),
    )


def tool_name_rule(shapes: FieldRules, path: str, tool: ToolBuilder) -> ProviderRule:
    """The letters of a tool's name; how many there may be differs."""
    asked = shapes.style.example
    place = path.replace("[]", "[0]")
    return shapes.pattern(
        path,
        NAME,
        asked(tools=[tool("look-up_2")]),
        asked(tools=[tool("look.up")]),
        FieldRow(
            id="tool-name",
            evidence="S",
            says=f"Invalid '{place}': string does not match pattern. Expected a string that matches the"
            " pattern '^[a-zA-Z0-9_-]+$'.",
        ),
    )


def tool_choice_rule(shapes: FieldRules, tool: ToolBuilder) -> ProviderRule:
    row = FieldRow(id="choice-word", evidence="S", beside={"tools": [tool()]}, says=_ANY)
    return shapes.one_of("tool_choice", CHOICES, "required", "any", row)


def format_type_rule(shapes: FieldRules, path: str) -> ProviderRule:
    row = FieldRow(id="format-type", evidence="S", says=_JSON)
    return shapes.one_of(f"{path}.type", FORMATS, "text", "json", row)


def format_required_rule(
    shapes: FieldRules, path: str, id_: str, passes: RawRequest, offends: RawRequest
) -> ProviderRule:
    """What an answer of a given shape has to have."""
    row = FieldRow(id=id_, only=_is_json_schema, evidence="S", says=f"Missing required parameter: '{path}'.")
    return shapes.required(path, passes, row, refuses=offends)


def _is_json_schema(format_: JsonObject) -> bool:
    return format_.get("type") in (None, "json_schema")
