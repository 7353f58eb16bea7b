"""A schema said again in the few words a narrow dialect has.

Each place is taken apart into flat alternatives of one type each (`_schema_merge`), each alternative is
written in the words there are (`_schema_kinds`), and what comes out is put together here: one shape,
one that may be null, or a union of several.

A strict dialect holds the model to the schema.  What it cannot say must therefore not be said tighter:
the schema is `Unfit`, and goes out as not strict.  The exceptions are what nearly everybody leaves out:
an object that names fields and does not mention others is read as having no others, and a shape
without a type as having the type its words are about.  Both are listed.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from ._schema_dialect import SchemaDialect
from ._schema_kinds import NULL, Kinds, Piece
from ._schema_losses import Losses, Unfit
from ._schema_merge import ANNOTATIONS, Alternatives
from ._schema_node import NOISE, Node, Schema, definition_name
from ._schema_source import Source
from ._schema_top import Top
from ._schema_values import OWN_KEYWORDS, hinted_kinds, key_of, kinds_of
from ._schema_words import described, in_words

PLACES_MAX = 1_000
"""Shapes written in one schema; what would come after is only outlined."""
UNROLLED_MAX = 2
"""How often a shape that contains itself is written inside itself, where it cannot be referred to."""
_SCALARS = frozenset({"string", "number", "integer", "boolean"})
_FLAT_WORDS = frozenset(word for words in OWN_KEYWORDS.values() for word in words) | {"type", "enum"}


class NarrowWriter:
    def __init__(self, source: Source, dialect: SchemaDialect, losses: Losses) -> None:
        self._source = source
        self._dialect = dialect
        self._losses = losses
        self._alternatives = Alternatives(source, losses)
        self._kinds = Kinds(dialect, losses, self.place)
        self._names: dict[str, str] = {}
        """Definitions that are referred to, by place, under the names they go out with."""
        self._count = 0

    def document(self, top: Top) -> dict[str, Any]:
        written = self.place(top.node, "#")
        if written is None:
            if self._dialect.strict:
                raise Unfit("#", "schema", "accepts nothing, which cannot be said")
            self._losses.add("#", "schema", "accepts nothing; any object is accepted")
            written = {"type": self._type("object")}
        defined: dict[str, Any] = {}
        while len(defined) < len(self._names):
            place, name = list(self._names.items())[len(defined)]
            held = self.place(self._source.definitions[place], place)
            if held is None:
                raise Unfit(place, "schema", "accepts nothing, which cannot be said")
            defined[name] = held
        return {**written, "$defs": defined} if defined else written

    def place(
        self, schema: Schema, at: str, opened: tuple[str, ...] = (), *, optional: bool = False
    ) -> dict[str, Any] | None:
        """What is written for one place; None when no value fits it.  `optional`: null fits as well."""
        self._count += 1
        pieces = self._pieces(Node({}, at) if schema is True else schema, opened)
        if not pieces:
            return None
        if optional and NULL not in pieces:
            pieces = [*pieces, NULL]
        return self._united(pieces, schema if isinstance(schema, Node) else Node({}, "#"))

    # ── apart ───────────────────────────────────────────────────────────────

    def _pieces(self, schema: Schema, opened: tuple[str, ...]) -> list[Piece]:
        if isinstance(schema, bool):
            return self._anything("#") if schema else []
        bare = schema.without(*ANNOTATIONS, *NOISE)
        if (
            self._dialect.references == "shared"
            and (kept := self._referring(bare, schema, opened)) is not None
        ):
            return kept
        crossed = self._crossed(bare, {})
        if self._count > PLACES_MAX or any(opened.count(place) >= UNROLLED_MAX for place in crossed):
            return self._outline(bare)
        opened = (*opened, *crossed)
        return _distinct(piece for flat in self._alternatives.of(bare) for piece in self._typed(flat, opened))

    def _referring(self, bare: Node, schema: Node, opened: tuple[str, ...]) -> list[Piece] | None:
        """The pieces of a shape that is nothing but references and alternatives; None for any other."""
        words = list(bare)
        # A description of its own cannot stand beside a reference, so the shape is written out with it.
        annotated = "description" in schema or "default" in schema
        if words == ["$ref"]:
            place = bare["$ref"]
            if self._source.is_cyclic(place):
                if self._dialect.recursion == "none":
                    raise Unfit(schema.at, "$ref", "makes the schema contain itself")
                return [self._reference(place)]
            return None if annotated else [self._reference(place)]
        if words == ["allOf"] and len(bare["allOf"]) == 1:
            (part,) = bare["allOf"]
            said = {word: schema[word] for word in ("description", "default") if annotated and word in schema}
            return self._pieces(Node({**part, **said}, part.at) if isinstance(part, Node) else part, opened)
        if words not in (["anyOf"], ["oneOf"]):
            return None
        parts: Sequence[Schema] = bare[words[0]]
        if words == ["oneOf"]:
            self._alternatives.loosen(
                [flat for part in parts for flat in self._alternatives.of(part)], bare.at
            )
        plain = [part for part in parts if isinstance(part, bool) or "$ref" not in part]
        # The second word keeps it from coming back here.
        found = self._pieces(Node({"anyOf": plain, "allOf": [True]}, bare.at), opened) if plain else []
        for part in parts:
            if isinstance(part, Node) and "$ref" in part:
                found = [*found, *self._pieces(part, opened)]
        return _distinct(found)

    def _reference(self, place: str) -> Piece:
        if place not in self._names:
            self._names[place] = definition_name(place, self._names.values())
        return Piece({"$ref": f"#/$defs/{self._names[place]}"})

    def _crossed(self, schema: Schema, found: dict[str, None]) -> dict[str, None]:
        """The definitions a shape stands for, at this place itself and not further in."""
        if isinstance(schema, bool):
            return found
        if (place := schema.get("$ref")) is not None and place not in found:
            found[place] = None
            self._crossed(self._source.definitions[place], found)
        for word in ("allOf", "anyOf", "oneOf"):
            for part in schema.get(word, ()):
                self._crossed(part, found)
        return found

    def _outline(self, schema: Node) -> list[Piece]:
        """No more than the types of a shape that cannot be written out to its end."""
        if self._dialect.strict:
            raise Unfit(schema.at, "schema", "cannot be written out to its end")
        self._losses.add(schema.at, "$ref", "leads on without end; only the type is said from here on")
        kinds = dict.fromkeys(kind for flat in self._alternatives.of(schema) for kind in kinds_of(flat))
        return [self._kinds.outline(kind) for kind in kinds] or self._anything(schema.at)

    def _typed(self, flat: Node, opened: tuple[str, ...]) -> Iterable[Piece]:
        kinds = kinds_of(flat)
        if not kinds and ("enum" in flat or "type" in flat):
            return []
        if not kinds:
            kinds = hinted_kinds(flat)
            if not kinds:
                return self._anything(flat.at, flat)
            self._losses.add(flat.at, "type", f"was left out; read as {' or '.join(kinds)}")
        notes = self._unsaid(flat)
        made = [self._kinds.written(kind, flat, opened) for kind in kinds]
        return [
            piece if piece is NULL else piece._replace(notes=(*piece.notes, *notes))
            for piece in made
            if piece is not None
        ]

    def _unsaid(self, flat: Node) -> tuple[str, ...]:
        """Notes on the words that belong to no type and are in no narrow dialect."""
        notes = []
        for word, held in flat.items():
            if word in _FLAT_WORDS or word in ANNOTATIONS or word in NOISE or word.startswith("x-"):
                continue
            self._losses.add(flat.at, word, "is left out")
            if word in ("not", "if", "then", "else"):
                notes.append(in_words(word, held))
        return tuple(notes)

    def _anything(self, at: str, flat: Node | None = None) -> list[Piece]:
        if self._dialect.strict:
            raise Unfit(at, "type", "is left out and anything is accepted, which cannot be said")
        self._losses.add(at, "type", "was left out; lists of lists of lists cannot be written")
        first, *others = self._kinds.anything()
        return [first._replace(notes=self._unsaid(flat) if flat is not None else ()), *others]

    # ── together ────────────────────────────────────────────────────────────

    def _united(self, pieces: Sequence[Piece], own: Node) -> dict[str, Any]:
        shapes = [piece for piece in pieces if piece is not NULL]
        nullable = len(shapes) < len(pieces)
        kept, notes = self._annotations(own)
        text = str(own.get("description", ""))
        if not shapes:
            return self._only_null(own.at, kept, described(text, notes))
        if self._dialect.types == "upper":
            return self._united_upper(shapes, kept, text, notes, nullable=nullable)
        if len(shapes) == 1 and (single := self._single(shapes[0], nullable=nullable)) is not None:
            words = described(text or shapes[0].text, (*shapes[0].notes, *notes))
            if "$ref" in single:
                return {"anyOf": [single], **kept, "description": words} if words else single
            return {**single, **kept, "description": words} if words else {**single, **kept}
        union: dict[str, Any] = {"anyOf": [self._branch(piece) for piece in shapes], **kept}
        if nullable:
            union["anyOf"].append({"type": "null"})
        words = described(text, notes)
        return {**union, "description": words} if words else union

    def _united_upper(
        self,
        shapes: Sequence[Piece],
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
            # Nothing may stand beside a union, so what is said of all of it is said of its first member.
            first = first._replace(
                text=" ".join(filter(None, (text, first.text))), notes=(*first.notes, *notes)
            )
        branches = [self._branch(piece) for piece in (first, *shapes[1:])]
        if nullable:
            branches[0]["nullable"] = True
        return {**branches[0], **kept} if len(branches) == 1 else {"anyOf": branches}

    def _single(self, piece: Piece, *, nullable: bool) -> dict[str, Any] | None:
        """One shape, with null if wanted; None when only a union can say both."""
        members = dict(piece.members)
        if not nullable:
            return members
        if members.get("type") not in _SCALARS:
            return None
        members["type"] = [members["type"], "null"]
        if "enum" in members:
            members["enum"] = [*members["enum"], None]
        return members

    def _branch(self, piece: Piece) -> dict[str, Any]:
        members = dict(piece.members)
        if "type" in members:
            members["type"] = self._type(members["type"])
        words = described(piece.text, piece.notes)
        if "$ref" in members or not words:
            return members
        return {**members, "description": words}

    def _only_null(self, at: str, kept: dict[str, Any], words: str) -> dict[str, Any]:
        written: dict[str, Any] = {"type": "null"}
        if self._dialect.types == "upper":
            self._losses.add(at, "type", "null became a string that may be null")
            written = {"type": "STRING", "nullable": True}
        written.update(kept)
        return {**written, "description": words} if words else written

    def _annotations(self, own: Node) -> tuple[dict[str, Any], tuple[str, ...]]:
        kept: dict[str, Any] = {}
        notes = []
        for word in ("title", "default", "examples"):
            if word not in own:
                continue
            if word in self._dialect.keywords:
                kept[word] = own[word]
            elif word != "title":
                self._losses.add(own.at, word, "is only said in the description")
                notes.append(in_words(word, own[word]))
        return kept, tuple(notes)

    def _type(self, kind: str) -> str:
        return kind.upper() if self._dialect.types == "upper" else kind


def _distinct(pieces: Iterable[Piece]) -> list[Piece]:
    found = list(pieces)
    if len(found) < 2:
        return found  # the usual case; telling shapes apart costs as much as they are large
    return list({key_of([piece.members, piece.text, piece.notes]): piece for piece in found}.values())
