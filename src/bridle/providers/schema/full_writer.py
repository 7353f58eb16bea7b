"""Writes a schema for a dialect that accepts all of JSON Schema, changing only what would be refused.

An acceptable schema is written unchanged, with its references where they were. References move into one
`$defs` at the root only if the root was rebuilt or definitions are to be inlined.
"""

from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import quote

from .combine import ANNOTATIONS
from .dialect import SchemaDialect
from .losses import SchemaLosses
from .node import (
    DEFINITION_KEYWORDS,
    IGNORED_KEYWORDS,
    SCHEMA_LIST_KEYWORDS,
    SCHEMA_MAP_KEYWORDS,
    SINGLE_SCHEMA_KEYWORDS,
    Schema,
    SchemaNode,
    definition_name,
    iter_children,
    iter_references,
)
from .root import SchemaRoot
from .source import SchemaSource

INLINED_SHAPES_MAX = 1_000
"""Subschemas that may be written in place of references; further ones stay references."""
_DYNAMIC_REFERENCES = ("$dynamicRef", "$recursiveRef")
_EVALUATED_KEYWORDS = ("unevaluatedProperties", "unevaluatedItems", "maxContains")
"""Constraints that become stricter when a neighbouring one accepts more."""


class FullWriter:
    def __init__(self, source: SchemaSource, dialect: SchemaDialect, losses: SchemaLosses) -> None:
        self._source = source
        self._dialect = dialect
        self._losses = losses
        self._moves = False
        self._names: dict[str, str] = {}
        self._inlined = 0
        self._inside: tuple[str, ...] = ()
        """Definitions being written, without an optional field in between."""
        self._cuts = 0

    def write_document(self, top: SchemaRoot) -> dict[str, Any]:
        inlines = self._dialect.references == "inline" and bool(self._source.definitions)
        self._moves = top.rebuilt or self._source.moved or inlines
        written = self._write_shape(top.node)
        assert isinstance(written, dict)
        if self._dialect.root_properties:
            written.setdefault("properties", {})
        defined: dict[str, Any] = {}
        while len(defined) < len(self._names):
            place, name = list(self._names.items())[len(defined)]
            defined[name] = self._write_shape(self._source.definitions[place])
        return {**written, "$defs": defined} if defined else written

    def _write_shape(self, schema: Schema, inside: tuple[str, ...] | None = None) -> dict[str, Any] | bool:
        if isinstance(schema, bool):
            return schema
        outside, cuts = self._inside, self._cuts
        self._inside = outside if inside is None else inside
        if schema.at in self._source.definitions:
            self._inside = (*self._inside, schema.at)
        endless = self._recursive_required_fields(schema)
        written = self._write_members(schema, endless)
        if self._dialect.array_items and written.get("type") == "array" and "prefixItems" not in written:
            written.setdefault("items", {})
        if "$ref" in schema:
            written = self._write_reference(schema, written)
        if self._cuts > cuts:
            self._drop(schema, written, _EVALUATED_KEYWORDS, "depends on a schema that was loosened")
        self._inside = outside
        return written

    def _write_members(self, schema: SchemaNode, endless: Sequence[str]) -> dict[str, Any]:
        written: dict[str, Any] = {}
        for word, held in schema.items():
            if word in SINGLE_SCHEMA_KEYWORDS:
                written[word] = self._write_shape(held)
            elif word in SCHEMA_LIST_KEYWORDS:
                written[word] = [self._write_shape(part) for part in held]
            elif word == "properties":
                needed = [name for name in schema.get("required", ()) if name not in endless]
                written[word] = {
                    name: self._write_shape(part, None if name in needed else ())
                    for name, part in held.items()
                }
            elif word in DEFINITION_KEYWORDS:
                if not self._moves:
                    written[word] = {name: self._write_shape(part, ()) for name, part in held.items()}
            elif word in SCHEMA_MAP_KEYWORDS:
                written[word] = {name: self._write_shape(part) for name, part in held.items()}
            elif word == "required" and endless:
                written[word] = [name for name in held if name not in endless]
            elif word == "const" and not self._dialect.const and "enum" not in schema:
                written["enum"] = [held]
            elif not self._moves or word not in IGNORED_KEYWORDS:
                written[word] = held
        if self._moves:
            self._drop(schema, written, _DYNAMIC_REFERENCES, "refers to a schema that moved")
        self._drop(schema, written, self._recursive_rules(schema), "refers to a schema that was loosened")
        return written

    def _drop(self, schema: SchemaNode, written: dict[str, Any], words: Iterable[str], why: str) -> None:
        for word in words:
            if word in written:
                del written[word]
                self._losses.add(schema.at, word, f"is left out, because it {why}")

    def _recursive_required_fields(self, schema: SchemaNode) -> list[str]:
        """Return the required fields that must become optional because they are recursive."""
        if self._dialect.recursion != "optional":
            return []
        fields = schema.get("properties", {})
        endless = [name for name in schema.get("required", ()) if self._is_recursive(fields.get(name, True))]
        if endless:
            self._cuts += 1
            self._losses.add(schema.at, "required", f"no longer names {endless}: they are recursive")
        return endless

    def _is_recursive(self, schema: Schema) -> bool:
        """Return True if a schema contains one being written, without an optional field in between."""
        if isinstance(schema, bool):
            return False
        if "$ref" in schema:
            leads = {schema["$ref"], *self._source.reachable_definitions(schema["$ref"])}
            if not leads.isdisjoint(self._inside):
                return True
        return any(
            self._is_recursive(part)
            for word, part in iter_children(schema)
            if word != "properties"
            or any(part is schema["properties"].get(it) for it in schema.get("required", ()))
        )

    def _recursive_rules(self, schema: SchemaNode) -> list[str]:
        """Return the constraints that become stricter if something inside them accepts more."""
        if self._dialect.recursion != "optional":
            return []
        endless = [
            word
            for word in ("not", "oneOf", "if")
            for part in (schema.get(word, ()) if word == "oneOf" else [schema.get(word, True)])
            if any(map(self._source.leads_to_cycle, iter_references(part)))
        ]
        return [*endless, "then", "else"] if "if" in endless else endless

    # ── references ──────────────────────────────────────────────────────────

    def _write_reference(self, schema: SchemaNode, written: dict[str, Any]) -> dict[str, Any]:
        place = schema["$ref"]
        beside = {word: held for word, held in written.items() if word != "$ref"}
        if self._dialect.references == "inline" and self._can_inline(place):
            return self._inline_definition(place, beside)
        if self._dialect.recursion == "optional" and self._is_recursive(
            SchemaNode({"$ref": place}, schema.at)
        ):
            self._cuts += 1
            self._losses.add(
                schema.at, "$ref", "is recursive without an optional field; anything is accepted"
            )
            return beside
        reference = {"$ref": self._definition_path(place)}
        constrained = beside.keys() - DEFINITION_KEYWORDS - set(ANNOTATIONS)
        if constrained and self._dialect.beside_reference == "annotations":
            return {"allOf" if "anyOf" in beside else "anyOf": [reference], **beside}
        return {**written, **reference}

    def _can_inline(self, place: str) -> bool:
        if self._source.is_cyclic(place):
            return False
        self._inlined += _count_nodes(self._source.definitions[place])
        if self._inlined > INLINED_SHAPES_MAX:
            self._losses.add(place, "schema", "is too large to be inlined")
        return self._inlined <= INLINED_SHAPES_MAX

    def _inline_definition(self, place: str, beside: dict[str, Any]) -> dict[str, Any]:
        target = self._write_shape(self._source.definitions[place])
        if isinstance(target, bool):
            return beside if target else {"not": {}, **beside}
        if not beside.keys() - set(ANNOTATIONS):
            return {**target, **beside}
        if "allOf" in beside:
            return {**beside, "allOf": [target, *beside["allOf"]]}
        return {"allOf": [target], **beside}

    def _definition_path(self, place: str) -> str:
        if not self._moves:
            return quote(place, safe="#/~!$&'()*+,;=:@?")
        if place not in self._names:
            self._names[place] = definition_name(place, self._names.values())
        return f"#/$defs/{self._names[place]}"


def _count_nodes(schema: Schema) -> int:
    return 1 if isinstance(schema, bool) else 1 + sum(_count_nodes(part) for _, part in iter_children(schema))
