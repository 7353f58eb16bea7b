"""What both wires demand of a schema: always an object, and more when it is called strict.

The validator names a place inside a schema by the keys that lead there, as in `('properties', 'city')`.
Problems are told for the first place that has one, objects before what is inside them.
"""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from ._rules_openai_shape import (
    rule,
)
from ._rules_reading import (
    Also,
    Block,
    listed,
    mapping,
)
from .rules import Asked, Found, Rule

FORMATS = ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid")
"""What a strict schema may say of a string."""
FORBIDDEN = ("allOf", "oneOf", "not", "if", "then", "else", "dependentRequired", "dependentSchemas",
             "patternProperties", "uniqueItems", "propertyNames", "unevaluatedProperties")  # fmt: skip
_GROUPS = ("properties", "$defs", "definitions")
_ALTERNATIVES = ("anyOf",)


class Shape(NamedTuple):
    """A schema in a request."""

    name: str
    """Of the function or of the answer."""
    schema: object
    strict: bool
    at: str = ""
    """Where it stands in the request."""


class Place(NamedTuple):
    keys: tuple[str, ...]
    schema: Block

    @property
    def shown(self) -> str:
        return str(self.keys)


def places(schema: object, keys: tuple[str, ...] = ()) -> Iterator[Place]:
    """A schema and every schema inside it."""
    if not isinstance(schema, Mapping):
        return
    yield Place(keys, schema)
    for group in _GROUPS:
        for name, inner in mapping(schema.get(group)).items():
            yield from places(inner, (*keys, group, str(name)))
    for group in _ALTERNATIVES:
        for index, inner in enumerate(listed(schema.get(group))):
            yield from places(inner, (*keys, group, str(index)))
    yield from places(schema.get("items"), (*keys, "items"))


def no_object(shape: Shape) -> Found | None:
    """An empty schema is none; it passes."""
    type_ = mapping(shape.schema).get("type")
    return None if type_ == "object" or shape.schema == {} else {"type": type_}


def open_object(shape: Shape) -> Found | None:
    for place in places(shape.schema if shape.strict else None):
        if _is(place.schema, "object") and place.schema.get("additionalProperties") is not False:
            return {"context": place.shown}
    return None


def optional(shape: Shape) -> Found | None:
    for place in places(shape.schema if shape.strict else None):
        required = listed(place.schema.get("required"))
        missing = [name for name in mapping(place.schema.get("properties")) if name not in required]
        if missing:
            return {"context": place.shown, "key": missing[0]}
    return None


def odd_format(shape: Shape) -> Found | None:
    for place in places(shape.schema if shape.strict else None):
        format_ = place.schema.get("format")
        if isinstance(format_, str) and format_ not in FORMATS:
            return {"context": place.shown, "format": format_}
    return None


def forbidden(shape: Shape) -> Found | None:
    for place in places(shape.schema if shape.strict else None):
        for word in FORBIDDEN:
            if word in place.schema:
                return {"context": place.shown, "word": word}
    return None


def bare_array(shape: Shape) -> Found | None:
    for place in places(shape.schema):
        if _is(place.schema, "array") and "items" not in place.schema and "prefixItems" not in place.schema:
            return {"context": place.shown}
    return None


def _is(schema: Block, type_: str) -> bool:
    return type_ in (schema.get("type"), *listed(schema.get("type")))


Problem = Callable[[Shape], Found | None]
Shapes = Callable[[Asked], Iterator[Shape]]
Changes = dict[str, object]
"""What is changed in a strict schema to make an example."""


class Demand(NamedTuple):
    name: str
    problem: Problem
    wording: str
    passes: Changes
    offends: Changes
    says: str
    also: tuple[tuple[Changes, str], ...] = ()


def _has(**schema: object) -> Changes:
    """A schema with this one inside."""
    return {"properties": {"a": schema}}


_OPEN = {"type": "object", "properties": {}, "required": []}
_CLOSED = {**_OPEN, "additionalProperties": False}
_OPEN_SAYS = "'additionalProperties' is required to be supplied and to be false."

