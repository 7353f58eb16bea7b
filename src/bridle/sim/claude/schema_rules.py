"""Rules about schemas that Claude models compile: those of strict tools and of answers."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from bridle.sim.rules.engine import ProviderRule, RawRequest, RuleFinding
from bridle.sim.rules.raw_request import JsonObject, as_list, as_mapping

PlacedSchema = tuple[str, JsonObject]
"""A path in the request and the schema at that path."""
SchemaCheck = Callable[[Iterable[PlacedSchema]], RuleFinding | None]
"""Returns the values for a rule's wording."""
OPTIONAL_MAX, UNIONS_MAX = 24, 16
UNSUPPORTED_BOUNDS = (
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "maxItems",
)
OPEN_MESSAGE = "{at}: For 'object' type, 'additionalProperties' must be explicitly set to false"
BOUND_MESSAGE = "{at}: For '{type}' type, property '{bound}' is not supported"
CIRCULAR_MESSAGE = (
    "{at}: Invalid schema: Circular reference detected in schema definitions: {circle}."
    " Self-referencing or mutually-referencing definitions are not supported."
)
OPTIONAL_MESSAGE = (
    "Schemas contains too many optional parameters ({count}), which would make grammar compilation"
    " inefficient. Reduce the number of optional parameters in your tool schemas (limit: 24)."
)
UNIONS_MESSAGE = (
    "Schemas contains too many parameters with union types ({count} parameters with type arrays or anyOf),"
    " which would make grammar compilation inefficient. Reduce the number of nullable or union-typed"
    " parameters (limit: 16)."
)
ROOT = "#"


def walk_schemas(schema: object) -> Iterator[JsonObject]:
    """Yield a schema and every schema inside it."""
    if not isinstance(schema, Mapping):
        return
    yield schema
    for key in ("properties", "$defs", "definitions"):
        for inner in as_mapping(schema.get(key)).values():
            yield from walk_schemas(inner)
    for key in ("anyOf", "allOf", "oneOf", "prefixItems"):
        for inner in as_list(schema.get(key)):
            yield from walk_schemas(inner)
    for key in ("items", "additionalProperties"):
        yield from walk_schemas(schema.get(key))


def find_open_object(placed: Iterable[PlacedSchema]) -> RuleFinding | None:
    for place, root in placed:
        for schema in walk_schemas(root):
            if schema.get("type") == "object" and schema.get("additionalProperties") is not False:
                return {"at": place}
    return None


def find_bound(placed: Iterable[PlacedSchema]) -> RuleFinding | None:
    for place, root in placed:
        for schema in walk_schemas(root):
            kind = schema.get("type")
            bound = next((name for name in UNSUPPORTED_BOUNDS if name in schema), None)
            if isinstance(kind, str) and bound:
                return {"at": place, "type": kind, "bound": bound}
    return None


def find_circle(placed: Iterable[PlacedSchema]) -> RuleFinding | None:
    for place, root in placed:
        definitions = {**as_mapping(root.get("definitions")), **as_mapping(root.get("$defs"))}
        reach = {name: set(_list_references(inner)) for name, inner in definitions.items()}
        own = {key: value for key, value in root.items() if key not in ("definitions", "$defs")}
        reach[ROOT] = set(_list_references(own))
        for name in reach:
            path = _find_cycle(name, reach)
            if path:
                return {"at": place, "circle": " -> ".join(path)}
    return None


def find_many_optional(placed: Iterable[PlacedSchema]) -> RuleFinding | None:
    count = 0
    for _, root in placed:
        for schema in walk_schemas(root):
            required = as_list(schema.get("required"))
            count += sum(name not in required for name in as_mapping(schema.get("properties")))
    return {"count": count} if count > OPTIONAL_MAX else None


def find_many_unions(placed: Iterable[PlacedSchema]) -> RuleFinding | None:
    count = sum(
        "anyOf" in schema or isinstance(schema.get("type"), list)
        for _, root in placed
        for schema in walk_schemas(root)
    )
    return {"count": count} if count > UNIONS_MAX else None


def _list_references(schema: object) -> Iterator[str]:
    for inner in walk_schemas(schema):
        reference = inner.get("$ref")
        if isinstance(reference, str):
            yield reference.rpartition("/")[2]


def _find_cycle(start: str, reach: Mapping[str, set[str]]) -> list[str] | None:
    """Return the shortest path from a definition to itself, or None."""
    paths = [[start]]
    seen: set[str] = set()
    for path in paths:
        for name in sorted(reach.get(path[-1], ())):
            if name == start:
                return [*path, name]
            if name not in seen:
                seen.add(name)
                paths.append([*path, name])
    return None


SchemaLister = Callable[[RawRequest], Iterator[PlacedSchema]]


def make_schema_rules(
    rule: Callable[..., ProviderRule],
    list_answers: SchemaLister,
    list_strict_tools: SchemaLister,
    evidence: Mapping[str, str],
    prefix: str = "",
) -> tuple[ProviderRule, ...]:
    """Make the rules that `evidence` names by id, in its order; `prefix` precedes each message of a model."""

    def list_both(request: RawRequest) -> Iterator[PlacedSchema]:
        yield from list_strict_tools(request)
        yield from list_answers(request)

    checks: Mapping[str, tuple[SchemaLister, SchemaCheck, str]] = {
        "optional-most": (list_both, find_many_optional, OPTIONAL_MESSAGE),
        "unions-most": (list_both, find_many_unions, UNIONS_MESSAGE),
        "tool-schema-circle": (list_strict_tools, find_circle, CIRCULAR_MESSAGE),
        "format-closed": (list_answers, find_open_object, OPEN_MESSAGE),
        "format-bounds": (list_answers, find_bound, BOUND_MESSAGE),
        "format-circle": (list_answers, find_circle, CIRCULAR_MESSAGE),
    }

    def make(id_: str) -> ProviderRule:
        list_schemas, check, wording = checks[id_.removeprefix("tools-")]
        made: ProviderRule = rule(
            id_, lambda request: check(list_schemas(request)), prefix + wording, evidence=evidence[id_]
        )
        return made

    return tuple(map(make, evidence))
