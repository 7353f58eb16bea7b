"""Whether a JSON Schema already is what strict mode takes.

A shape marked as strict is enforced while the model writes, and refused outright when the schema uses
anything outside a narrow subset.  So the mark is set only where the schema keeps to the subset as it
stands: every object closed, every property required, and no keyword but those known to be taken.
Making a schema fit is somebody else's work; this only looks.
"""

from typing import Any

DEPTH_MAX = 10
PROPERTIES_MAX = 5_000

_ALWAYS = frozenset({"type", "title", "description", "enum", "const", "anyOf", "$defs", "definitions"})
_BY_TYPE: dict[str, frozenset[str]] = {
    "object": frozenset({"properties", "required", "additionalProperties"}),
    "array": frozenset({"items", "minItems", "maxItems"}),
    "string": frozenset({"pattern", "format"}),
    "number": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}),
    "integer": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}),
    "boolean": frozenset(),
    "null": frozenset(),
}
_FORMATS = frozenset(
    {"date-time", "date", "time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", None}
)


def is_strict(schema: object) -> bool:
    """Whether this schema of an answer may be marked as strict without being changed."""
    if not isinstance(schema, dict) or schema.get("type") != "object" or "anyOf" in schema:
        return False
    count = [0]
    return _fits(schema, 1, count) and count[0] <= PROPERTIES_MAX


def _fits(schema: object, depth: int, count: list[int]) -> bool:
    if not isinstance(schema, dict) or depth > DEPTH_MAX:
        return False
    if "$ref" in schema:
        return len(schema) == 1 and isinstance(schema["$ref"], str) and schema["$ref"].startswith("#")
    named = schema.get("type", [])
    types: list[Any] = named if isinstance(named, list) else [named]
    if not all(isinstance(each, str) and each in _BY_TYPE for each in types):
        return False
    if not types and not {"anyOf", "enum", "const"} & schema.keys():
        return False
    if not schema.keys() <= _ALWAYS.union(*(_BY_TYPE[each] for each in types)):
        return False
    inner = [*_values(schema, "$defs"), *_values(schema, "definitions")]
    if "anyOf" in schema:
        options = schema["anyOf"]
        if not isinstance(options, list) or not options:
            return False
        inner += options
    if "array" in types:
        inner.append(schema.get("items"))
    if "object" in types:
        properties = schema.get("properties")
        required = schema.get("required", [])
        if not isinstance(properties, dict) or schema.get("additionalProperties") is not False:
            return False
        if not isinstance(required, list) or sorted(map(str, required)) != sorted(properties):
            return False
        count[0] += len(properties)
        inner += properties.values()
    if "string" in types and schema.get("format") not in _FORMATS:
        return False
    return all(_fits(each, depth + 1, count) for each in inner)


def _values(schema: dict[str, Any], name: str) -> list[Any]:
    inner = schema.get(name)
    return list(inner.values()) if isinstance(inner, dict) else []
