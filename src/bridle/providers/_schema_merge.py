"""Shapes combined: both at once (`meet`), and either of several (`join`).

`Alternatives` takes a shape apart into flat ones: none of them refers, none is composed of others, and
a value fits the shape exactly when it fits one of them, but for listed losses, which only ever let
more through.  `allOf`, `$ref` with words beside it, and `anyOf` beside other words all come out of
this one place; writers need to know none of them.

`join` is the step that costs something: one object instead of several, for tops that may not be a
union.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from ._schema_losses import Losses, shown
from ._schema_node import DEFINING, Node, Schema
from ._schema_source import Source
from ._schema_values import is_of, key_of, kinds_of

ALTERNATIVES_MAX = 64
"""More are not worth their tokens; the rule that would bring them is left out instead."""
_COMBINING = frozenset({"allOf", "anyOf", "oneOf", "$ref"}) | DEFINING
ANNOTATIONS = ("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly")
NARROWED = "only the named fields can be written"
"""How every loss ends that forbids something: fields that an object allowed by not mentioning them."""


class Alternatives:
    def __init__(self, source: Source, losses: Losses) -> None:
        self._source = source
        self._losses = losses
        self._known: dict[str, list[Node]] = {}

    def of(self, schema: Schema) -> list[Node]:
        """Flat shapes, one of which every value of the schema fits; none when nothing fits it."""
        if isinstance(schema, bool):
            return [Node({}, "#")] if schema else []
        found = [_flat(schema)]
        for part in schema.get("allOf", ()):
            found = self._each(found, self.of(part), schema, "allOf")
        if "$ref" in schema:
            found = self._each(found, self._defined(schema["$ref"]), schema, "$ref")
        for keyword in ("anyOf", "oneOf"):
            if keyword not in schema:
                continue
            options = [flat for part in schema[keyword] for flat in self.of(part)]
            if keyword == "oneOf":
                self.loosen(options, schema.at)
            found = self._each(found, _gathered(options), schema, keyword)
        return self._settled(found, schema)

    def loosen(self, options: Sequence[Node], at: str) -> None:
        """Take "exactly one of" for "any of", which is a loss unless no value can fit two."""
        if not _apart(options):
            self._losses.add(at, "oneOf", "became anyOf: more than one may fit")

    def _defined(self, place: str) -> list[Node]:
        # Without this, definitions that each use the next one twice would take forever.
        if place not in self._known:
            self._known[place] = self.of(self._source.definitions[place])
        return self._known[place]

    def _each(self, some: list[Node], others: list[Node], schema: Node, keyword: str) -> list[Node]:
        if len(some) * len(others) > ALTERNATIVES_MAX:
            self._losses.add(schema.at, keyword, f"has more than {ALTERNATIVES_MAX} combinations; left out")
            return some
        return [met for one in some for other in others if (met := self._meet(one, other)) is not None]

    def _settled(self, found: list[Node], schema: Node) -> list[Node]:
        """`unevaluated…` looks at all that was combined, so its turn is when that is done."""
        if "unevaluatedItems" in schema:
            if any("items" not in flat for flat in found) and schema["unevaluatedItems"] is not True:
                self._losses.add(schema.at, "unevaluatedItems", "is left out")
            found = [flat.without("unevaluatedItems") for flat in found]
        if "unevaluatedProperties" not in schema:
            return found
        rest = schema["unevaluatedProperties"]
        unclear = ("patternProperties", "if", "then", "else", "dependentSchemas")
        if rest is not True and any(word in flat for flat in found for word in unclear):
            self._losses.add(schema.at, "unevaluatedProperties", "is left out, and any field is accepted")
            rest = True
        # A value may fit several alternatives and have the fields of each.
        names = dict.fromkeys(name for flat in found for name in flat.get("properties", {}))
        closed = []
        for flat in found:
            bare = flat.without("unevaluatedProperties")
            if "additionalProperties" not in bare:
                known = bare.get("properties", {})
                bare["properties"] = {**known, **{name: True for name in names if name not in known}}
                bare["additionalProperties"] = rest
            closed.append(bare)
        return closed

    # ── both at once ────────────────────────────────────────────────────────

    def _meet(self, one: Node, other: Node) -> Node | None:
        """What fits both; None when nothing can."""
        met = Node({**one, **{word: held for word, held in other.items() if word not in one}}, one.at)
        for keyword in [word for word in one if word in other]:
            if keyword in ANNOTATIONS or key_of(one[keyword]) == key_of(other[keyword]):
                continue
            rule = _MEETS.get(keyword)
            if rule is not None and (both := rule(one[keyword], other[keyword])) is not None:
                met[keyword] = both
            elif keyword not in _GROUPED:
                self._losses.add(other.at, keyword, "cannot be joined with another of its kind; left out")
        self._meet_fields(one, other, met)
        _meet_items(one, other, met)
        for group in _GROUPS:
            if any(word in one for word in group) and any(word in other for word in group):
                if key_of([one.get(word) for word in group]) != key_of([other.get(word) for word in group]):
                    self._losses.add(
                        other.at, group[0], "cannot be joined with another of its kind; left out"
                    )
                for word in group:
                    if word in met and word not in one:
                        del met[word]
        impossible = met.get("type") == [] or met.get("enum") == []
        return None if impossible or any(_is_never(met, name) for name in met.get("required", ())) else met

    def _meet_fields(self, one: Node, other: Node, met: Node) -> None:
        first, second = fields_of(one), fields_of(other)
        if not (first.given and second.given):
            return
        for mine, theirs, at in ((first, second, one.at), (second, first, other.at)):
            if mine.rest is not True and (theirs.patterns or (mine.patterns and theirs.named)):
                self._losses.add(
                    at, "additionalProperties", "cannot be joined with patternProperties; let loose"
                )
        names = dict.fromkeys((*first.named, *second.named))
        named = {name: both(first.of(name), second.of(name)) for name in names}
        patterns = {
            pattern: both(first.patterns.get(pattern, True), second.patterns.get(pattern, True))
            for pattern in dict.fromkeys((*first.patterns, *second.patterns))
        }
        loose = (first.rest is not True and second.patterns) or (second.rest is not True and first.patterns)
        rest = True if loose else both(first.rest, second.rest)
        for keyword, held in (("properties", named), ("patternProperties", patterns)):
            if held:
                met[keyword] = held
        if "additionalProperties" in met:
            met["additionalProperties"] = rest

    # ── either of several ───────────────────────────────────────────────────

    def join(self, flats: Sequence[Node], at: str) -> Node:
        """One object for all that fit any of these objects."""
        if len(flats) == 1:
            return flats[0]
        several = [fields_of(flat) for flat in flats]
        names = dict.fromkeys(name for fields in several for name in fields.named)
        named: dict[str, Schema] = {}
        for name in names:
            options = [fields.of(name) for fields in several if name in fields.named or not fields.silent]
            if possible := [option for option in options if option is not False]:
                named[name] = either(possible, at)
        joined = Node({"type": "object"}, at)
        for keyword in dict.fromkeys(word for flat in flats for word in flat):
            held = [flat[keyword] for flat in flats if keyword in flat]
            if keyword in _FIELDS or keyword in ("type", "required"):
                continue
            if keyword in ANNOTATIONS or (len(held) == len(flats) and len({key_of(it) for it in held}) == 1):
                joined[keyword] = held[0]
            else:
                self._losses.add(at, keyword, "is not the same in all alternatives; left out")
        joined["properties"] = named
        needed = [flat.get("required", []) for flat in flats]
        if common := [name for name in needed[0] if all(name in others for others in needed)]:
            joined["required"] = common
        self._join_rest(several, joined, at)
        return joined

    def _join_rest(self, several: "Sequence[Fields]", joined: Node, at: str) -> None:
        if any(fields.silent and len(fields.named) < len(joined["properties"]) for fields in several):
            self._losses.add(
                at, "additionalProperties", f"was left out in some alternatives; of the others' {NARROWED}"
            )
        if any(fields.patterns for fields in several):
            self._losses.add(at, "patternProperties", "is left out, and any field is accepted")
            joined["additionalProperties"] = True
        elif any(fields.rest is True and not fields.silent for fields in several):
            # Said, where it was said: silence would be read as "no others".
            joined["additionalProperties"] = True
        elif all(fields.rest is not True for fields in several):
            joined["additionalProperties"] = either(
                [fields.rest for fields in several if fields.rest is not False], at, empty=False
            )


class Fields(NamedTuple):
    """What an object says about its fields."""

    named: dict[str, Schema]
    patterns: dict[str, Schema]
    rest: Schema
    given: bool
    silent: bool
    """Whether it names fields, and others are allowed only because nothing was said."""

    def of(self, name: str) -> Schema:
        """What a field must fit; loose where patterns would have to be tried."""
        return self.named.get(name, True if self.patterns else self.rest)


def fields_of(flat: Node) -> Fields:
    return Fields(
        named=flat.get("properties", {}),
        patterns=flat.get("patternProperties", {}),
        rest=flat.get("additionalProperties", True),
        given=any(word in flat for word in _FIELDS),
        silent=list(filter(flat.__contains__, _FIELDS)) == ["properties"] and bool(flat["properties"]),
    )


def both(one: Schema, other: Schema) -> Schema:
    if one is False or other is False:
        return False
    if one is True or one == {}:
        return other
    if other is True or other == {} or key_of(one) == key_of(other):
        return one
    assert isinstance(one, Node)
    return Node({"allOf": [one, other]}, one.at)


def either(options: Iterable[Schema], at: str, *, empty: bool = True) -> Schema:
    """One schema for several; `empty` when there are none."""
    distinct = {key_of(option): option for option in options}
    if not distinct:
        return empty
    if any(option is True for option in distinct.values()):
        return True
    if len(distinct) == 1:
        return next(iter(distinct.values()))
    return Node({"anyOf": list(distinct.values())}, at)


def _gathered(flats: list[Node]) -> list[Node]:
    """The alternatives with all that only list values made one."""
    lists = [flat for flat in flats if "enum" in flat and not flat.keys() - {"type", "enum", *ANNOTATIONS}]
    if len(lists) < 2:
        return flats
    values = {key_of(it): it for flat in lists for it in flat["enum"] if _may(flat, it)}
    words = [
        f"{', '.join(shown(it) for it in flat['enum'])}: {flat['description']}"
        for flat in lists
        if flat.get("description")
    ]
    gathered = Node({"enum": list(values.values())}, lists[0].at)
    if words:
        gathered["description"] = "; ".join(words)
    rest = [flat for flat in flats if not any(flat is listed for listed in lists)]
    return [gathered, *rest]


def _may(flat: Node, value: Any) -> bool:
    return "type" not in flat or any(is_of(value, kind) for kind in flat["type"])


def _flat(schema: Node) -> Node:
    flat = Node({word: held for word, held in schema.items() if word not in _COMBINING}, schema.at)
    if isinstance(flat.get("type"), str):
        flat["type"] = [flat["type"]]
    if "const" in flat:
        constant = flat.pop("const")
        flat["enum"] = [it for it in flat.get("enum", [constant]) if key_of(it) == key_of(constant)]
    return flat


def _meet_items(one: Node, other: Node, met: Node) -> None:
    if not all("items" in flat or "prefixItems" in flat for flat in (one, other)):
        return
    first, second = one.get("prefixItems", []), other.get("prefixItems", [])
    rests = one.get("items", True), other.get("items", True)
    prefix = [
        both(
            first[n] if n < len(first) else rests[0],
            second[n] if n < len(second) else rests[1],
        )
        for n in range(max(len(first), len(second)))
    ]
    if prefix:
        met["prefixItems"] = prefix
    if "items" in met:
        met["items"] = both(*rests)


def _is_never(flat: Node, name: str) -> bool:
    fields = fields_of(flat)
    return fields.of(name) is False


def _apart(flats: Sequence[Node]) -> bool:
    """Whether no value can fit two of them, as far as types and fixed values tell."""
    return all(_tell_apart(one, other) for at, one in enumerate(flats) for other in flats[at + 1 :])


def _tell_apart(one: Node, other: Node) -> bool:
    kinds = kinds_of(one), kinds_of(other)
    if kinds[0] and kinds[1] and _types(kinds[0], kinds[1]) == []:
        return True
    if "enum" in one and "enum" in other:
        return not _common(one["enum"], other["enum"])
    shared = set(one.get("required", ())) & set(other.get("required", ()))
    if not shared or kinds[0] != ["object"] or kinds[1] != ["object"]:
        return False
    for name in shared:
        values = [_fixed(fields_of(flat).of(name)) for flat in (one, other)]
        if values[0] is not None and values[1] is not None and not _common(values[0], values[1]):
            return True
    return False


def _fixed(schema: Schema) -> list[Any] | None:
    if isinstance(schema, bool):
        return None
    values: list[Any] | None = [schema["const"]] if "const" in schema else schema.get("enum")
    return values


def _common(some: Iterable[Any], others: Iterable[Any]) -> list[Any]:
    keys = {key_of(value) for value in others}
    return [value for value in some if key_of(value) in keys]


def _types(some: Sequence[str], others: Sequence[str]) -> list[str]:
    met = [name for name in some if name in others or (name == "integer" and "number" in others)]
    return met + [name for name in others if name == "integer" and "number" in some and name not in met]


def _multiple(one: float, other: float) -> int | None:
    return math.lcm(one, other) if isinstance(one, int) and isinstance(other, int) else None


def _needs(some: dict[str, list[str]], others: dict[str, list[str]]) -> dict[str, list[str]]:
    return {
        name: list(dict.fromkeys((*some.get(name, ()), *others.get(name, ()))))
        for name in dict.fromkeys((*some, *others))
    }


def _together(some: dict[str, Schema], others: dict[str, Schema]) -> dict[str, Schema]:
    names = dict.fromkeys((*some, *others))
    return {name: both(some.get(name, True), others.get(name, True)) for name in names}


def _neither(one: Schema, other: Schema) -> Schema:
    return Node({"anyOf": [one, other]}, one.at if isinstance(one, Node) else "#")


_FIELDS = ("properties", "patternProperties", "additionalProperties")
_GROUPS = (("if", "then", "else"), ("contains", "minContains", "maxContains"))
_GROUPED = frozenset(word for group in _GROUPS for word in group) | {*_FIELDS, "prefixItems", "items"}
_MEETS: dict[str, Callable[[Any, Any], Any]] = {
    "type": _types,
    "enum": _common,
    "required": lambda some, others: list(dict.fromkeys((*some, *others))),
    "multipleOf": _multiple,
    "uniqueItems": lambda one, other: one or other,
    "propertyNames": both,
    "dependentRequired": _needs,
    "dependentSchemas": _together,
    "not": _neither,
    **dict.fromkeys(("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"), max),
    **dict.fromkeys(("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"), min),
}
