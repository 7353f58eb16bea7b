"""Rules of both OpenAI wires about schemas: always an object, and more if they are strict.

The validator names a place inside a schema by its keys, as in `('properties', 'city')`. It reports the first
place with a problem, objects before their contents.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from bridle.sim.rules.engine import ProviderRule, RawRequest, RuleFinding
from bridle.sim.rules.raw_request import JsonObject, as_list, as_mapping

from .error_style import rule

FORMATS = ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid")
"""Formats that a strict schema may use."""
FORBIDDEN = ("allOf", "oneOf", "not", "if", "then", "else", "dependentRequired", "dependentSchemas",
             "patternProperties", "uniqueItems", "propertyNames", "unevaluatedProperties")  # fmt: skip
_GROUPS = ("properties", "$defs", "definitions")
_ALTERNATIVES = ("anyOf",)


class RequestSchema(NamedTuple):
    """A schema in a request."""

    name: str
    """Name of the function or of the answer format."""
    schema: object
    is_strict: bool
    at: str = ""
    """Path of the schema in the request."""


class SchemaPlace(NamedTuple):
    keys: tuple[str, ...]
    schema: JsonObject

    @property
    def shown(self) -> str:
        return str(self.keys)


def walk_schema(schema: object, keys: tuple[str, ...] = ()) -> Iterator[SchemaPlace]:
    """Yield a schema and every schema inside it."""
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
    """Find a schema that is not an object; an empty schema is accepted."""
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


class SchemaDemand(NamedTuple):
    name: str
    problem: SchemaCheck
    wording: str


SCHEMA_DEMANDS = (
    SchemaDemand(
        "object",
        find_non_object,
        "schema must be a JSON Schema of 'type: \"object\"', got 'type: \"{type}\"'.",
    ),
    SchemaDemand("items", find_array_without_items, "In context={context}, array schema missing items."),
    SchemaDemand(
        "closed",
        find_open_object,
        "In context={context}, 'additionalProperties' is required to be supplied and to be false.",
    ),
    SchemaDemand(
        "complete",
        find_optional_property,
        "In context={context}, 'required' is required to be supplied and to be an array including every key"
        " in properties. Missing '{key}'.",
    ),
    SchemaDemand("format", find_unknown_format, "In context={context}, '{format}' is not a valid format."),
    SchemaDemand("words", find_forbidden_keyword, "In context={context}, '{word}' is not permitted."),
)


def make_finder(shapes: SchemaLister, problem: SchemaCheck) -> Callable[[RawRequest], RuleFinding | None]:
    def find(request: RawRequest) -> RuleFinding | None:
        for shape in shapes(request):
            found = problem(shape)
            if found is not None:
                return {"name": shape.name, "at": shape.at, **found}
        return None

    return find


def schema_rules(id_: str, subject: str, code: str, shapes: SchemaLister) -> tuple[ProviderRule, ...]:
    """Make one rule for each demand on the schemas of a request."""
    lead = f"Invalid schema for {subject} '{{name}}': "
    return tuple(
        rule(
            f"{id_}-{demand.name}",
            make_finder(shapes, demand.problem),
            lead + demand.wording,
            evidence="S",
            code=code,
            param="{at}",
        )
        for demand in SCHEMA_DEMANDS
    )
