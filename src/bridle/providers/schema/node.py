"""Schemas in memory, the keywords that hold subschemas, and ways to iterate over them."""

import re
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

SINGLE_SCHEMA_KEYWORDS = frozenset(
    {"items", "additionalProperties", "propertyNames", "contains", "not", "if", "then", "else"}
    | {"unevaluatedItems", "unevaluatedProperties", "additionalItems"}
)
SCHEMA_LIST_KEYWORDS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
SCHEMA_MAP_KEYWORDS = frozenset(
    {"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"}
)
DEFINITION_KEYWORDS = frozenset({"$defs", "definitions"})
IGNORED_KEYWORDS = DEFINITION_KEYWORDS | {
    "$schema", "$id", "id", "$anchor", "$comment", "$vocabulary", "$dynamicAnchor", "$recursiveAnchor",
}  # fmt: skip
"""Keywords without meaning once references are resolved."""
_SAME_VALUE_KEYWORDS = frozenset({"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas"})


class SchemaNode(dict[str, Any]):
    """A schema object with its location (JSON pointer) in the source."""

    __slots__ = ("at",)

    def __init__(self, members: dict[str, Any], at: str) -> None:
        super().__init__(members)
        self.at = at

    def without(self, *keywords: str) -> "SchemaNode":
        return SchemaNode({name: held for name, held in self.items() if name not in keywords}, self.at)


Schema: TypeAlias = SchemaNode | bool


def iter_references(schema: Schema) -> Iterator[str]:
    if isinstance(schema, bool):
        return
    if "$ref" in schema:
        yield schema["$ref"]
    for _, inner in iter_children(schema):
        yield from iter_references(inner)


def iter_children(node: SchemaNode) -> Iterator[tuple[str, Schema]]:
    """Yield the direct subschemas, each with its keyword; definitions are not included."""
    for keyword, held in node.items():
        if keyword in SINGLE_SCHEMA_KEYWORDS:
            yield keyword, held
        elif keyword in SCHEMA_LIST_KEYWORDS:
            for part in held:
                yield keyword, part
        elif keyword in SCHEMA_MAP_KEYWORDS and keyword not in DEFINITION_KEYWORDS:
            for part in held.values():
                yield keyword, part


def iter_nodes(schema: Schema) -> Iterator[SchemaNode]:
    """Yield a schema and all subschemas, definitions included."""
    if isinstance(schema, bool):
        return
    yield schema
    for _, inner in iter_children(schema):
        yield from iter_nodes(inner)
    for keyword in DEFINITION_KEYWORDS:
        for inner in schema.get(keyword, {}).values():
            yield from iter_nodes(inner)


def iter_same_value(schema: Schema) -> Iterator[SchemaNode]:
    """Yield a schema and the subschemas that apply to the same value, not to its fields or items."""
    if isinstance(schema, bool):
        return
    yield schema
    for keyword, inner in iter_children(schema):
        if keyword in _SAME_VALUE_KEYWORDS:
            yield from iter_same_value(inner)


def definition_name(place: str, taken: Iterable[str]) -> str:
    """Derive a definition name from a location, in characters that every wire accepts."""
    base = re.sub(r"[^a-zA-Z0-9_.-]+", "_", place.rpartition("/")[2]).strip("_") or "root"
    name, number = base, 1
    while name in taken:
        number += 1
        name = f"{base}_{number}"
    return name


def escape_pointer_step(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
