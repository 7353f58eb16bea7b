"""Combines schemas: intersections and unions.

`SchemaAlternatives.expand` splits a schema into flat ones: none has references or subschemas for the same
value, and a value matches the schema exactly if it matches one of them, except for listed losses, which only
accept more. `allOf`, `$ref` with other keywords, and `anyOf` beside other keywords are all resolved here, so
writers need not handle them.

`unite_objects` is the lossy step: one object instead of several, for roots that may not be a union.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from bridle.values.schema_limits import NUMBER_BITS_MAX

from .losses import SchemaLosses, abbreviate_json
from .node import DEFINITION_KEYWORDS, Schema, SchemaNode
from .source import SchemaSource
from .values import declared_types, has_type, is_same_value, value_key

ALTERNATIVES_MAX = 64
"""More are not worth their tokens; the constraint that would add them is dropped instead."""
_COMBINING_KEYWORDS = frozenset({"allOf", "anyOf", "oneOf", "$ref"}) | DEFINITION_KEYWORDS
ANNOTATIONS = ("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly")
NARROWED_NOTE = "only the named fields can be written"
"""End of every loss that forbids something: fields an object allowed by not mentioning them."""


class SchemaAlternatives:
    def __init__(self, source: SchemaSource, losses: SchemaLosses) -> None:
        self._source = source
        self._losses = losses
        self._known: dict[str, list[SchemaNode]] = {}

    def expand(self, schema: Schema) -> list[SchemaNode]:
        """Return flat schemas, one of which every matching value matches; none if nothing matches."""
        if isinstance(schema, bool):
            return [SchemaNode({}, "#")] if schema else []
        found = [_flatten(schema)]
        for part in schema.get("allOf", ()):
            found = self._intersect_each(found, self.expand(part), schema, "allOf")
        if "$ref" in schema:
            found = self._intersect_each(found, self._expand_definition(schema["$ref"]), schema, "$ref")
        for keyword in ("anyOf", "oneOf"):
            if keyword not in schema:
                continue
            options = [flat for part in schema[keyword] for flat in self.expand(part)]
            if keyword == "oneOf":
                self.record_one_of_loss(options, schema.at)
            found = self._intersect_each(found, _merge_enums(options), schema, keyword)
        return self._apply_unevaluated(found, schema)

    def record_one_of_loss(self, options: Sequence[SchemaNode], at: str) -> None:
        """Record the loss of replacing "exactly one of" by "any of", unless no value can match two."""
        if not _are_disjoint(options):
            self._losses.add(at, "oneOf", "became anyOf: more than one may fit")

    def _expand_definition(self, place: str) -> list[SchemaNode]:
        # The cache avoids exponential time for definitions that each use the next one twice.
        if place not in self._known:
            self._known[place] = self.expand(self._source.definitions[place])
        return self._known[place]

    def _intersect_each(
        self, some: list[SchemaNode], others: list[SchemaNode], schema: SchemaNode, keyword: str
    ) -> list[SchemaNode]:
        if len(some) * len(others) > ALTERNATIVES_MAX:
            self._losses.add(schema.at, keyword, f"has more than {ALTERNATIVES_MAX} combinations; left out")
            return some
        return [
            met for one in some for other in others if (met := self._intersect_pair(one, other)) is not None
        ]

    def _apply_unevaluated(self, found: list[SchemaNode], schema: SchemaNode) -> list[SchemaNode]:
        """Apply `unevaluated…`, which depends on everything that was combined."""
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
        # A value may match several alternatives and have the fields of each.
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

    # ── intersections ───────────────────────────────────────────────────────

    def _intersect_pair(self, one: SchemaNode, other: SchemaNode) -> SchemaNode | None:
        """Return the schema for values that match both; None if there are none."""
        met = SchemaNode({**one, **{word: held for word, held in other.items() if word not in one}}, one.at)
        for keyword in [word for word in one if word in other]:
            if keyword in ANNOTATIONS or is_same_value(one[keyword], other[keyword]):
                continue
            rule = _INTERSECTIONS.get(keyword)
            if rule is not None and (both := rule(one[keyword], other[keyword])) is not None:
                met[keyword] = both
            elif keyword not in _GROUPED_KEYWORDS:
                self._losses.add(other.at, keyword, "cannot be combined with another one; left out")
        self._intersect_fields(one, other, met)
        _intersect_items(one, other, met)
        for group in _KEYWORD_GROUPS:
            if any(word in one for word in group) and any(word in other for word in group):
                if not all(is_same_value(one.get(word), other.get(word)) for word in group):
                    self._losses.add(other.at, group[0], "cannot be combined with another one; left out")
                for word in group:
                    if word in met and word not in one:
                        del met[word]
        impossible = met.get("type") == [] or met.get("enum") == []
        return (
            None if impossible or any(_is_forbidden(met, name) for name in met.get("required", ())) else met
        )

    def _intersect_fields(self, one: SchemaNode, other: SchemaNode, met: SchemaNode) -> None:
        first, second = fields_of(one), fields_of(other)
        if not (first.given and second.given):
            return
        for mine, theirs, at in ((first, second, one.at), (second, first, other.at)):
            if mine.rest is not True and (theirs.patterns or (mine.patterns and theirs.named)):
                self._losses.add(
                    at,
                    "additionalProperties",
                    "cannot be combined with patternProperties; any field is accepted",
                )
        names = dict.fromkeys((*first.named, *second.named))
        named = {name: intersect(first.schema_for(name), second.schema_for(name)) for name in names}
        patterns = {
            pattern: intersect(first.patterns.get(pattern, True), second.patterns.get(pattern, True))
            for pattern in dict.fromkeys((*first.patterns, *second.patterns))
        }
        loose = (first.rest is not True and second.patterns) or (second.rest is not True and first.patterns)
        rest = True if loose else intersect(first.rest, second.rest)
        for keyword, held in (("properties", named), ("patternProperties", patterns)):
            if held:
                met[keyword] = held
        if "additionalProperties" in met:
            met["additionalProperties"] = rest

    # ── unions ──────────────────────────────────────────────────────────────

    def unite_objects(self, flats: Sequence[SchemaNode], at: str) -> SchemaNode:
        """Return one object schema for values that match any of these objects."""
        if len(flats) == 1:
            return flats[0]
        several = [fields_of(flat) for flat in flats]
        names = dict.fromkeys(name for fields in several for name in fields.named)
        named: dict[str, Schema] = {}
        for name in names:
            options = [
                fields.schema_for(name) for fields in several if name in fields.named or not fields.silent
            ]
            if possible := [option for option in options if option is not False]:
                named[name] = unite(possible, at)
        joined = SchemaNode({"type": "object"}, at)
        for keyword in dict.fromkeys(word for flat in flats for word in flat):
            held = [flat[keyword] for flat in flats if keyword in flat]
            if keyword in _FIELD_KEYWORDS or keyword in ("type", "required"):
                continue
            if keyword in ANNOTATIONS or (
                len(held) == len(flats) and all(is_same_value(held[0], it) for it in held)
            ):
                joined[keyword] = held[0]
            else:
                self._losses.add(at, keyword, "is not the same in all alternatives; left out")
        joined["properties"] = named
        needed = [flat.get("required", []) for flat in flats]
        if common := [name for name in needed[0] if all(name in others for others in needed)]:
            joined["required"] = common
        self._unite_additional(several, joined, at)
        return joined

    def _unite_additional(self, several: "Sequence[ObjectFields]", joined: SchemaNode, at: str) -> None:
        if any(fields.silent and len(fields.named) < len(joined["properties"]) for fields in several):
            self._losses.add(
                at,
                "additionalProperties",
                f"was left out in some alternatives; of the others' {NARROWED_NOTE}",
            )
        if any(fields.patterns for fields in several):
            self._losses.add(at, "patternProperties", "is left out, and any field is accepted")
            joined["additionalProperties"] = True
        elif any(fields.rest is True and not fields.silent for fields in several):
            # Written explicitly: omitting it would be read as "no others".
            joined["additionalProperties"] = True
        elif all(fields.rest is not True for fields in several):
            joined["additionalProperties"] = unite(
                [fields.rest for fields in several if fields.rest is not False], at, empty=False
            )


class ObjectFields(NamedTuple):
    """The constraints of an object on its fields."""

    named: dict[str, Schema]
    patterns: dict[str, Schema]
    rest: Schema
    given: bool
    silent: bool
    """True if it names fields and allows others only by not mentioning them."""

    def schema_for(self, name: str) -> Schema:
        """Return the schema of a field; accepts anything if patterns would have to be tried."""
        return self.named.get(name, True if self.patterns else self.rest)


def fields_of(flat: SchemaNode) -> ObjectFields:
    return ObjectFields(
        named=flat.get("properties", {}),
        patterns=flat.get("patternProperties", {}),
        rest=flat.get("additionalProperties", True),
        given=any(word in flat for word in _FIELD_KEYWORDS),
        silent=list(filter(flat.__contains__, _FIELD_KEYWORDS)) == ["properties"]
        and bool(flat["properties"]),
    )


def intersect(one: Schema, other: Schema) -> Schema:
    if one is False or other is False:
        return False
    if one is True or one == {}:
        return other
    if other is True or other == {} or is_same_value(one, other):
        return one
    assert isinstance(one, SchemaNode)
    return SchemaNode({"allOf": [one, other]}, one.at)


def unite(options: Iterable[Schema], at: str, *, empty: bool = True) -> Schema:
    """Return one schema for several; `empty` if there are none."""
    seen = {id(option): option for option in options}  # most are the same definition
    distinct = {value_key(option): option for option in seen.values()}
    if not distinct:
        return empty
    if any(option is True for option in distinct.values()):
        return True
    if len(distinct) == 1:
        return next(iter(distinct.values()))
    return SchemaNode({"anyOf": list(distinct.values())}, at)


def _merge_enums(flats: list[SchemaNode]) -> list[SchemaNode]:
    """Merge the alternatives that only list values into one."""
    lists = [flat for flat in flats if "enum" in flat and not flat.keys() - {"type", "enum", *ANNOTATIONS}]
    if len(lists) < 2:
        return flats
    values = {value_key(it): it for flat in lists for it in flat["enum"] if _allows_type(flat, it)}
    descriptions = [
        f"{', '.join(abbreviate_json(it) for it in flat['enum'])}: {flat['description']}"
        for flat in lists
        if flat.get("description")
    ]
    merged = SchemaNode({"enum": list(values.values())}, lists[0].at)
    if descriptions:
        merged["description"] = "; ".join(descriptions)
    rest = [flat for flat in flats if not any(flat is listed for listed in lists)]
    return [merged, *rest]


def _allows_type(flat: SchemaNode, value: Any) -> bool:
    return "type" not in flat or any(has_type(value, kind) for kind in flat["type"])


def _flatten(schema: SchemaNode) -> SchemaNode:
    flat = SchemaNode(
        {word: held for word, held in schema.items() if word not in _COMBINING_KEYWORDS}, schema.at
    )
    if isinstance(flat.get("type"), str):
        flat["type"] = [flat["type"]]
    if "const" in flat:
        constant = flat.pop("const")
        flat["enum"] = [it for it in flat.get("enum", [constant]) if is_same_value(it, constant)]
    return flat


def _intersect_items(one: SchemaNode, other: SchemaNode, met: SchemaNode) -> None:
    if not all("items" in flat or "prefixItems" in flat for flat in (one, other)):
        return
    first, second = one.get("prefixItems", []), other.get("prefixItems", [])
    rests = one.get("items", True), other.get("items", True)
    prefix = [
        intersect(
            first[n] if n < len(first) else rests[0],
            second[n] if n < len(second) else rests[1],
        )
        for n in range(max(len(first), len(second)))
    ]
    if prefix:
        met["prefixItems"] = prefix
    if "items" in met:
        met["items"] = intersect(*rests)


def _is_forbidden(flat: SchemaNode, name: str) -> bool:
    fields = fields_of(flat)
    return fields.schema_for(name) is False


def _are_disjoint(flats: Sequence[SchemaNode]) -> bool:
    """Return True if no value can match two of them, judging by types and fixed values."""
    return all(_is_disjoint_pair(one, other) for at, one in enumerate(flats) for other in flats[at + 1 :])


def _is_disjoint_pair(one: SchemaNode, other: SchemaNode) -> bool:
    kinds = declared_types(one), declared_types(other)
    if kinds[0] and kinds[1] and _common_types(kinds[0], kinds[1]) == []:
        return True
    if "enum" in one and "enum" in other:
        return not _common_values(one["enum"], other["enum"])
    shared = set(one.get("required", ())) & set(other.get("required", ()))
    if not shared or kinds[0] != ["object"] or kinds[1] != ["object"]:
        return False
    for name in shared:
        values = [_fixed_values(fields_of(flat).schema_for(name)) for flat in (one, other)]
        if values[0] is not None and values[1] is not None and not _common_values(values[0], values[1]):
            return True
    return False


def _fixed_values(schema: Schema) -> list[Any] | None:
    if isinstance(schema, bool):
        return None
    values: list[Any] | None = [schema["const"]] if "const" in schema else schema.get("enum")
    return values


def _common_values(some: Iterable[Any], others: Iterable[Any]) -> list[Any]:
    keys = {value_key(value) for value in others}
    return [value for value in some if value_key(value) in keys]


def _common_types(some: Sequence[str], others: Sequence[str]) -> list[str]:
    met = [name for name in some if name in others or (name == "integer" and "number" in others)]
    return met + [name for name in others if name == "integer" and "number" in some and name not in met]


def _common_multiple(one: float, other: float) -> int | None:
    multiple = math.lcm(one, other) if isinstance(one, int) and isinstance(other, int) else None
    return multiple if multiple is None or multiple.bit_length() <= NUMBER_BITS_MAX else None


def _merge_dependencies(some: dict[str, list[str]], others: dict[str, list[str]]) -> dict[str, list[str]]:
    return {
        name: list(dict.fromkeys((*some.get(name, ()), *others.get(name, ()))))
        for name in dict.fromkeys((*some, *others))
    }


def _intersect_maps(some: dict[str, Schema], others: dict[str, Schema]) -> dict[str, Schema]:
    names = dict.fromkeys((*some, *others))
    return {name: intersect(some.get(name, True), others.get(name, True)) for name in names}


def _unite_pair(one: Schema, other: Schema) -> Schema:
    return SchemaNode({"anyOf": [one, other]}, one.at if isinstance(one, SchemaNode) else "#")


_FIELD_KEYWORDS = ("properties", "patternProperties", "additionalProperties")
_KEYWORD_GROUPS = (("if", "then", "else"), ("contains", "minContains", "maxContains"))
_GROUPED_KEYWORDS = frozenset(word for group in _KEYWORD_GROUPS for word in group) | {
    *_FIELD_KEYWORDS,
    "prefixItems",
    "items",
}
_INTERSECTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "type": _common_types,
    "enum": _common_values,
    "required": lambda some, others: list(dict.fromkeys((*some, *others))),
    "multipleOf": _common_multiple,
    "uniqueItems": lambda one, other: one or other,
    "propertyNames": intersect,
    "dependentRequired": _merge_dependencies,
    "dependentSchemas": _intersect_maps,
    "not": _unite_pair,
    **dict.fromkeys(("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"), max),
    **dict.fromkeys(("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"), min),
}
