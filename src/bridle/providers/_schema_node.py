"""A shape of a schema in memory, the words that hold other shapes, and the ways to walk through them."""

import re
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

ONE = frozenset(
    {"items", "additionalProperties", "propertyNames", "contains", "not", "if", "then", "else"}
    | {"unevaluatedItems", "unevaluatedProperties", "additionalItems"}
)
SEVERAL = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
NAMED = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"})
DEFINING = frozenset({"$defs", "definitions"})
NOISE = DEFINING | {
    "$schema", "$id", "id", "$anchor", "$comment", "$vocabulary", "$dynamicAnchor", "$recursiveAnchor",
}  # fmt: skip
"""Words that mean nothing once references are resolved."""
_SAME_VALUE = frozenset({"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas"})


class Node(dict[str, Any]):
    """A shape, with the place in the source it comes from."""

    __slots__ = ("at",)

    def __init__(self, members: dict[str, Any], at: str) -> None:
        super().__init__(members)
        self.at = at

    def without(self, *keywords: str) -> "Node":
        return Node({name: held for name, held in self.items() if name not in keywords}, self.at)


Schema: TypeAlias = Node | bool


def references(schema: Schema) -> Iterator[str]:
    """The places a shape refers to, wherever inside it."""
    if isinstance(schema, bool):
        return
    if "$ref" in schema:
        yield schema["$ref"]
    for _, inner in inside(schema):
        yield from references(inner)


def inside(node: Node) -> Iterator[tuple[str, Schema]]:
    """The shapes directly inside a shape, each with the word it stands under; not what it only defines."""
    for keyword, held in node.items():
        if keyword in ONE:
            yield keyword, held
        elif keyword in SEVERAL:
            for part in held:
                yield keyword, part
        elif keyword in NAMED and keyword not in DEFINING:
            for part in held.values():
                yield keyword, part


def everywhere(schema: Schema) -> Iterator[Node]:
    """A shape and all shapes in it, those it only defines included."""
    if isinstance(schema, bool):
        return
    yield schema
    for _, inner in inside(schema):
        yield from everywhere(inner)
    for keyword in DEFINING:
        for inner in schema.get(keyword, {}).values():
            yield from everywhere(inner)


def here(schema: Schema) -> Iterator[Node]:
    """A shape and those in it that are about the same value, not about its fields or items."""
    if isinstance(schema, bool):
        return
    yield schema
    for keyword, inner in inside(schema):
        if keyword in _SAME_VALUE:
            yield from here(inner)


def definition_name(place: str, taken: Iterable[str]) -> str:
    """A name for what stands at a place, in letters that every wire takes."""
    base = re.sub(r"[^a-zA-Z0-9_.-]+", "_", place.rpartition("/")[2]).strip("_") or "root"
    name, number = base, 1
    while name in taken:
        number += 1
        name = f"{base}_{number}"
    return name


def step(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
