"""What a provider that compiles an answer's schema cannot compile; shared by the families that do.

The finders take the places of schemas and the schemas, and return what a rule's wording names.
"""

from collections.abc import Iterable, Iterator, Mapping

from ._rules_reading import Block, listed, mapping
from .rules import Found

Placed = tuple[str, Block]
"""A place in the request and the schema that stands there."""
OPTIONAL_MAX, UNIONS_MAX = 24, 16
BOUNDS = (
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "maxItems",
)
OPEN = "{at}: For 'object' type, 'additionalProperties' must be explicitly set to false"
BOUNDED = "{at}: For '{type}' type, property '{bound}' is not supported"
CIRCULAR = (
    "{at}: Invalid schema: Circular reference detected in schema definitions: {circle}."
    " Self-referencing or mutually-referencing definitions are not supported."
)
OPTIONAL = (
    "Schemas contains too many optional parameters ({count}), which would make grammar compilation"
    " inefficient. Reduce the number of optional parameters in your tool schemas (limit: 24)."
)
UNIONS = (
    "Schemas contains too many parameters with union types ({count} parameters with type arrays or anyOf),"
    " which would make grammar compilation inefficient. Reduce the number of nullable or union-typed"
    " parameters (limit: 16)."
)
ROOT = "#"


def walk_schemas(schema: object) -> Iterator[Block]:
    """A schema and every schema inside it."""
    if not isinstance(schema, Mapping):
        return
    yield schema
    for key in ("properties", "$defs", "definitions"):
        for inner in mapping(schema.get(key)).values():
            yield from walk_schemas(inner)
    for key in ("anyOf", "allOf", "oneOf", "prefixItems"):
        for inner in listed(schema.get(key)):
            yield from walk_schemas(inner)
    for key in ("items", "additionalProperties"):
        yield from walk_schemas(schema.get(key))


def find_open_object(placed: Iterable[Placed]) -> Found | None:
    for place, root in placed:
        for schema in walk_schemas(root):
            if schema.get("type") == "object" and schema.get("additionalProperties") is not False:
                return {"at": place}
    return None


def find_bound(placed: Iterable[Placed]) -> Found | None:
    for place, root in placed:
        for schema in walk_schemas(root):
            kind = schema.get("type")
            bound = next((name for name in BOUNDS if name in schema), None)
            if isinstance(kind, str) and bound:
                return {"at": place, "type": kind, "bound": bound}
    return None


def find_circle(placed: Iterable[Placed]) -> Found | None:
    for place, root in placed:
        definitions = {**mapping(root.get("definitions")), **mapping(root.get("$defs"))}
        reach = {name: set(_references(inner)) for name, inner in definitions.items()}
        own = {key: value for key, value in root.items() if key not in ("definitions", "$defs")}
        reach[ROOT] = set(_references(own))
        for name in reach:
            path = _way_back(name, reach)
            if path:
                return {"at": place, "circle": " -> ".join(path)}
    return None


def find_many_optional(placed: Iterable[Placed]) -> Found | None:
    count = 0
    for _, root in placed:
        for schema in walk_schemas(root):
            required = listed(schema.get("required"))
            count += sum(name not in required for name in mapping(schema.get("properties")))
    return {"count": count} if count > OPTIONAL_MAX else None


def find_many_unions(placed: Iterable[Placed]) -> Found | None:
    count = sum(
        "anyOf" in schema or isinstance(schema.get("type"), list)
        for _, root in placed
        for schema in walk_schemas(root)
    )
    return {"count": count} if count > UNIONS_MAX else None


def _references(schema: object) -> Iterator[str]:
    for inner in walk_schemas(schema):
        reference = inner.get("$ref")
        if isinstance(reference, str):
            yield reference.rpartition("/")[2]


def _way_back(start: str, reach: Mapping[str, set[str]]) -> list[str] | None:
    """The shortest way from a definition to itself; nothing when there is none."""
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


# --- examples -----------------------------------------------------------------------------------


def closed(**properties: object) -> dict[str, object]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def with_optional(count: int) -> dict[str, object]:
    fields: dict[str, object] = {f"p{number}": {"type": "string"} for number in range(count)}
    return {**closed(**fields), "required": []}


def with_unions(count: int) -> dict[str, object]:
    """Unions in both spellings in turn."""
    spellings: tuple[dict[str, object], ...] = (
        {"type": ["string", "null"]},
        {"anyOf": [{"type": "string"}, {"type": "null"}]},
    )
    return closed(**{f"p{number}": spellings[number % 2] for number in range(count)})


def defining(**references: str) -> dict[str, object]:
    """Definitions of which each may hold another one."""
    definitions = {
        name: closed(next={"$ref": f"#/$defs/{other}"}) if other else {"type": "string"}
        for name, other in references.items()
    }
    return {**closed(), "$defs": definitions}
