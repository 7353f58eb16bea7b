"""Values that stand in schemas, compared the way JSON Schema does: 1 is 1.0 and never true."""

import json
from collections.abc import Mapping
from typing import Any

_OWN: dict[str, tuple[str, ...]] = {
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
OWN_KEYWORDS: dict[str, tuple[str, ...]] = {
    **_OWN,
    "number": (*_OWN["number"], "format"),
    "integer": (*_OWN["number"], "format"),
    "boolean": (),
    "null": (),
}
"""The words that say something about values of a type."""


def key_of(value: Any) -> str:
    """The same text for values that JSON Schema does not tell apart."""
    return json.dumps(_plain(value), sort_keys=True, default=str)


def kind_of(value: Any) -> str:
    """The narrowest type a value has."""
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


def is_of(value: Any, kind: str) -> bool:
    return kind_of(value) == kind or (kind == "number" and kind_of(value) == "integer")


def kinds_of(flat: Mapping[str, Any]) -> list[str]:
    """The types a flat shape names or whose values it lists; empty when it does neither."""
    types = flat.get("type", [])
    named = [types] if isinstance(types, str) else list(types)
    if "number" in named and "integer" in named:
        named.remove("integer")
    if "enum" not in flat:
        return named
    if named:
        return [kind for kind in named if any(is_of(value, kind) for value in flat["enum"])]
    return list(dict.fromkeys(kind_of(value) for value in flat["enum"]))


def hinted_kinds(flat: Mapping[str, Any]) -> list[str]:
    """The types that the words of a shape are about, for one that names none."""
    return [kind for kind, words in _OWN.items() if any(word in flat for word in words)]


def _plain(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: _plain(held) for name, held in value.items()}
    return [_plain(held) for held in value] if isinstance(value, list) else value
