"""How the validator that both of these wires share names places and words its demands.

It names a place (`tools[0].name`), a demand and what it got, always in the same few sentences.
"""

from collections.abc import Callable
from functools import partial

from ._rules_reading import written
from ._rules_shapes import Sentence, Shapes, Voice
from .rules import Asked

INVALID = "invalid_request_error"
"""What the provider calls an error that has no code of its own."""
rule = partial(written, code=INVALID)
"""A rule of this provider's usual kind."""

_BOUND = (
    "Invalid '{{at}}': <noun> {side} value. Expected a value {sign} <expected>, but got {{value}} instead."
)
_LONG = (
    "Invalid '{{at}}': {what} too long. Expected {a} with maximum length <expected>,"
    " but got {a} with length {{length}} instead."
)
SENTENCES = {
    "required": Sentence("Missing required parameter: '{at}'.", "missing_required_parameter"),
    "type": Sentence("Invalid type for '{at}': expected <expected>, but got {got} instead.", "invalid_type"),
    "value": Sentence("Invalid value: '{value}'. Supported values are: <expected>.", "invalid_value"),
    "least": Sentence(_BOUND.format(side="below minimum", sign=">="), "<noun>_below_min_value"),
    "most": Sentence(_BOUND.format(side="above maximum", sign="<="), "<noun>_above_max_value"),
    "length": Sentence(_LONG.format(what="string", a="a string"), "string_above_max_length"),
    "count": Sentence(_LONG.format(what="array", a="an array"), "array_above_max_length"),
    "some": Sentence(
        "Invalid '{at}': empty array. Expected an array with minimum length 1, but got an empty array"
        " instead.",
        "empty_array",
    ),
    "pattern": Sentence(
        "Invalid '{at}': string does not match pattern. Expected a string that matches the pattern"
        " '{pattern}'.",
        "invalid_value",
    ),
    "fields": Sentence("Unknown parameter: '{at}'.", "unknown_parameter"),
    "fields-of-all": Sentence("Unknown parameter: '{at}'.", "unknown_parameter"),
}
EXPECTS = {
    "boolean": "a boolean",
    "integer": "an integer",
    "number": "a decimal",
    "string": "a string",
    "object": "an object",
    "array": "an array of objects",
    "string|array": "one of a string or array of objects",
}
GIVEN = {
    "null": "null",
    "boolean": "a boolean",
    "integer": "an integer",
    "number": "a decimal number",
    "string": "a string",
    "object": "an object",
    "array": "an array",
}


def shapes(asked: Callable[..., Asked]) -> Shapes:
    """The rows of one of the wires; `asked` makes its small legal requests."""
    voice = Voice(asked=asked, rule=rule, sentences=SENTENCES, expects=EXPECTS, kinds=GIVEN, param="{at}")
    return Shapes(voice)
