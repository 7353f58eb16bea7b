"""Puts constraints that a dialect cannot express into the description.

The model reads descriptions. A constraint that is only described is followed far more often than one that is
not mentioned, and the check of the arguments catches the rest.
"""

from typing import Any

from .losses import abbreviate_json

# not from outside: our own text, shown to a person or a model
NOTE_LENGTH_MAX = 200
"""A constraint that is longer as JSON is not worth its tokens."""
UNBOUNDED = 2**53 - 1
"""Larger bounds only describe a machine integer; schema generators write them everywhere."""
_PHRASES = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "exclusiveMinimum": "more than {}",
    "exclusiveMaximum": "less than {}",
    "multipleOf": "a multiple of {}",
    "minLength": "at least {} long",
    "maxLength": "at most {} long",
    "pattern": "matching the pattern {}",
    "format": "in the format {}",
    "minItems": "at least {} of them",
    "maxItems": "at most {} of them",
    "uniqueItems": "none of them twice",
    "minProperties": "at least {} fields",
    "maxProperties": "at most {} fields",
    "additionalProperties": "other fields like {}",
    "default": "{} if left out",
}


def describe_rule(keyword: str, value: Any) -> str:
    """Describe a constraint; empty if it is vacuous or too long."""
    if value is False or (isinstance(value, int | float) and abs(value) >= UNBOUNDED):
        return ""
    if keyword in ("enum", "examples") and isinstance(value, list):
        text = ("one of " if keyword == "enum" else "for example ") + ", ".join(
            abbreviate_json(item, NOTE_LENGTH_MAX) for item in value
        )
    elif keyword == "required":
        text = f"with {', '.join(value)}"
    elif keyword in _PHRASES:
        text = _PHRASES[keyword].format(
            value if isinstance(value, str) else abbreviate_json(value, NOTE_LENGTH_MAX + 1)
        )
    else:
        text = f"must fit {keyword}: {abbreviate_json(value, NOTE_LENGTH_MAX + 1)}"
    return text if len(text) <= NOTE_LENGTH_MAX and '"$ref"' not in text else ""


def append_notes(text: str, notes: tuple[str, ...]) -> str:
    extra = "; ".join(dict.fromkeys(note for note in notes if note))
    if not extra:
        return text
    return f"{text} ({extra})" if text else extra[0].upper() + extra[1:]
