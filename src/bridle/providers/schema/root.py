"""Adapts the root of a schema, the part that wires restrict most.

The arguments of a tool are always an object, so the root is made one: a missing type is added, a reference is
followed, and a union becomes one object that accepts what any member accepts. Field names that a wire refuses
at the root are changed and stored in `renamed`, so that arguments can be restored.
"""

import re
from typing import NamedTuple

from .combine import ANNOTATIONS, SchemaAlternatives
from .dialect import SchemaDialect
from .losses import SchemaLosses
from .node import SchemaNode
from .source import SchemaSource

# not from outside: names and requests that we make
NAME_CHARS_MAX = 64
_COMPOSING_KEYWORDS = ("allOf", "anyOf", "oneOf")


class SchemaRoot(NamedTuple):
    node: SchemaNode
    renamed: tuple[tuple[str, str], ...] = ()
    """Names as sent, each with its name in the source."""
    rebuilt: bool = True
    """True if locations in the source no longer lead where they did."""


def build_root(source: SchemaSource, dialect: SchemaDialect, losses: SchemaLosses) -> SchemaRoot:
    root = source.root
    if isinstance(root, bool):
        if not root:
            losses.add("#", "schema", "accepts nothing; any object is accepted")
        return SchemaRoot(SchemaNode({"type": "object"} if dialect.root_object else {}, "#"))
    if not dialect.root_object:
        return SchemaRoot(root, rebuilt=False)
    node = _force_object_type(root, losses)
    composed = [word for word in _COMPOSING_KEYWORDS if word in node and word in dialect.root_refused]
    rebuilt = False
    if composed or "$ref" in node or dialect.is_narrow:
        node = _unite_to_object(node, source, losses, [*composed, "$ref"][0])
        rebuilt = True
    for word in dialect.root_refused:
        if word in node:
            losses.add("#", word, "is refused at the top; left out")
            node = node.without(word)
            rebuilt = True
    changed = _choose_field_names(node, dialect)
    if not changed:
        return SchemaRoot(node, rebuilt=rebuilt)
    return SchemaRoot(
        _rename_fields(node, changed, losses), tuple((new, old) for old, new in changed.items())
    )


def _force_object_type(root: SchemaNode, losses: SchemaLosses) -> SchemaNode:
    declared = root.get("type", "object")
    if declared == "object" and "type" in root:
        return root
    if "object" in declared:
        return SchemaNode({"type": "object", **root.without("type")}, root.at)
    losses.add("#", "type", f"{declared} became object: the arguments of a tool are never anything else")
    return SchemaNode(
        {"type": "object", **{word: root[word] for word in ("title", "description") if word in root}}, root.at
    )


def _unite_to_object(node: SchemaNode, source: SchemaSource, losses: SchemaLosses, word: str) -> SchemaNode:
    alternatives = SchemaAlternatives(source, losses)
    flats = alternatives.expand(node)
    if not flats:
        losses.add("#", "schema", "accepts nothing; any object is accepted")
        return SchemaNode({"type": "object"}, "#")
    if len(flats) > 1:
        losses.add("#", word, "became one object: what only some of its alternatives need is optional")
    joined = alternatives.unite_objects(flats, "#")
    own = {word: node[word] for word in ANNOTATIONS if word in node}
    return SchemaNode({"type": "object", **own, **joined.without("type", *own)}, "#")


def _choose_field_names(node: SchemaNode, dialect: SchemaDialect) -> dict[str, str]:
    changed: dict[str, str] = {}
    taken = {name for name in node.get("properties", {}) if dialect.takes_name(name)}
    for name in node.get("properties", {}):
        if name in taken:
            continue
        base = re.sub(r"[^a-zA-Z0-9_.-]+", "_", name)[:NAME_CHARS_MAX] or "_"
        safe, number = base, 1
        while safe in taken:
            number += 1
            safe = f"{base[: NAME_CHARS_MAX - len(str(number)) - 1]}_{number}"
        taken.add(safe)
        changed[name] = safe
    return changed


def _rename_fields(node: SchemaNode, changed: dict[str, str], losses: SchemaLosses) -> SchemaNode:
    for old, new in changed.items():
        losses.add("#/properties", old, f"is sent as {new} and restored in replies")
    # These constraints refer to fields by name; with other names they would have another meaning.
    rules = (
        "not", "if", "then", "else", "dependentSchemas", "propertyNames", "unevaluatedProperties",
        "patternProperties",
    )  # fmt: skip
    for word in rules:
        if word in node:
            losses.add("#", word, "is left out, because names of fields had to change")
    made = node.without(*rules)
    if "patternProperties" in node:
        made["additionalProperties"] = True
    made["properties"] = {changed.get(name, name): held for name, held in node["properties"].items()}
    if "required" in made:
        made["required"] = [changed.get(name, name) for name in made["required"]]
    if "dependentRequired" in made:
        made["dependentRequired"] = {
            changed.get(name, name): [changed.get(needed, needed) for needed in needs]
            for name, needs in made["dependentRequired"].items()
        }
    return made
