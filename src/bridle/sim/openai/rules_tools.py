"""Rules of both OpenAI wires about tools, the tool choice and the answer format, at the path that each wire uses."""

from bridle.sim.rules.engine import ProviderRule
from bridle.sim.rules.field_rules import FieldRow
from bridle.sim.rules.raw_request import JsonObject

from .error_style import FIELD_CHECKS

NAME = "^[a-zA-Z0-9_-]+$"
CHOICES = ("none", "auto", "required")
FORMATS = ("json_object", "json_schema", "text")


def tool_list_rules(expected: str, evidence: str) -> tuple[ProviderRule, ...]:
    """Make the rules for a list of tools."""
    most = FieldRow(id="tools-most", evidence="S")
    return (
        FIELD_CHECKS.of_type("tools", "array|null", FieldRow(evidence=evidence), expected=expected),
        FIELD_CHECKS.max_items("tools", 128, most),
    )


def tool_name_rule(path: str) -> ProviderRule:
    """Make the rule for the characters of a tool's name; its length differs by wire."""
    return FIELD_CHECKS.pattern(path, NAME, FieldRow(id="tool-name", evidence="S"))


def tool_choice_rule() -> ProviderRule:
    row = FieldRow(id="choice-word", evidence="S")
    return FIELD_CHECKS.one_of("tool_choice", CHOICES, row)


def format_type_rule(path: str) -> ProviderRule:
    row = FieldRow(id="format-type", evidence="S")
    return FIELD_CHECKS.one_of(f"{path}.type", FORMATS, row)


def format_required_rule(path: str, id_: str) -> ProviderRule:
    """Make the rule for the required fields of an answer format."""
    row = FieldRow(id=id_, only=_is_json_schema, evidence="S")
    return FIELD_CHECKS.required(path, row)


def _is_json_schema(format_: JsonObject) -> bool:
    return format_.get("type") in (None, "json_schema")
