"""Whether a schema may be called strict: the provider then makes the model keep to it, or refuses it.

Strict schemas are a part of JSON Schema: every object closed and all its properties required, no
composition but `anyOf`, no keyword the provider does not know.  A schema that is not one is sent as
not strict, as it is; nothing is rewritten here.  When in doubt a schema is not strict: the price is a
model that may stray, and arguments are checked here anyway; the other mistake is a refused request.
"""

from typing import Any

from ._json import loads

DEPTH_MAX = 10
PROPERTIES_MAX = 5_000
ENUM_VALUES_MAX = 1_000

_KEYWORDS = frozenset(
    {"type", "title", "description", "enum", "const", "anyOf", "properties", "required"}
    | {"additionalProperties", "items", "minItems", "maxItems", "pattern", "format", "multipleOf"}
    | {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "$defs", "definitions"}
)
_FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})
_TYPES = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})


def is_strict(schema: str) -> bool:
    try:
        root = loads(schema)
    except ValueError:
        return False
    if not isinstance(root, dict) or root.get("type") != "object" or "anyOf" in root:
        return False
    return _Check(root).passes()


class _Check:
    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._properties = self._values = 0

    def passes(self) -> bool:
        fits = self._node(self._root, 0)
        return fits and self._properties <= PROPERTIES_MAX and self._values <= ENUM_VALUES_MAX

    def _node(self, node: object, depth: int) -> bool:
        if not isinstance(node, dict) or depth > DEPTH_MAX:
            return False
        if "$ref" in node:
            return len(node) == 1 and self._resolves(node["$ref"])
        if not node.keys() <= _KEYWORDS:
            return False
        kinds = node.get("type")
        kinds = [kinds] if isinstance(kinds, str) else kinds
        if "anyOf" not in node and not (
            isinstance(kinds, list)
            and kinds
            and all(isinstance(kind, str) and kind in _TYPES for kind in kinds)
        ):
            return False
        values, wanted = node.get("enum", []), node.get("format", "date")
        self._values += len(values) if isinstance(values, list) else 0
        inner = [*_members(node, "anyOf"), *_members(node, "$defs"), *_members(node, "definitions")]
        return (
            isinstance(wanted, str)
            and wanted in _FORMATS
            and self._object(node, kinds or (), depth)
            and self._array(node, kinds or (), depth)
            and all(self._node(each, depth + 1) for each in inner)
        )

    def _object(self, node: dict[str, Any], kinds: Any, depth: int) -> bool:
        if "object" not in kinds:
            return "properties" not in node
        properties, required = node.get("properties"), node.get("required", [])
        if not isinstance(properties, dict) or not isinstance(required, list):
            return False
        self._properties += len(properties)
        closed = node.get("additionalProperties") is False
        complete = sorted(map(str, required)) == sorted(properties)
        return closed and complete and all(self._node(inner, depth + 1) for inner in properties.values())

    def _array(self, node: dict[str, Any], kinds: Any, depth: int) -> bool:
        return "array" not in kinds or self._node(node.get("items"), depth + 1)

    def _resolves(self, reference: object) -> bool:
        if not isinstance(reference, str) or not reference.startswith("#"):
            return False
        place: object = self._root
        for step in reference.removeprefix("#").split("/")[1:]:
            place = place.get(step) if isinstance(place, dict) else None
        return isinstance(place, dict)


def _members(node: dict[str, Any], name: str) -> list[object]:
    """The schemas under a keyword; one that is none when the keyword holds nothing of the kind."""
    given = node.get(name)
    if isinstance(given, dict) and name != "anyOf":
        return list(given.values())
    if isinstance(given, list) and given and name == "anyOf":
        return given
    return [None] if name in node else []
