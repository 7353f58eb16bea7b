"""What both wires demand of a schema: always an object, and more when it is called strict.

The validator names a place inside a schema by the keys that lead there, as in `('properties', 'city')`.
Problems are told for the first place that has one, objects before what is inside them.
"""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from bridle.sim.rules.engine import ProviderRule, RawRequest, RuleFinding
from bridle.sim.rules.raw_request import JsonObject, MoreExamples, as_list, as_mapping

from .error_style import rule

FORMATS = ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid")
"""What a strict schema may say of a string."""
FORBIDDEN = ("allOf", "oneOf", "not", "if", "then", "else", "dependentRequired", "dependentSchemas",
             "patternProperties", "uniqueItems", "propertyNames", "unevaluatedProperties")  # fmt: skip
_GROUPS = ("properties", "$defs", "definitions")
_ALTERNATIVES = ("anyOf",)


class RequestSchema(NamedTuple):
    """A schema in a request."""

    name: str
    """Of the function or of the answer."""
    schema: object
    is_strict: bool
    at: str = ""
    """Where it stands in the request."""


class SchemaPlace(NamedTuple):
    keys: tuple[str, ...]
    schema: JsonObject

    @property
    def shown(self) -> str:
        return str(self.keys)


def walk_schema(schema: object, keys: tuple[str, ...] = ()) -> Iterator[SchemaPlace]:
    """A schema and every schema inside it."""
    if not isinstance(schema, Mapping):
        return
    yield SchemaPlace(keys, schema)
    for group in _GROUPS:
        for name, inner in as_mapping(schema.get(group)).items():
            yield from walk_schema(inner, (*keys, group, str(name)))
    for group in _ALTERNATIVES:
        for index, inner in enumerate(as_list(schema.get(group))):
            yield from walk_schema(inner, (*keys, group, str(index)))
    yield from walk_schema(schema.get("items"), (*keys, "items"))


def find_non_object(shape: RequestSchema) -> RuleFinding | None:
    """An empty schema is none; it passes."""
    type_ = as_mapping(shape.schema).get("type")
    return None if type_ == "object" or shape.schema == {} else {"type": type_}


def find_open_object(shape: RequestSchema) -> RuleFinding | None:
    for place in walk_schema(shape.schema if shape.is_strict else None):
        if _has_type(place.schema, "object") and place.schema.get("additionalProperties") is not False:
            return {"context": place.shown}
    return None


def find_optional_property(shape: RequestSchema) -> RuleFinding | None:
    for place in walk_schema(shape.schema if shape.is_strict else None):
        required = as_list(place.schema.get("required"))
        missing = [name for name in as_mapping(place.schema.get("properties")) if name not in required]
        if missing:
            return {"context": place.shown, "key": missing[0]}
    return None


def find_unknown_format(shape: RequestSchema) -> RuleFinding | None:
    for place in walk_schema(shape.schema if shape.is_strict else None):
        format_ = place.schema.get("format")
        if isinstance(format_, str) and format_ not in FORMATS:
            return {"context": place.shown, "format": format_}
    return None


def find_forbidden_keyword(shape: RequestSchema) -> RuleFinding | None:
    for place in walk_schema(shape.schema if shape.is_strict else None):
        for word in FORBIDDEN:
            if word in place.schema:
                return {"context": place.shown, "word": word}
    return None


def find_array_without_items(shape: RequestSchema) -> RuleFinding | None:
    for place in walk_schema(shape.schema):
        if (
            _has_type(place.schema, "array")
            and "items" not in place.schema
            and "prefixItems" not in place.schema
        ):
            return {"context": place.shown}
    return None


def _has_type(schema: JsonObject, type_: str) -> bool:
    return type_ in (schema.get("type"), *as_list(schema.get("type")))


SchemaCheck = Callable[[RequestSchema], RuleFinding | None]
SchemaLister = Callable[[RawRequest], Iterator[RequestSchema]]
SchemaChanges = dict[str, object]
"""What is changed in a strict schema to make an example."""


class SchemaDemand(NamedTuple):
    name: str
    problem: SchemaCheck
    wording: str
    passes: SchemaChanges
    offends: SchemaChanges
    says: str
    also: tuple[tuple[SchemaChanges, str], ...] = ()


def _with_property(**schema: object) -> SchemaChanges:
    """A schema with this one inside."""
    return {"properties": {"a": schema}}


_OPEN = {"type": "object", "properties": {}, "required": []}
_CLOSED = {**_OPEN, "additionalProperties": False}
_OPEN_SAYS = "'additionalProperties' is required to be supplied and to be false."