DEMANDS = (
    Demand(
        "object",
        no_object,
        "schema must be a JSON Schema of 'type: \"object\"', got 'type: \"{type}\"'.",
        passes={},
        offends={"type": "string"},
        says="schema must be a JSON Schema of 'type: \"object\"', got 'type: \"string\"'.",
    ),
    Demand(
        "items",
        bare_array,
        "In context={context}, array schema missing items.",
        passes=_has(type="array", items={"type": "string"}),
        offends=_has(type="array"),
        says="In context=('properties', 'a'), array schema missing items.",
        also=(
            (_has(type="array", prefixItems=[]), ""),
            (_has(type=["array", "null"]), "In context=('properties', 'a'), array schema missing items."),
        ),
    ),
    Demand(
        "closed",
        open_object,
        "In context={context}, 'additionalProperties' is required to be supplied and to be false.",
        passes=_has(**_CLOSED),
        offends=_has(**_OPEN),
        says=f"In context=('properties', 'a'), {_OPEN_SAYS}",
        also=(
            (_has(**_OPEN, additionalProperties=True), f"In context=('properties', 'a'), {_OPEN_SAYS}"),
            (_has(type="array", items=_OPEN), f"In context=('properties', 'a', 'items'), {_OPEN_SAYS}"),
            (_has(anyOf=[_CLOSED, _OPEN]), f"In context=('properties', 'a', 'anyOf', '1'), {_OPEN_SAYS}"),
            ({"$defs": {"b": _OPEN}}, f"In context=('$defs', 'b'), {_OPEN_SAYS}"),
            ({"definitions": {"b": _OPEN}}, f"In context=('definitions', 'b'), {_OPEN_SAYS}"),
            (_has(**{**_OPEN, "type": ["object", "null"]}), f"In context=('properties', 'a'), {_OPEN_SAYS}"),
        ),
    ),
    Demand(
        "complete",
        optional,
        "In context={context}, 'required' is required to be supplied and to be an array including every key"
        " in properties. Missing '{key}'.",
        passes={},
        offends={"properties": {"a": {}, "b": {}, "c": {}}},
        says="In context=(), 'required' is required to be supplied and to be an array including every key"
        " in properties. Missing 'b'.",
    ),
    Demand(
        "format",
        odd_format,
        "In context={context}, '{format}' is not a valid format.",
        passes=_has(type="string", format="date"),
        offends=_has(type="string", format="uri"),
        says="In context=('properties', 'a'), 'uri' is not a valid format.",
        also=((_has(type="string", format=7), ""),),
    ),
    Demand(
        "words",
        forbidden,
        "In context={context}, '{word}' is not permitted.",
        passes=_has(anyOf=[{"type": "string"}]),
        offends=_has(oneOf=[{"type": "string"}]),
        says="In context=('properties', 'a'), 'oneOf' is not permitted.",
    ),
)
LAX = ("closed", "complete", "format", "words")
"""Demands that a schema which is not strict does not have to meet."""

STRICT: dict[str, object] = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}


def finder(shapes: Shapes, problem: Problem) -> Callable[[Asked], Found | None]:
    def find(request: Asked) -> Found | None:
        for shape in shapes(request):
            found = problem(shape)
            if found is not None:
                return {"name": shape.name, "at": shape.at, **found}
        return None

    return find


def demands(
    id: str,  # noqa: A002  the word of `Rule`
    subject: str,
    code: str,
    shapes: Shapes,
    asked_in: Callable[[Mapping[str, object], object], Asked],
    also: Mapping[str, Also] = MappingProxyType({}),
) -> tuple[Rule, ...]:
    """A rule for each demand; `asked_in` makes a request of a schema called `look` that is strict or not.

    `also` are further examples by the demand's name.
    """
    lead = f"Invalid schema for {subject} '{{name}}': "
    told = lead.format(name="look")
    return tuple(
        rule(
            f"{id}-{demand.name}",
            finder(shapes, demand.problem),
            lead + demand.wording,
            evidence="S",
            passes=asked_in({**STRICT, **demand.passes}, True),
            offends=asked_in({**STRICT, **demand.offends}, True),
            says=told + demand.says,
            code=code,
            param="{at}",
            also=(
                *(
                    (asked_in({**STRICT, **changes}, True), says and told + says)
                    for changes, says in demand.also
                ),
                (asked_in({}, False), ""),
                *((asked, told + says) for asked, says in also.get(demand.name, ())),
                (
                    asked_in({**STRICT, **demand.offends}, False),
                    "" if demand.name in LAX else told + demand.says,
                ),
            ),
        )
        for demand in DEMANDS
    )
