"""The validator that both OpenAI wires share: its paths and messages.

It reports a path (`tools[0].name`), a demand and the value it got, always in the same few sentences.
"""

from functools import partial

from bridle.sim.rules.field_rules import ErrorStyle, FieldMessage, FieldRules
from bridle.sim.rules.raw_request import make_rule

INVALID = "invalid_request_error"
"""The provider's type for errors without a code."""
rule = partial(make_rule, code=INVALID)
"""Makes a rule of this provider's usual kind."""

_BOUND = (
    "Invalid '{{at}}': <noun> {side} value. Expected a value {sign} <expected>, but got {{value}} instead."
)
_LONG = (
    "Invalid '{{at}}': {what} too long. Expected {a} with maximum length <expected>,"
    " but got {a} with length {{length}} instead."
)
FIELD_MESSAGES = {
    "required": FieldMessage("Missing required parameter: '{at}'.", "missing_required_parameter"),
    "type": FieldMessage(
        "Invalid type for '{at}': expected <expected>, but got {got} instead.", "invalid_type"
    ),
    "value": FieldMessage("Invalid value: '{value}'. Supported values are: <expected>.", "invalid_value"),
    "least": FieldMessage(_BOUND.format(side="below minimum", sign=">="), "<noun>_below_min_value"),
    "most": FieldMessage(_BOUND.format(side="above maximum", sign="<="), "<noun>_above_max_value"),
    "length": FieldMessage(_LONG.format(what="string", a="a string"), "string_above_max_length"),
    "count": FieldMessage(_LONG.format(what="array", a="an array"), "array_above_max_length"),
    "some": FieldMessage(
        "Invalid '{at}': empty array. Expected an array with minimum length 1, but got an empty array"
        " instead.",
        "empty_array",
    ),
    "pattern": FieldMessage(
        "Invalid '{at}': string does not match pattern. Expected a string that matches the pattern"
        " '{pattern}'.",
        "invalid_value",
    ),
    "fields": FieldMessage("Unknown parameter: '{at}'.", "unknown_parameter"),
    "fields-of-all": FieldMessage("Unknown parameter: '{at}'.", "unknown_parameter"),
}
EXPECTED_NAMES = {
    "boolean": "a boolean",
    "integer": "an integer",
    "number": "a decimal",
    "string": "a string",
    "object": "an object",
    "array": "an array of objects",
    "string|array": "one of a string or array of objects",
}
GIVEN_NAMES = {
    "null": "null",
    "boolean": "a boolean",
    "integer": "an integer",
    "number": "a decimal number",
    "string": "a string",
    "object": "an object",
    "array": "an array",
}


FIELD_CHECKS = FieldRules(
    ErrorStyle(
        rule=rule,
        messages=FIELD_MESSAGES,
        expected_names=EXPECTED_NAMES,
        given_names=GIVEN_NAMES,
        param="{at}",
    )
)
"""Makes field rules with the messages of both OpenAI wires."""
refuse = FIELD_CHECKS.refuse