SCHEMA_DEMANDS = (
    SchemaDemand(
        "object",
        find_non_object,
        "schema must be a JSON Schema of 'type: \"object\"', got 'type: \"{type}\"'.",
        passes={},
        offends={"type": "string"},
        says="schema must be a JSON Schema of 'type: \"object\"', got 'type: \"string\"'.",
    ),
    SchemaDemand(
        "items",
        find_array_without_items,
        "In context={context}, array schema missing items.",
        passes=_with_property(type="array", items={"type": "string"}),
        offends=_with_property(type="array"),
        says="In context=('properties', 'a'), array schema missing items.",
        also=(
            (_with_property(type="array", prefixItems=[]), ""),
            (
                _with_property(type=["array", "null"]),
                "In context=('properties', 'a'), array schema missing items.",
            ),
        ),
    ),
    SchemaDemand(
        "closed",
        find_open_object,
        "In context={context}, 'additionalProperties' is required to be supplied and to be false.",
        passes=_with_property(**_CLOSED),
        offends=_with_property(**_OPEN),
        says=f"In context=('properties', 'a'), {_OPEN_SAYS}",
        also=(
            (
                _with_property(**_OPEN, additionalProperties=True),
                f"In context=('properties', 'a'), {_OPEN_SAYS}",
            ),
            (
                _with_property(type="array", items=_OPEN),
                f"In context=('properties', 'a', 'items'), {_OPEN_SAYS}",
            ),
            (
                _with_property(anyOf=[_CLOSED, _OPEN]),
                f"In context=('properties', 'a', 'anyOf', '1'), {_OPEN_SAYS}",
            ),
            ({"$defs": {"b": _OPEN}}, f"In context=('$defs', 'b'), {_OPEN_SAYS}"),
            ({"definitions": {"b": _OPEN}}, f"In context=('definitions', 'b'), {_OPEN_SAYS}"),
            (
                _with_property(**{**_OPEN, "type": ["object", "null"]}),
                f"In context=('properties', 'a'), {_OPEN_SAYS}",
            ),
        ),
    ),
    SchemaDemand(
        "complete",
        find_optional_property,
        "In context={context}, 'required' is required to be supplied and to be an array including every key"
        " in properties. Missing '{key}'.",
        passes={},
        offends={"properties": {"a": {}, "b": {}, "c": {}}},
        says="In context=(), 'required' is required to be supplied and to be an array including every key"
        " in properties. Missing 'b'.",
    ),
    SchemaDemand(
        "format",
        find_unknown_format,
        "In context={context}, '{format}' is not a valid format.",
        passes=_with_property(type="string", format="date"),
        offends=_with_property(type="string", format="uri"),
        says="In context=('properties', 'a'), 'uri' is not a valid format.",
        also=((_with_property(type="string", format=7), ""),),
    ),
    SchemaDemand(
        "words",
        find_forbidden_keyword,
        "In context={context}, '{word}' is not permitted.",
        passes=_with_property(anyOf=[{"type": "string"}]),
        offends=_with_property(oneOf=[{"type": "string"}]),
        says="In context=('properties', 'a'), 'oneOf' is not permitted.",
    ),
)
STRICT_ONLY = ("closed", "complete", "format", "words")
"""Demands that a schema which is not strict does not have to meet."""

STRICT_SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}


def make_finder(shapes: SchemaLister, problem: SchemaCheck) -> Callable[[RawRequest], RuleFinding | None]:
    def find(request: RawRequest) -> RuleFinding | None:
        for shape in shapes(request):
            found = problem(shape)
            if found is not None:
                return {"name": shape.name, "at": shape.at, **found}
        return None

    return find


def schema_rules(
    id: str,  # noqa: A002  the word of `Rule`
    subject: str,
    code: str,
    shapes: SchemaLister,
    asked_in: Callable[[Mapping[str, object], object], RawRequest],
    also: Mapping[str, MoreExamples] = MappingProxyType({}),
) -> tuple[ProviderRule, ...]:
    """A rule for each demand; `asked_in` makes a request of a schema called `look` that is strict or not.

    `also` are further examples by the demand's name.
    """
    lead = f"Invalid schema for {subject} '{{name}}': "
    told = lead.format(name="look")
    return tuple(
        rule(
            f"{id}-{demand.name}",
            make_finder(shapes, demand.problem),
            lead + demand.wording,
            evidence="S",
            passes=asked_in({**STRICT_SCHEMA, **demand.passes}, True),
            offends=asked_in({**STRICT_SCHEMA, **demand.offends}, True),
            says=told + demand.says,
            code=code,
            param="{at}",
            also=(
                *(
                    (asked_in({**STRICT_SCHEMA, **changes}, True), says and told + says)
                    for changes, says in demand.also
                ),
                (asked_in({}, False), ""),
                *((asked, told + says) for asked, says in also.get(demand.name, ())),
                (
                    asked_in({**STRICT_SCHEMA, **demand.offends}, False),
                    "" if demand.name in STRICT_ONLY else told + demand.says,
                ),
            ),
        )
        for demand in SCHEMA_DEMANDS
    )
