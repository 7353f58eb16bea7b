"""Values of a call's arguments by path, with the defaults that the tool's schema gives to what was left out.

Defaults are read wherever they stand: on a field, on the target of its `$ref`, in a member of a union, in
the items of a list, in an object that is itself a default.  A member of a union that the value contradicts
(another type, another constant, a missing field) gives none.

A path is names joined by dots.  A name may have dots of its own, so every reading of a path counts.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from .patterns import fold_text

Schema = dict[str, Any]
SCHEMAS_MAX = 256
DEFAULTS_DEPTH_MAX = 16
"""How many defaults may stand inside one another; a schema that refers to itself has no end."""
UNIONS = ("anyOf", "oneOf")
TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "null": (type(None),),
    "number": (int, float),
    "integer": (int, float),
}


class Place(NamedTuple):
    """A value, and the schemas that describe it."""

    value: object
    schemas: tuple[Any, ...] = ()
    defaults: int = 0
    """How many defaults stand around it."""


class NotPlain:
    """Stands for the values behind a list, for a reader who does not look into lists."""


NOT_PLAIN = NotPlain()


@lru_cache(maxsize=SCHEMAS_MAX)
def read_schema(text: str) -> Schema:
    """The schema as data; an empty one for text that is no object."""
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def resolve_reference(root: Schema, reference: str) -> Schema | None:
    if not reference.startswith("#"):
        return None
    place: Any = root
    for step in reference.removeprefix("#").split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        place = place.get(key) if isinstance(place, Mapping) else None
    return place if isinstance(place, dict) else None


def applied_schemas(root: Schema, place: Place) -> list[Schema]:
    """Every schema that says something about the value: its own, referred to, combined."""
    found: list[Schema] = []
    waiting, followed = list(place.schemas), set[str]()
    while waiting:
        schema = waiting.pop()
        if not isinstance(schema, dict):
            continue
        found.append(schema)
        for name in ("$ref", "$dynamicRef"):
            if isinstance(reference := schema.get(name), str) and reference not in followed:
                followed.add(reference)
                waiting.append(resolve_reference(root, reference))
        waiting.extend(_listed(schema.get("allOf")))
        waiting.extend(schema.get(name) for name in ("then", "else"))
        waiting.extend(_listed(schema.get("dependentSchemas")))
        for name in UNIONS:
            waiting.extend(
                each for each in _listed(schema.get(name)) if not _contradicts(root, each, place.value)
            )
    return found


def values_at(root: Schema, arguments: object, path: str, *, exact: bool) -> Iterator[Place]:
    """The values that the path means.  Unless `exact`, names are folded and lists are looked into."""
    waiting = [(Place(arguments, (root,)), path if exact else fold_text(path))]
    while waiting:
        place, rest = waiting.pop()
        if not rest:
            yield place
        elif isinstance(place.value, list) and exact:
            yield Place(NOT_PLAIN)
        elif isinstance(place.value, list):
            waiting.extend((item, rest) for _, item in members(root, place))
        else:
            for name, member in members(root, place):
                called = name if exact else fold_text(name)
                if called == rest:
                    waiting.append((member, ""))
                elif rest.startswith(f"{called}."):
                    waiting.append((member, rest[len(called) + 1 :]))


def leaves(root: Schema, place: Place) -> Iterator[object]:
    """Every text, number, truth value and null inside a value, defaults included."""
    waiting = [place]
    while waiting:
        each = waiting.pop()
        if isinstance(each.value, dict | list):
            waiting.extend(member for _, member in members(root, each))
        else:
            yield each.value


def members(root: Schema, place: Place) -> Iterator[tuple[str, Place]]:
    """What is in an object, by name, or in a list; of what was left out, every default."""
    value = place.value
    if isinstance(value, list):
        schemas = tuple(_item_schemas(applied_schemas(root, place)))
        yield from (("", Place(item, schemas, place.defaults)) for item in value)
    if not isinstance(value, dict):
        return
    applied = applied_schemas(root, place)
    for name, held in value.items():
        yield name, Place(held, tuple(_child_schemas(applied, name)), place.defaults)
    if place.defaults >= DEFAULTS_DEPTH_MAX:
        return
    listed = (each["properties"] for each in applied if isinstance(each.get("properties"), dict))
    for name in dict.fromkeys(name for properties in listed for name in properties if name not in value):
        schemas = tuple(_child_schemas(applied, name))
        for default in _defaults(root, schemas):
            yield name, Place(default, schemas, place.defaults + 1)


def fill_defaults(root: Schema, arguments: object) -> object:
    """The arguments with every default that was left out, for a reader: of several defaults, the first."""
    return _filled(root, Place(arguments, (root,)))


def _filled(root: Schema, place: Place) -> object:
    if isinstance(place.value, list):
        return [_filled(root, item) for _, item in members(root, place)]
    if not isinstance(place.value, dict):
        return place.value
    filled: dict[str, object] = {}
    for name, member in members(root, place):
        if name not in filled:
            filled[name] = _filled(root, member)
    return filled


def _defaults(root: Schema, schemas: tuple[Any, ...]) -> list[object]:
    """A default beside a reference hides that of its target."""
    own = [each["default"] for each in schemas if isinstance(each, dict) and "default" in each]
    if own:
        return own
    return [each["default"] for each in applied_schemas(root, Place(ANYTHING, schemas)) if "default" in each]


ANYTHING = object()
"""A value nobody knows yet: no member of a union contradicts it."""


def _child_schemas(applied: Iterable[Schema], name: str) -> Iterator[Any]:
    for schema in applied:
        properties, matched = schema.get("properties"), False
        if isinstance(properties, dict) and name in properties:
            matched = True
            yield properties[name]
        patterns = schema.get("patternProperties")
        for pattern, inner in patterns.items() if isinstance(patterns, dict) else ():
            if _searches(pattern, name):
                matched = True
                yield inner
        if not matched:
            yield from (schema.get(key) for key in ("additionalProperties", "unevaluatedProperties"))


def _item_schemas(applied: Iterable[Schema]) -> Iterator[Any]:
    for schema in applied:
        for key in ("items", "additionalItems", "unevaluatedItems", "prefixItems", "contains"):
            yield from _listed(schema.get(key)) if isinstance(schema.get(key), list) else (schema.get(key),)


def _contradicts(root: Schema, schema: Any, value: object) -> bool:
    """This member of a union cannot be the one that is meant."""
    for _ in range(DEFAULTS_DEPTH_MAX):
        if not (isinstance(schema, dict) and isinstance(schema.get("$ref"), str)):
            break
        schema = resolve_reference(root, schema["$ref"])
    if not isinstance(schema, dict) or value is ANYTHING:
        return False
    if _differs(schema, value):
        return True
    if not isinstance(value, dict):
        return False
    required = schema.get("required")
    if isinstance(required, list) and any(isinstance(name, str) and name not in value for name in required):
        return True
    properties = schema.get("properties")
    known = properties.items() if isinstance(properties, dict) else ()
    return any(
        isinstance(each, dict) and name in value and _differs(each, value[name]) for name, each in known
    )


def _differs(schema: Schema, value: object) -> bool:
    kinds = schema.get("type")
    kinds = [kinds] if isinstance(kinds, str) else kinds if isinstance(kinds, list) else []
    if kinds and not any(isinstance(value, TYPES.get(kind, (object,))) for kind in kinds):
        return True
    if "const" in schema:
        return bool(schema["const"] != value)
    return isinstance(schema.get("enum"), list) and value not in schema["enum"]


def _searches(pattern: object, name: str) -> bool:
    try:
        return re.search(str(pattern), name) is not None
    except re.error:
        return True  # an expression of another dialect may match anything


def _listed(several: Any) -> tuple[Any, ...]:
    if isinstance(several, dict):
        return tuple(several.values())
    return tuple(several) if isinstance(several, list) else ()
