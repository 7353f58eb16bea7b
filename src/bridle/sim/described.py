"""Bounds that a description states because the wire cannot carry them as keywords.

Clients move what a strict dialect refuses into the description: in words ("at least 2; at most 10") or as
the list of keywords that vendors' own helpers append (`{minimum: 2, maximum: 10}`).  A model reads both,
so the simulated one does too.
"""

import re
from collections.abc import Mapping

_NUMBER = r"(-?\d+(?:\.\d+)?)"
_PHRASES = (
    ("minItems", rf"at least {_NUMBER} of them"),
    ("maxItems", rf"at most {_NUMBER} of them"),
    ("minLength", rf"at least {_NUMBER} long"),
    ("maxLength", rf"at most {_NUMBER} long"),
    ("minProperties", rf"at least {_NUMBER} fields"),
    ("minimum", rf"at least {_NUMBER}(?! (?:of them|long|fields)|[\d.])"),
    ("maximum", rf"at most {_NUMBER}(?! (?:of them|long|fields)|[\d.])"),
    ("exclusiveMinimum", rf"more than {_NUMBER}"),
    ("exclusiveMaximum", rf"less than {_NUMBER}"),
    ("multipleOf", rf"a multiple of {_NUMBER}"),
)
_KEYWORDS = re.compile(rf"\b([a-zA-Z]+): {_NUMBER}(?=[,}}])")
_KINDS = {
    "array": {"minItems", "maxItems"},
    "object": {"minProperties"},
    "string": {"minLength", "maxLength"},
    "integer": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"},
}
_KINDS["number"] = _KINDS["integer"]


def state_bounds(schema: dict[str, object]) -> dict[str, object]:
    """The schema with the bounds of its descriptions as keywords, at every place of it."""
    inner = {name: _state_inside(value) for name, value in schema.items()}
    for keyword, number in _read_bounds(schema.get("description"), schema.get("type")).items():
        given = schema.get(keyword)
        # The wire carries a lower bound up to its own limit; the description then states the whole.
        inner[keyword] = max(number, given) if isinstance(given, int | float) else number
    return inner


def _state_inside(value: object) -> object:
    if isinstance(value, dict):
        return state_bounds(value)
    return [_state_inside(item) for item in value] if isinstance(value, list) else value


def _read_bounds(description: object, kind: object) -> Mapping[str, float]:
    kinds = [str(each) for each in kind if each != "null"] if isinstance(kind, list) else [str(kind)]
    taken = set().union(*(_KINDS.get(each, set()) for each in kinds))
    if not isinstance(description, str) or not taken:
        return {}
    found = {
        keyword: match.group(1)
        for keyword, pattern in _PHRASES
        if (match := re.search(pattern, description, re.IGNORECASE))
    }
    found |= dict(_KEYWORDS.findall(description)) if "{" in description else {}
    return {
        keyword: float(number) if "." in number else int(number)
        for keyword, number in found.items()
        if keyword in taken
    }
