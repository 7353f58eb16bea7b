"""Checks if a strict dialect accepts a schema unchanged.

In doubt the answer is no: a schema that is rewritten or sent as not strict only lets the model deviate, and
its arguments are checked anyway; the other mistake makes the provider refuse the whole request.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from .dialect import SchemaDialect
from .losses import SchemaLosses
from .node import DEFINITION_KEYWORDS, Schema, SchemaNode, iter_children
from .source import SchemaSource
from .values import declared_types, has_type


class SchemaSize(NamedTuple):
    """The quantities that dialects limit."""

    depth: int = 0
    properties: int = 0
    enum_values: int = 0
    characters: int = 0
    long_enum_characters: int = 0
    optional: int = 0
    unions: int = 0


def is_strict_ready_tree(tree: Any, dialect: SchemaDialect) -> bool:
    if not isinstance(tree, dict):
        return False
    losses = SchemaLosses()
    source = SchemaSource(tree, losses)
    root = source.root
    if len(losses) or source.moved or source.mended or not isinstance(root, SchemaNode):
        return False
    if dialect.root_object and root.get("type") != "object":
        return False
    if "$ref" in root or any(word in root for word in dialect.root_refused):
        return False
    if not all(dialect.takes_name(name) for name in root.get("properties", {})):
        return False
    if dialect.recursion == "none" and any(map(source.is_cyclic, source.definitions)):
        return False
    return (
        all(_is_allowed_shape(shape, dialect) for shape in iter_shapes(root))
        and explain_excess(tree, dialect) is None
    )


def iter_shapes(schema: Schema) -> Iterator[Schema]:
    """Yield a schema and all subschemas, definitions included."""
    yield schema
    if isinstance(schema, SchemaNode):
        for word, part in iter_children(schema):
            if word != "additionalProperties" or not isinstance(part, bool):
                yield from iter_shapes(part)
        for word in DEFINITION_KEYWORDS:
            for part in schema.get(word, {}).values():
                yield from iter_shapes(part)


def _is_allowed_shape(shape: Schema, dialect: SchemaDialect) -> bool:
    if isinstance(shape, bool):
        return False
    keywords = [word for word in shape if word not in DEFINITION_KEYWORDS]
    if "$ref" in keywords:
        return keywords == ["$ref"] or dialect.beside_reference == "anything"
    if not all(dialect.tolerates(word) for word in keywords):
        return False
    kinds = declared_types(shape)
    if dialect.typed and "type" not in shape and "anyOf" not in shape:
        return False
    if "enum" in shape and not _are_values_of_types(shape["enum"], kinds):
        return False
    if "object" in kinds or "properties" in shape:
        return _is_allowed_object(shape, dialect) and ("array" not in kinds or "items" in shape)
    if "array" in kinds and "items" not in shape:
        return False
    if dialect.min_items_max is not None and shape.get("minItems", 0) > dialect.min_items_max:
        return False
    if "pattern" in shape and not dialect.takes_pattern(shape["pattern"]):
        return False
    formatted = kinds if "format" in shape else []
    return all(dialect.takes_format(kind, shape["format"]) for kind in formatted if kind != "null")


def _are_values_of_types(values: list[Any], kinds: list[str]) -> bool:
    return bool(values) and all(
        not isinstance(value, list | dict) and any(has_type(value, kind) for kind in kinds)
        for value in values
    )


def _is_allowed_object(shape: SchemaNode, dialect: SchemaDialect) -> bool:
    properties, required = shape.get("properties"), shape.get("required", [])
    if dialect.closed and shape.get("additionalProperties") is not False:
        return False
    if not isinstance(properties, dict) or not set(required) <= set(properties):
        return False
    return not dialect.all_required or len(required) == len(properties)


# ── sizes ───────────────────────────────────────────────────────────────────


def explain_excess(tree: Any, dialect: SchemaDialect) -> str | None:
    """Return the limit that a finished schema exceeds; None if there is none."""
    size = measure_schema(tree, dialect)
    limits = (
        ("levels of nested schemas", size.depth, dialect.depth_max),
        ("fields", size.properties, dialect.properties_max),
        ("values in enums", size.enum_values, dialect.enum_values_max),
        ("characters in names and values", size.characters, dialect.characters_max),
        ("characters in one enum", size.long_enum_characters, dialect.long_enum_characters_max),
        ("optional fields", size.optional, dialect.optional_max),
        ("unions", size.unions, dialect.unions_max),
    )
    for noun, count, limit in limits:
        if limit is not None and count > limit:
            return f"has {count} {noun}; the limit is {limit}"
    return None


def measure_schema(tree: Any, dialect: SchemaDialect) -> SchemaSize:
    found = list(_iter_finished(tree, 0))
    shapes = [shape for shape, _ in found]
    values = [shape.get("enum", []) for shape in shapes]
    texts = [[it for it in listed if isinstance(it, str)] for listed in values]
    names = [name for shape in shapes for word in _NAMED_MEMBERS for name in shape.get(word, {})]
    constants = [shape["const"] for shape in shapes if isinstance(shape.get("const"), str)]
    long = dialect.long_enum_values or 0
    return SchemaSize(
        depth=max((level for _, level in found), default=0),
        properties=sum(len(shape.get("properties", {})) for shape in shapes),
        enum_values=sum(map(len, values)),
        characters=sum(map(len, [*names, *constants, *(text for listed in texts for text in listed)])),
        long_enum_characters=max(
            (sum(map(len, listed)) for listed in texts if len(listed) > long), default=0
        ),
        optional=sum(
            name not in shape.get("required", []) for shape in shapes for name in shape.get("properties", {})
        ),
        unions=sum("anyOf" in shape or isinstance(shape.get("type"), list) for shape in shapes),
    )


def _iter_finished(tree: Any, level: int) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield every subschema of a finished schema with its nesting depth in objects and arrays."""
    if not isinstance(tree, dict):
        return
    types = tree.get("type")
    level += any(kind in ("object", "array") for kind in ([types] if isinstance(types, str) else types or []))
    yield tree, level
    for word in _NAMED_MEMBERS:
        for part in tree.get(word, {}).values():
            yield from _iter_finished(part, level if word == "properties" else 0)
    for part in [*tree.get("anyOf", []), tree.get("items")]:
        yield from _iter_finished(part, level)


_NAMED_MEMBERS = ("properties", "$defs", "definitions")
