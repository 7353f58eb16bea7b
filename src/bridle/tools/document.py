"""JSON Schema as data: walking it, sharing its definitions, writing it down.

A schema is sent with every request, so its text must not depend on the process that
wrote it: keys stay in the order in which they were put, and nothing is ever a set.

A definition used in one place only is written in that place; `$defs` keeps what is used
twice or refers to itself.  Models read nested objects better than references, and some
providers do not follow them.  The top is never a reference: all of them want to see an
object there.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

Schema = dict[str, Any]

_ONE = (
    "items", "additionalItems", "additionalProperties", "propertyNames", "contains", "not",
    "if", "then", "else", "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip
_SEVERAL = ("anyOf", "oneOf", "allOf", "prefixItems", "items")
_NAMED = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")

REFERENCE = "#/$defs/"


def schema_text(schema: Schema) -> str:
    return msgspec.json.encode(schema).decode()


def mapped(schema: Schema, change: Callable[[Schema], Schema]) -> Schema:
    """The schema with `change` made to every schema in it, the innermost first."""
    made: Schema = {}
    for key, held in schema.items():
        if key in _ONE and isinstance(held, dict):
            made[key] = mapped(held, change)
        elif key in _SEVERAL and isinstance(held, list):
            made[key] = [mapped(item, change) if isinstance(item, dict) else item for item in held]
        elif key in _NAMED and isinstance(held, dict):
            made[key] = {
                name: mapped(item, change) if isinstance(item, dict) else item for name, item in held.items()
            }
        else:
            made[key] = held
    return change(made)


def optional_without_default(schema: Schema) -> set[str]:
    """Names of properties, at any depth, that may be left out and have no default in the schema."""
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

    mapped(schema, look)
    return found


def referring(schema: Schema, renamed: Callable[[str], str]) -> Schema:
    """The schema with every `$ref` rewritten."""

    def change(part: Schema) -> Schema:
        reference = part.get("$ref")
        return {**part, "$ref": renamed(reference)} if isinstance(reference, str) else part

    return mapped(schema, change)


def with_definitions(root: Schema, definitions: dict[str, Schema]) -> Schema:
    """One document: definitions used once go where they are used, the others to `$defs`."""
    uses = Counter(_references(root))
    waiting = list(uses)
    reached: dict[str, Schema] = {}
    while waiting:
        name = waiting.pop(0)
        if name not in reached:
            reached[name] = definitions[name]
            inner = list(_references(definitions[name]))
            uses.update(inner)
            waiting.extend(inner)
    inlined = {name for name in reached if uses[name] == 1 and not _reaches(name, definitions)}

    def placed(part: Schema) -> Schema:
        name = _name(part)
        if name not in inlined:
            return part
        beside = {key: held for key, held in part.items() if key != "$ref"}
        return {**mapped(definitions[name], placed), **beside}

    top = mapped(root, placed)
    name = _name(top)
    if name:
        beside = {key: held for key, held in top.items() if key != "$ref"}
        top = {**mapped(definitions[name], placed), **beside}
    # Counted again: copying the top out of its definition may have left nobody who refers to it.
    shared = {name: mapped(reached[name], placed) for name in sorted(reached) if name not in inlined}
    return {**top, "$defs": shared} if _needed(top, shared) else top


def _needed(top: Schema, shared: dict[str, Schema]) -> bool:
    """Drops from `shared` what cannot be reached from the top; tells whether anything is left."""
    waiting, seen = list(_references(top)), set[str]()
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting.extend(_references(shared[name]))
    for name in list(shared):
        if name not in seen:
            del shared[name]
    return bool(shared)


def _reaches(name: str, definitions: dict[str, Schema]) -> bool:
    """Whether a definition leads back to itself."""
    waiting, seen = list(_references(definitions[name])), set[str]()
    while waiting:
        next_name = waiting.pop()
        if next_name == name:
            return True
        if next_name not in seen:
            seen.add(next_name)
            waiting.extend(_references(definitions[next_name]))
    return False


def _references(schema: Schema) -> Iterator[str]:
    found: list[str] = []

    def note(part: Schema) -> Schema:
        found.extend(filter(None, [_name(part)]))
        return part

    mapped(schema, note)
    return iter(found)


def _name(schema: Schema) -> str:
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith(REFERENCE):
        return reference.removeprefix(REFERENCE)
    return ""
