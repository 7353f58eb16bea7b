"""Compares and classifies values as JSON Schema does: 1 equals 1.0 and never true."""

import json
from collections.abc import Mapping
from typing import Any

_KEYWORDS_BY_TYPE: dict[str, tuple[str, ...]] = {
    "object": (
        "properties", "required", "additionalProperties", "patternProperties", "propertyNames",
        "minProperties", "maxProperties", "dependentRequired", "dependentSchemas",
    ),
    "array": (
        "items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains", "minContains",
        "maxContains",
    ),
    "string": ("minLength", "maxLength", "pattern", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}  # fmt: skip
KEYWORDS_BY_TYPE: dict[str, tuple[str, ...]] = {
    **_KEYWORDS_BY_TYPE,
    "number": (*_KEYWORDS_BY_TYPE["number"], "format"),
    "integer": (*_KEYWORDS_BY_TYPE["number"], "format"),
    "boolean": (),
    "null": (),
}
"""The keywords that constrain values of each type."""


def value_key(value: Any) -> str:
    """Return a text that is equal for values JSON Schema considers equal."""
    return json.dumps(_normalise_numbers(value), sort_keys=True, default=str)


def is_same_value(one: Any, other: Any) -> bool:
    """True if JSON Schema considers the values equal; parts that are shared, or differ early, cost nothing."""
    if one is other:
        return True
    if isinstance(one, dict):
        if not isinstance(other, dict) or one.keys() != other.keys():
            return False
        return all(is_same_value(held, other[name]) for name, held in one.items())
    if isinstance(one, list):
        return isinstance(other, list) and len(one) == len(other) and all(map(is_same_value, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def value_type(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "integer" if value.is_integer() else "number"
        case str():
            return "string"
        case list():
            return "array"
    return "object"


def has_type(value: Any, kind: str) -> bool:
    return value_type(value) == kind or (kind == "number" and value_type(value) == "integer")


def declared_types(flat: Mapping[str, Any]) -> list[str]:
    """Return the types that a flat schema names or whose values it lists; empty if it does neither."""
    types = flat.get("type", [])
    named = [types] if isinstance(types, str) else list(types)
    if "number" in named and "integer" in named:
        named.remove("integer")
    if "enum" not in flat:
        return named
    if named:
        return [kind for kind in named if any(has_type(value, kind) for value in flat["enum"])]
    return list(dict.fromkeys(value_type(value) for value in flat["enum"]))


def implied_types(flat: Mapping[str, Any]) -> list[str]:
    """Return the types that the keywords of a schema apply to, for a schema without `type`."""
    return [kind for kind, words in _KEYWORDS_BY_TYPE.items() if any(word in flat for word in words)]


def _normalise_numbers(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: _normalise_numbers(held) for name, held in value.items()}
    return [_normalise_numbers(held) for held in value] if isinstance(value, list) else value
