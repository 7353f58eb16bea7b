"""Transforms and encodes JSON Schema documents.

A schema is sent with every request, so its text must not depend on the process: keys stay in insertion order, and
no sets are used.

A definition used only once is inlined; `$defs` holds those used twice or recursively.  Models read nested objects
better than references, and some providers do not resolve them.  The top level is never a reference, because all
providers require an object there.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

Schema = dict[str, Any]

_SCHEMA_KEYWORDS = (
    "items", "additionalItems", "additionalProperties", "propertyNames", "contains", "not",
    "if", "then", "else", "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip
_SCHEMA_LIST_KEYWORDS = ("anyOf", "oneOf", "allOf", "prefixItems", "items")
_SCHEMA_MAP_KEYWORDS = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")

REFERENCE_PREFIX = "#/$defs/"


def encode_schema(schema: Schema) -> str:
    return msgspec.json.encode(schema).decode()


def map_schema(schema: Schema, change: Callable[[Schema], Schema]) -> Schema:
    """Apply `change` to every nested schema, innermost first."""
    made: Schema = {}
    for key, held in schema.items():
        if key in _SCHEMA_KEYWORDS and isinstance(held, dict):
            made[key] = map_schema(held, change)
        elif key in _SCHEMA_LIST_KEYWORDS and isinstance(held, list):
            made[key] = [map_schema(item, change) if isinstance(item, dict) else item for item in held]
        elif key in _SCHEMA_MAP_KEYWORDS and isinstance(held, dict):
            made[key] = {
                name: map_schema(item, change) if isinstance(item, dict) else item
                for name, item in held.items()
            }
        else:
            made[key] = held
    return change(made)


def optional_without_default(schema: Schema) -> set[str]:
    """Names of optional properties without a default, at any depth."""
    found: set[str] = set()

    def look(part: Schema) -> Schema:
        properties = part.get("properties")
        if isinstance(properties, dict):
            needed = part.get("required") or ()
            found.update(
                name
                for name, held in properties.items()
                if name not in needed and isinstance(held, dict) and "default" not in held
            )
        return part

    map_schema(schema, look)
    return found


def rewrite_references(schema: Schema, renamed: Callable[[str], str]) -> Schema:
    """Rewrite every `$ref` of a schema."""

    def change(part: Schema) -> Schema:
        reference = part.get("$ref")
        return {**part, "$ref": renamed(reference)} if isinstance(reference, str) else part

    return map_schema(schema, change)


def place_definitions(root: Schema, definitions: dict[str, Schema]) -> Schema:
    """Make one document: inline definitions used once, put the others in `$defs`."""
    uses = Counter(_list_references(root))
    waiting = list(uses)
    reached: dict[str, Schema] = {}
    while waiting:
        name = waiting.pop(0)
        if name not in reached:
            reached[name] = definitions[name]
            inner = list(_list_references(definitions[name]))
            uses.update(inner)
            waiting.extend(inner)
    inlined = {name for name in reached if uses[name] == 1 and not _is_recursive(name, definitions)}

    def placed(part: Schema) -> Schema:
        name = _reference_name(part)
        if name not in inlined:
            # The name of the definition says what the title says.
            return {key: held for key, held in part.items() if key != "title"} if name else part
        beside = {key: held for key, held in part.items() if key != "$ref"}
        return {**map_schema(definitions[name], placed), **beside}

    top = map_schema(root, placed)
    name = _reference_name(top)
    if name:
        beside = {key: held for key, held in top.items() if key != "$ref"}
        top = {**map_schema(definitions[name], placed), **beside}
    # Counted again: inlining the top may have removed the last reference to a definition.
    shared = {name: map_schema(reached[name], placed) for name in sorted(reached) if name not in inlined}
    return {**top, "$defs": shared} if _drop_unreachable(top, shared) else top


def _drop_unreachable(top: Schema, shared: dict[str, Schema]) -> bool:
    """Remove unreachable definitions from `shared`; True if any are left."""
    waiting, seen = list(_list_references(top)), set[str]()
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting.extend(_list_references(shared[name]))
    for name in list(shared):
        if name not in seen:
            del shared[name]
    return bool(shared)


def _is_recursive(name: str, definitions: dict[str, Schema]) -> bool:
    """True if a definition refers to itself, directly or indirectly."""
    waiting, seen = list(_list_references(definitions[name])), set[str]()
    while waiting:
        next_name = waiting.pop()
        if next_name == name:
            return True
        if next_name not in seen:
            seen.add(next_name)
            waiting.extend(_list_references(definitions[next_name]))
    return False


def _list_references(schema: Schema) -> Iterator[str]:
    found: list[str] = []

    def note(part: Schema) -> Schema:
        found.extend(filter(None, [_reference_name(part)]))
        return part

    map_schema(schema, note)
    return iter(found)


def _reference_name(schema: Schema) -> str:
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith(REFERENCE_PREFIX):
        return reference.removeprefix(REFERENCE_PREFIX)
    return ""
