"""Writes flat schemas of one type: strings, numbers, arrays, objects.

A keyword the dialect has is kept. A keyword it lacks is replaced by an equivalent one; if there is none, the
constraint goes into the description and is recorded as a loss.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from .combine import NARROWED_NOTE, ObjectFields, fields_of, unite
from .descriptions import describe_rule
from .dialect import SchemaDialect
from .losses import SchemaLosses, UnfitSchema, abbreviate_json
from .node import Schema, SchemaNode, escape_pointer_step
from .values import KEYWORDS_BY_TYPE, has_type

_STRUCTURE_KEYWORDS = frozenset({"properties", "required", "items", "prefixItems", "maxItems"})
"""Keywords that are written together with their subschemas."""
_REDUNDANT_KEYWORDS = frozenset({"uniqueItems", "minLength", "minItems", "minProperties"})
"""Keywords without effect if their value is false or 0."""
_INCLUSIVE_BOUNDS = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}


class SchemaPiece(NamedTuple):
    """One alternative of a schema as it will be written, with its description and notes."""

    members: dict[str, Any]
    text: str = ""
    notes: tuple[str, ...] = ()


NULL_PIECE = SchemaPiece({"type": "null"})


class PlaceWriter(Protocol):
    def __call__(
        self, schema: Schema, at: str, opened: tuple[str, ...] = (), *, optional: bool = False
    ) -> dict[str, Any] | None: ...


class TypeWriter:
    def __init__(self, dialect: SchemaDialect, losses: SchemaLosses, place: PlaceWriter) -> None:
        self._dialect = dialect
        self._losses = losses
        self._place = place

    def write_type(self, kind: str, flat: SchemaNode, opened: tuple[str, ...]) -> SchemaPiece | None:
        """Write the schema for one type; None if no value of that type matches it."""
        if kind == "null":
            return NULL_PIECE
        draft = _PieceDraft(self, kind, flat)
        if "enum" in flat:
            draft.set_values([value for value in flat["enum"] if has_type(value, kind)])
        for word in KEYWORDS_BY_TYPE[kind]:
            if word in flat and word not in _STRUCTURE_KEYWORDS:
                draft.keep(word, flat[word])
        if kind == "array" and not self._write_array(draft, opened):
            return None
        if kind == "object" and not self._write_object(draft, opened):
            return None
        return SchemaPiece(draft.members, str(flat.get("description", "")), tuple(draft.notes))

    def write_outline(self, kind: str) -> SchemaPiece:
        if kind == "null":
            return NULL_PIECE
        return SchemaPiece(
            {"type": kind, "items": self._write_anything(1)} if kind == "array" else {"type": kind}
        )

    def write_anything(self) -> list[SchemaPiece]:
        """Return one piece for every type, for a schema that accepts anything."""
        several = {"type": "array", "items": self._write_anything(1)}
        return [*(SchemaPiece({"type": kind}) for kind in _SIMPLE_TYPES), SchemaPiece(several), NULL_PIECE]

    def _write_anything(self, levels: int) -> dict[str, Any]:
        upper = self._dialect.types == "upper"
        branches: list[dict[str, Any]] = [{"type": kind.upper() if upper else kind} for kind in _SIMPLE_TYPES]
        if levels:
            branches.append(
                {"type": "ARRAY" if upper else "array", "items": self._write_anything(levels - 1)}
            )
        if upper:
            branches[0]["nullable"] = True
        else:
            branches.append({"type": "null"})
        return {"anyOf": branches}

    # ── arrays ──────────────────────────────────────────────────────────────

    def _write_array(self, draft: "_PieceDraft", opened: tuple[str, ...]) -> bool:
        flat = draft.flat
        prefix: Sequence[Schema] = flat.get("prefixItems", [])
        rest: Schema = flat.get("items", True)
        max_items = flat.get("maxItems")
        if rest is False:
            max_items = len(prefix) if max_items is None else min(max_items, len(prefix))
        reachable = prefix if max_items is None else prefix[:max_items]
        ends = max_items is not None and max_items <= len(prefix)
        if prefix and self._dialect.tuples == "unfit":
            raise UnfitSchema(
                flat.at, "prefixItems", "gives each position its own schema, which cannot be expressed"
            )
        if prefix:
            self._losses.add(flat.at, "prefixItems", "became items: each may match any of them")
        items = unite([*reachable] if ends else [*reachable, rest], flat.at, empty=False)
        written = self._place(items, f"{flat.at}/items", opened) if items is not False else None
        if written is None:
            if flat.get("minItems", 0):
                return False
            written, max_items = self._default_items(), 0
        draft.members["items"] = written
        if max_items is not None:
            draft.keep("maxItems", max_items)
        return True

    def _default_items(self) -> dict[str, Any]:
        """Schema for the items of an array that never has any."""
        return {"type": "STRING" if self._dialect.types == "upper" else "string"}

    # ── objects ─────────────────────────────────────────────────────────────

    def _write_object(self, draft: "_PieceDraft", opened: tuple[str, ...]) -> bool:
        flat, dialect, fields = draft.flat, self._dialect, fields_of(draft.flat)
        needed: Sequence[str] = flat.get("required", [])
        properties: dict[str, Any] = {}
        if dialect.closed:
            self._close_object(flat, fields)
        for name, held in fields.named.items():
            at = f"{flat.at}/properties/{escape_pointer_step(name)}"
            by_null = dialect.all_required and name not in needed
            written = self._place(held, at, opened, optional=by_null)
            if written is not None:
                properties[name] = written
                if by_null:
                    self._losses.add(at, "required", "now includes it; null means that it is omitted")
            elif name in needed:
                return False
            elif fields.rest is not False and not dialect.closed:
                self._losses.add(
                    at, "schema", "accepts nothing, which cannot be expressed; the field is left out"
                )
        unnamed = [name for name in needed if name not in fields.named]
        if unnamed:
            if fields.rest is False and not fields.patterns:
                return False
            if dialect.closed:
                raise UnfitSchema(
                    flat.at, "required", f"names {abbreviate_json(unnamed[0])}, which has no schema"
                )
            self._losses.add(
                flat.at, "required", f"no longer names {abbreviate_json(unnamed)}, which have no schema"
            )
            draft.notes.append(describe_rule("required", unnamed))
        members = draft.members
        if properties or dialect.empty_properties:
            members["properties"] = properties
        required = [name for name in properties if dialect.all_required or name in needed]
        if required or dialect.all_required:
            members["required"] = required
        if dialect.closed:
            members["additionalProperties"] = False
        if len(properties) > 1 and "propertyOrdering" in dialect.keywords:
            members["propertyOrdering"] = list(properties)
        return True

    def _close_object(self, flat: SchemaNode, fields: ObjectFields) -> None:
        if fields.patterns:
            raise UnfitSchema(flat.at, "patternProperties", "accepts fields it does not name")
        if fields.rest is False:
            return
        if not fields.silent:
            raise UnfitSchema(flat.at, "additionalProperties", "accepts fields that are not named")
        self._losses.add(flat.at, "additionalProperties", f"was left out and is now false: {NARROWED_NOTE}")

    # ── for drafts ──────────────────────────────────────────────────────────

    @property
    def dialect(self) -> SchemaDialect:
        return self._dialect

    @property
    def losses(self) -> SchemaLosses:
        return self._losses


class _PieceDraft:
    """A piece under construction."""

    def __init__(self, kinds: TypeWriter, kind: str, flat: SchemaNode) -> None:
        self.kind = kind
        self.flat = flat
        self.members: dict[str, Any] = {"type": kind}
        self.notes: list[str] = []
        self._dialect = kinds.dialect
        self._losses = kinds.losses

    def keep(self, word: str, value: Any) -> None:
        dialect = self._dialect
        if word in ("additionalProperties", "patternProperties"):
            if not dialect.closed and value is not True:
                self.drop(word, value)
        elif word in _REDUNDANT_KEYWORDS and not value:
            pass
        elif word in _INCLUSIVE_BOUNDS and word not in dialect.keywords:
            self._make_inclusive(word, value)
        elif word == "minItems" and dialect.min_items_max is not None and value > dialect.min_items_max:
            self.members[word] = dialect.min_items_max
            self.drop(word, value, f"{value} became {dialect.min_items_max}")
        elif (
            word not in dialect.keywords
            or (word == "format" and not dialect.takes_format(self.kind, value))
            or (word == "pattern" and not dialect.takes_pattern(value))
        ):
            self.drop(word, value)
        else:
            self._keep_tighter_bound(word, value)

    def set_values(self, values: list[Any]) -> None:
        """Write the allowed values, in the description if the dialect cannot express them."""
        if self.kind == "boolean" and len(set(map(bool, values))) == 2:
            return
        enums = self._dialect.enums
        is_container = self.kind in ("array", "object")
        nonempty_texts = self.kind == "string" and all(values)  # the dialect refuses an empty string
        if not is_container and (enums != "strings" or nonempty_texts):
            self.members["enum"] = values
            return
        if enums == "strings" and self.kind in ("number", "integer"):
            low, high = min(values), max(values)
            self._keep_tighter_bound("minimum", low)
            self._keep_tighter_bound("maximum", high)
            if self.kind == "integer" and set(values) == set(range(int(low), int(high) + 1)):
                return
        self.drop("enum", values)

    def drop(self, word: str, value: Any, became: str = "") -> None:
        note = describe_rule(word, value)
        self.notes.append(note)
        became = became or f"{abbreviate_json(value)} cannot be expressed"
        self._losses.add(
            self.flat.at, word, f"{became}; {'moved to the description' if note else 'left out'}"
        )

    def _make_inclusive(self, word: str, value: float) -> None:
        """Write an exclusive bound in a dialect that has only inclusive ones."""
        low = word == "exclusiveMinimum"
        if self.kind == "integer":
            self._keep_tighter_bound(
                _INCLUSIVE_BOUNDS[word], math.floor(value) + 1 if low else math.ceil(value) - 1
            )
            return
        if _INCLUSIVE_BOUNDS[word] in self._dialect.keywords:
            self._keep_tighter_bound(_INCLUSIVE_BOUNDS[word], value)
        self.drop(word, value)

    def _keep_tighter_bound(self, word: str, value: Any) -> None:
        """Keep a keyword; of two lower bounds the higher, of two upper bounds the lower."""
        if word not in self._dialect.keywords:
            self.drop(word, value)
        elif word not in self.members:
            self.members[word] = value
        else:
            choose = max if word.startswith("min") else min
            self.members[word] = choose(self.members[word], value)


_SIMPLE_TYPES = ("string", "number", "boolean", "object")
