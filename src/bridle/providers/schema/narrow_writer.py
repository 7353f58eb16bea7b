"""Rewrites a schema with the few keywords of a narrow dialect.

Each schema is split into flat alternatives of one type each (combine.py), each alternative is written with
the keywords available (typed_shapes.py), and the results are combined here: one schema, one that may be null,
or a union.

A strict dialect enforces the schema on the model, so a rewrite must not forbid values that the source allows:
such a schema raises `UnfitSchema` and is sent as not strict. Two common omissions are exceptions: an object
that names fields and does not mention others is read as having no others, and a schema without a type gets
the type its keywords apply to. Both are recorded as losses.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from .combine import ANNOTATIONS, SchemaAlternatives
from .descriptions import append_notes, describe_rule
from .dialect import SchemaDialect
from .losses import SchemaLosses, UnfitSchema
from .node import IGNORED_KEYWORDS, Schema, SchemaNode, definition_name
from .root import SchemaRoot
from .source import SchemaSource
from .typed_shapes import NULL_PIECE, SchemaPiece, TypeWriter
from .values import KEYWORDS_BY_TYPE, declared_types, implied_types, value_key

SHAPES_MAX = 1_000
"""Subschemas written for one schema; further ones are reduced to their types."""
UNROLL_DEPTH_MAX = 2
"""Times a recursive schema is written inside itself, in dialects without references."""
_SCALARS = frozenset({"string", "number", "integer", "boolean"})
_FLAT_WORDS = frozenset(word for words in KEYWORDS_BY_TYPE.values() for word in words) | {"type", "enum"}


class NarrowWriter:
    def __init__(self, source: SchemaSource, dialect: SchemaDialect, losses: SchemaLosses) -> None:
        self._source = source
        self._dialect = dialect
        self._losses = losses
        self._alternatives = SchemaAlternatives(source, losses)
        self._kinds = TypeWriter(dialect, losses, self.write_place)
        self._names: dict[str, str] = {}
        """Names of the definitions that are referred to, by location."""
        self._count = 0

    def write_document(self, top: SchemaRoot) -> dict[str, Any]:
        written = self.write_place(top.node, "#")
        if written is None:
            if self._dialect.strict:
                raise UnfitSchema("#", "schema", "accepts nothing, which cannot be expressed")
            self._losses.add("#", "schema", "accepts nothing; any object is accepted")
            written = {"type": self._type_name("object")}
        defined: dict[str, Any] = {}
        while len(defined) < len(self._names):
            place, name = list(self._names.items())[len(defined)]
            held = self.write_place(self._source.definitions[place], place)
            if held is None:
                raise UnfitSchema(place, "schema", "accepts nothing, which cannot be expressed")
            defined[name] = held
        return {**written, "$defs": defined} if defined else written

    def write_place(
        self, schema: Schema, at: str, opened: tuple[str, ...] = (), *, optional: bool = False
    ) -> dict[str, Any] | None:
        """Write the schema of one location; None if no value matches it. `optional`: null matches as well."""
        self._count += 1
        pieces = self._write_alternatives(SchemaNode({}, at) if schema is True else schema, opened)
        if not pieces:
            return None
        if optional and NULL_PIECE not in pieces:
            pieces = [*pieces, NULL_PIECE]
        return self._write_union(pieces, schema if isinstance(schema, SchemaNode) else SchemaNode({}, "#"))

    # ── splitting ───────────────────────────────────────────────────────────

    def _write_alternatives(self, schema: Schema, opened: tuple[str, ...]) -> list[SchemaPiece]:
        if isinstance(schema, bool):
            return self._write_anything("#") if schema else []
        bare = schema.without(*ANNOTATIONS, *IGNORED_KEYWORDS)
        if (
            self._dialect.references == "shared"
            and (kept := self._write_references(bare, schema, opened)) is not None
        ):
            return kept
        crossed = self._collect_references(bare, {})
        if self._count > SHAPES_MAX or any(opened.count(place) >= UNROLL_DEPTH_MAX for place in crossed):
            return self._write_outline(bare)
        opened = (*opened, *crossed)
        return _remove_duplicates(
            piece for flat in self._alternatives.expand(bare) for piece in self._write_types(flat, opened)
        )

    def _write_references(
        self, bare: SchemaNode, schema: SchemaNode, opened: tuple[str, ...]
    ) -> list[SchemaPiece] | None:
        """Return the pieces of a schema made only of references and alternatives; None for any other."""
        words = list(bare)
        # A description cannot accompany a reference, so the schema is written out with it.
        annotated = "description" in schema or "default" in schema
        if words == ["$ref"]:
            place = bare["$ref"]
            if self._source.is_cyclic(place):
                if self._dialect.recursion == "none":
                    raise UnfitSchema(schema.at, "$ref", "makes the schema contain itself")
                return [self._write_reference(place)]
            return None if annotated else [self._write_reference(place)]
        if words == ["allOf"] and len(bare["allOf"]) == 1:
            (part,) = bare["allOf"]
            annotations = {
                word: schema[word] for word in ("description", "default") if annotated and word in schema
            }
            return self._write_alternatives(
                SchemaNode({**part, **annotations}, part.at) if isinstance(part, SchemaNode) else part, opened
            )
        if words not in (["anyOf"], ["oneOf"]):
            return None
        parts: Sequence[Schema] = bare[words[0]]
        if words == ["oneOf"]:
            self._alternatives.record_one_of_loss(
                [flat for part in parts for flat in self._alternatives.expand(part)], bare.at
            )
        plain = [part for part in parts if isinstance(part, bool) or "$ref" not in part]
        # The extra keyword prevents this branch from being taken again.
        found = (
            self._write_alternatives(SchemaNode({"anyOf": plain, "allOf": [True]}, bare.at), opened)
            if plain
            else []
        )
        for part in parts:
            if isinstance(part, SchemaNode) and "$ref" in part:
                found = [*found, *self._write_alternatives(part, opened)]
        return _remove_duplicates(found)

    def _write_reference(self, place: str) -> SchemaPiece:
        if place not in self._names:
            self._names[place] = definition_name(place, self._names.values())
        return SchemaPiece({"$ref": f"#/$defs/{self._names[place]}"})

    def _collect_references(self, schema: Schema, found: dict[str, None]) -> dict[str, None]:
        """Collect the definitions that apply to the value of a schema itself, not to its fields or items."""
        if isinstance(schema, bool):
            return found
        if (place := schema.get("$ref")) is not None and place not in found:
            found[place] = None
            self._collect_references(self._source.definitions[place], found)
        for word in ("allOf", "anyOf", "oneOf"):
            for part in schema.get(word, ()):
                self._collect_references(part, found)
        return found

    def _write_outline(self, schema: SchemaNode) -> list[SchemaPiece]:
        """Write only the types of a schema that cannot be written out completely."""
        if self._dialect.strict:
            raise UnfitSchema(schema.at, "schema", "cannot be written out to its end")
        self._losses.add(schema.at, "$ref", "is recursive; only the type is written from here on")
        kinds = dict.fromkeys(
            kind for flat in self._alternatives.expand(schema) for kind in declared_types(flat)
        )
        return [self._kinds.write_outline(kind) for kind in kinds] or self._write_anything(schema.at)

    def _write_types(self, flat: SchemaNode, opened: tuple[str, ...]) -> Iterable[SchemaPiece]:
        kinds = declared_types(flat)
        if not kinds and ("enum" in flat or "type" in flat):
            return []
        if not kinds:
            kinds = implied_types(flat)
            if not kinds:
                return self._write_anything(flat.at, flat)
            self._losses.add(flat.at, "type", f"was left out; read as {' or '.join(kinds)}")
        notes = self._describe_unsupported(flat)
        made = [self._kinds.write_type(kind, flat, opened) for kind in kinds]
        return [
            piece if piece is NULL_PIECE else piece._replace(notes=(*piece.notes, *notes))
            for piece in made
            if piece is not None
        ]

    def _describe_unsupported(self, flat: SchemaNode) -> tuple[str, ...]:
        """Describe the keywords that belong to no type and that no narrow dialect has."""
        notes = []
        for word, held in flat.items():
            if (
                word in _FLAT_WORDS
                or word in ANNOTATIONS
                or word in IGNORED_KEYWORDS
                or word.startswith("x-")
            ):
                continue
            self._losses.add(flat.at, word, "is left out")
            if word in ("not", "if", "then", "else"):
                notes.append(describe_rule(word, held))
        return tuple(notes)

    def _write_anything(self, at: str, flat: SchemaNode | None = None) -> list[SchemaPiece]:
        if self._dialect.strict:
            raise UnfitSchema(at, "type", "is left out and anything is accepted, which cannot be expressed")
        self._losses.add(at, "type", "was left out; lists of lists of lists cannot be written")
        first, *others = self._kinds.write_anything()
        return [first._replace(notes=self._describe_unsupported(flat) if flat is not None else ()), *others]

    # ── combining ───────────────────────────────────────────────────────────

    def _write_union(self, pieces: Sequence[SchemaPiece], own: SchemaNode) -> dict[str, Any]:
        shapes = [piece for piece in pieces if piece is not NULL_PIECE]
        nullable = len(shapes) < len(pieces)
        kept, notes = self._split_annotations(own)
        text = str(own.get("description", ""))
        if not shapes:
            return self._write_null(own.at, kept, append_notes(text, notes))
        if self._dialect.types == "upper":
            return self._write_upper_union(shapes, kept, text, notes, nullable=nullable)
        if len(shapes) == 1 and (single := self._write_nullable(shapes[0], nullable=nullable)) is not None:
            description = append_notes(text or shapes[0].text, (*shapes[0].notes, *notes))
            if "$ref" in single:
                return {"anyOf": [single], **kept, "description": description} if description else single
            return {**single, **kept, "description": description} if description else {**single, **kept}
        union: dict[str, Any] = {"anyOf": [self._write_branch(piece) for piece in shapes], **kept}
        if nullable:
            union["anyOf"].append({"type": "null"})
        description = append_notes(text, notes)
        return {**union, "description": description} if description else union

    def _write_upper_union(
        self,
        shapes: Sequence[SchemaPiece],
        kept: dict[str, Any],
        text: str,
        notes: tuple[str, ...],
        *,
        nullable: bool,
    ) -> dict[str, Any]:
        first = shapes[0]
        if len(shapes) == 1:
            first = first._replace(text=text or first.text, notes=(*first.notes, *notes))
        elif text or notes:
            # A union may have no other keyword, so its description goes to its first member.
            first = first._replace(
                text=" ".join(filter(None, (text, first.text))), notes=(*first.notes, *notes)
            )
        branches = [self._write_branch(piece) for piece in (first, *shapes[1:])]
        if nullable:
            branches[0]["nullable"] = True
        return {**branches[0], **kept} if len(branches) == 1 else {"anyOf": branches}

    def _write_nullable(self, piece: SchemaPiece, *, nullable: bool) -> dict[str, Any] | None:
        """Write one schema, with null if wanted; None if that takes a union."""
        members = dict(piece.members)
        if not nullable:
            return members
        if members.get("type") not in _SCALARS:
            return None
        members["type"] = [members["type"], "null"]
        if "enum" in members:
            members["enum"] = [*members["enum"], None]
        return members

    def _write_branch(self, piece: SchemaPiece) -> dict[str, Any]:
        members = dict(piece.members)
        if "type" in members:
            members["type"] = self._type_name(members["type"])
        description = append_notes(piece.text, piece.notes)
        if "$ref" in members or not description:
            return members
        return {**members, "description": description}

    def _write_null(self, at: str, kept: dict[str, Any], description: str) -> dict[str, Any]:
        written: dict[str, Any] = {"type": "null"}
        if self._dialect.types == "upper":
            self._losses.add(at, "type", "null became a string that may be null")
            written = {"type": "STRING", "nullable": True}
        written.update(kept)
        return {**written, "description": description} if description else written

    def _split_annotations(self, own: SchemaNode) -> tuple[dict[str, Any], tuple[str, ...]]:
        kept: dict[str, Any] = {}
        notes = []
        for word in ("title", "default", "examples"):
            if word not in own:
                continue
            if word in self._dialect.keywords:
                kept[word] = own[word]
            elif word != "title":
                self._losses.add(own.at, word, "is only in the description")
                notes.append(describe_rule(word, own[word]))
        return kept, tuple(notes)

    def _type_name(self, kind: str) -> str:
        return kind.upper() if self._dialect.types == "upper" else kind


def _remove_duplicates(pieces: Iterable[SchemaPiece]) -> list[SchemaPiece]:
    found = list(pieces)
    if len(found) < 2:
        return found  # the usual case; comparing large schemas is expensive
    return list({value_key([piece.members, piece.text, piece.notes]): piece for piece in found}.values())
