"""Reads a schema into one form: JSON Schema 2020-12 with every reference resolved.

Keywords of older drafts are converted. Invalid parts (an unknown type, a bound that is not a number, a
reference out of the document) are dropped and recorded as losses: such a schema is broken for the check of
arguments as well, and the request must still be sent.

A reference that leads to itself without a field or item in between is vacuous and dropped too, so that every
remaining cycle passes through a field or an item and following references terminates.

Dropping a constraint only accepts more values, except inside "not" and "oneOf"; there the whole constraint is
dropped instead.

References are not resolved by copying. A reference becomes the location it points to, and `definitions` holds
the schema at that location, so that a recursive schema stays finite.
"""

import re
from collections.abc import Callable
from typing import Any, TypeAlias
from urllib.parse import unquote, urljoin

from .cycles import ReferenceGraph, cut_cycles
from .losses import SchemaLosses, abbreviate_json
from .node import (
    DEFINITION_KEYWORDS,
    SCHEMA_LIST_KEYWORDS,
    SCHEMA_MAP_KEYWORDS,
    SINGLE_SCHEMA_KEYWORDS,
    Schema,
    SchemaNode,
    escape_pointer_step,
)

DEPTH_MAX = 63
"""Levels of nesting; the check of arguments cannot read a deeper schema either."""

TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
COUNTS = frozenset(
    {"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"}
    | {"minContains", "maxContains"}
)
_REF_EXCLUSIVE_DRAFTS = ("draft-03", "draft-04", "draft-06", "draft-07")
"""Drafts in which keywords beside a reference have no meaning."""


SchemaTree: TypeAlias = dict[str, Any] | bool
"""A schema as parsed from JSON."""


class SchemaSource:
    """A normalised schema: `root`, and the `definitions` it refers to by location."""

    def __init__(self, tree: SchemaTree, losses: SchemaLosses) -> None:
        self._tree = tree
        self._losses = losses
        self._refers_alone = isinstance(tree, dict) and any(
            draft in str(tree.get("$schema")) for draft in _REF_EXCLUSIVE_DRAFTS
        )
        self._named_places: dict[str, str] | None = None
        self._bases: frozenset[str] | None = None
        self._waiting: list[str] = []
        self.mended = False
        """True if an invalid value was replaced by one that only this reader understands."""
        self.moved = False
        """True if a subschema is not where it is in the source, so that locations no longer lead to it."""
        self.definitions: dict[str, Schema] = {}
        loosened: set[str] = set()
        self.root: Schema = self._read_schema(tree, "#", "", 0)
        while self._waiting:
            place = self._waiting.pop()
            before = len(losses)
            self.definitions[place] = self._read_schema(
                self._resolve_pointer(place[1:]), place, self._find_base(place), 0
            )
            if len(losses) > before:
                loosened.add(place)
        cut_cycles(self.root, self.definitions, loosened, losses)
        self._leads = ReferenceGraph(self.definitions)

    def reachable_definitions(self, place: str) -> frozenset[str]:
        """Return the locations a definition refers to, directly or indirectly."""
        return self._leads.targets(place)

    def is_cyclic(self, place: str) -> bool:
        return self._leads.is_cyclic(place)

    def leads_to_cycle(self, place: str) -> bool:
        return any(map(self.is_cyclic, (place, *self.reachable_definitions(place))))

    # ── reading ─────────────────────────────────────────────────────────────

    def _read_schema(self, raw: object, at: str, base: str, depth: int) -> Schema:
        if isinstance(raw, bool):
            return raw
        if not isinstance(raw, dict):
            self._losses.add(at, "schema", f"is {_json_type(raw)}, not a schema; anything is accepted here")
            return True
        if depth > DEPTH_MAX:
            self._losses.add(at, "schema", "is nested too deep; anything is accepted from here on")
            return True
        if depth and isinstance(raw.get("$id"), str) and not raw["$id"].startswith("#"):
            base = at[1:]
        node = SchemaNode({}, at)
        alone = self._refers_alone and "$ref" in raw
        for keyword, value in raw.items():
            if alone and keyword in _KNOWN_KEYWORDS and keyword not in DEFINITION_KEYWORDS:
                self.moved = True  # older drafts ignore it; the current one would apply it
                continue
            self._read_member(node, keyword, value, base, depth)
        self._upgrade_keywords(node)
        return node

    def _read_member(self, node: SchemaNode, keyword: str, value: Any, base: str, depth: int) -> None:
        before = len(self._losses)
        held = self._read_value(keyword, value, f"{node.at}/{escape_pointer_step(keyword)}", base, depth)
        if held is None and keyword in _KNOWN_KEYWORDS:
            self._losses.add(node.at, keyword, f"{abbreviate_json(value)} is not a valid value; left out")
            return
        if len(self._losses) > before and keyword in ("not", "if"):
            self._losses.add(node.at, keyword, "cannot be kept with part of it missing; left out")
            return
        if len(self._losses) > before and keyword == "oneOf":
            self._losses.add(node.at, keyword, "became anyOf, because part of it is missing")
            if "anyOf" in node:
                return
            keyword = "anyOf"
        self.mended |= keyword in _CHECKS and held != value
        node[keyword] = held

    def _read_value(self, keyword: str, value: Any, at: str, base: str, depth: int) -> Any:
        if keyword == "$ref":
            return self._read_reference(value, at, base)
        if keyword == "items" and isinstance(value, list):
            return [self._read_schema(item, f"{at}/{n}", base, depth + 1) for n, item in enumerate(value)]
        if keyword in SINGLE_SCHEMA_KEYWORDS:
            return self._read_schema(value, at, base, depth + 1)
        if keyword in SCHEMA_LIST_KEYWORDS:
            parts = value if isinstance(value, list) else []
            return [
                self._read_schema(item, f"{at}/{n}", base, depth + 1) for n, item in enumerate(parts)
            ] or None
        if keyword in SCHEMA_MAP_KEYWORDS or (keyword == "dependencies" and isinstance(value, dict)):
            return self._read_named(keyword, value, at, base, depth)
        check = _CHECKS.get(keyword)
        return check(value) if check else value

    def _read_named(self, keyword: str, value: Any, at: str, base: str, depth: int) -> dict[str, Any] | None:
        if not isinstance(value, dict):
            return None
        return {
            name: _check_names(item)
            if keyword == "dependencies" and isinstance(item, list)
            else self._read_schema(item, f"{at}/{escape_pointer_step(name)}", base, depth + 1)
            for name, item in value.items()
        }

    def _upgrade_keywords(self, node: SchemaNode) -> None:
        if node.get("$ref") == "":
            del node["$ref"]
        if isinstance(node.get("items"), list):
            tuple_items = node.pop("items")
            node["prefixItems"] = tuple_items or node.get("prefixItems", [True])
            rest = node.pop("additionalItems", True)
            if rest is not True:
                node["items"] = rest
            self.moved = True
        for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
            if isinstance(node.get(exclusive), bool):
                if node.pop(exclusive) and bound in node:
                    node[exclusive] = node.pop(bound)
                self.moved = True
        if isinstance(node.get("dependencies"), dict):
            for name, needs in node.pop("dependencies").items():
                kind = "dependentRequired" if isinstance(needs, list) else "dependentSchemas"
                node.setdefault(kind, {})[name] = needs
            self.moved = True

    # ── references ──────────────────────────────────────────────────────────

    def _read_reference(self, reference: Any, at: str, base: str) -> str:
        """Return the location a reference points to; empty if there is none in this document."""
        place = self._resolve_reference(reference, base) if isinstance(reference, str) else None
        if place is None:
            self._losses.add(
                at, "$ref", f"{abbreviate_json(reference)} points outside the schema; anything is accepted"
            )
            return ""
        if place not in self.definitions:
            self.definitions[place] = True
            self._waiting.append(place)
        return place

    def _resolve_reference(self, reference: str, base: str) -> str | None:
        resource, _, fragment = reference.partition("#")
        fragment = unquote(fragment)
        if resource:
            root_id = str(self._tree.get("$id", "")) if isinstance(self._tree, dict) else ""
            places = self._named_shapes()
            found = places.get(resource, places.get(_join_url(root_id, resource)))
            if found is None:
                return None
            base = found
        if fragment and not fragment.startswith("/"):
            found = self._named_shapes().get(f"#{fragment}")
            return None if found is None else f"#{found}"
        pointer = base + fragment
        return f"#{pointer}" if self._resolve_pointer(pointer) is not _MISSING else None

    def _resolve_pointer(self, pointer: str) -> object:
        held: object = self._tree
        for escaped in pointer.split("/")[1:]:
            name = escaped.replace("~1", "/").replace("~0", "~")
            if isinstance(held, dict) and name in held:
                held = held[name]
            elif isinstance(held, list) and _INDEX.fullmatch(name) and int(name) < len(held):
                held = held[int(name)]
            else:
                return _MISSING
        return held

    def _find_base(self, place: str) -> str:
        """Return the innermost enclosing schema with an `$id`; empty for the root."""
        bases = self._named_bases()
        end = place.rfind("/")
        while end > 0:
            if place[1:end] in bases:
                return place[1:end]
            end = place.rfind("/", 0, end)
        return ""

    def _named_bases(self) -> frozenset[str]:
        if self._bases is None:
            self._bases = frozenset(self._named_shapes().values())
        return self._bases

    def _named_shapes(self) -> dict[str, str]:
        """Map each `$id` and anchor to the location of its schema."""
        if self._named_places is None:
            self._named_places = {}
            waiting: list[tuple[str, object]] = [("", self._tree)]
            while waiting:
                at, held = waiting.pop()
                if isinstance(held, dict):
                    for key, prefix in (("$id", ""), ("id", ""), ("$anchor", "#"), ("$dynamicAnchor", "#")):
                        if isinstance(name := held.get(key), str):
                            self._named_places.setdefault(prefix + name.removesuffix("#"), at)
                    waiting.extend(
                        (f"{at}/{escape_pointer_step(name)}", inner) for name, inner in held.items()
                    )
                elif isinstance(held, list):
                    waiting.extend((f"{at}/{n}", inner) for n, inner in enumerate(held))
        return self._named_places


# ── which values a keyword may have ─────────────────────────────────────────


def _check_types(value: Any) -> Any:
    if isinstance(value, str):
        return value.lower() if value.lower() in TYPES else None
    if not isinstance(value, list):
        return None
    known = [name.lower() for name in value if isinstance(name, str) and name.lower() in TYPES]
    # An unknown type may have stood for anything: the others alone would refuse values it accepted.
    return list(dict.fromkeys(known)) if known and len(known) == len(value) else None


def _check_names(value: Any) -> list[str] | None:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        return None
    return list(dict.fromkeys(value))


def _check_count(value: Any) -> int | None:
    whole = isinstance(value, int | float) and not isinstance(value, bool) and value == int(value) >= 0
    return int(value) if whole else None


def _check_number(value: Any) -> int | float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _check_bound(value: Any) -> int | float | None:
    return value if isinstance(value, int | float) else None


def _check_positive(value: Any) -> int | float | None:
    number = _check_number(value)
    return number if number is not None and number > 0 else None


def _check_text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _check_list(value: Any) -> list[Any] | None:
    return value if isinstance(value, list) else None


def _check_dependencies(value: Any) -> dict[str, list[str]] | None:
    if not isinstance(value, dict):
        return None
    needs = {name: _check_names(needed) for name, needed in value.items()}
    return {name: needed for name, needed in needs.items() if needed is not None}


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "type": _check_types,
    "enum": _check_list,
    "required": _check_names,
    "dependentRequired": _check_dependencies,
    "uniqueItems": lambda value: value if isinstance(value, bool) else None,
    "multipleOf": _check_positive,
    "exclusiveMinimum": _check_bound,
    "exclusiveMaximum": _check_bound,
    **dict.fromkeys(("minimum", "maximum"), _check_number),
    **dict.fromkeys(COUNTS, _check_count),
    **dict.fromkeys(("pattern", "format", "title", "description"), _check_text),
}
_KNOWN_KEYWORDS = frozenset(_CHECKS) | SINGLE_SCHEMA_KEYWORDS | SCHEMA_LIST_KEYWORDS | SCHEMA_MAP_KEYWORDS
_MISSING = object()
_INDEX = re.compile("[0-9]{1,9}")


def _join_url(base: str, resource: str) -> str:
    try:
        return urljoin(base, resource)
    except ValueError:  # an invalid address is the name of nothing
        return resource


def _json_type(value: object) -> str:
    kinds = {list: "a list", str: "a string", type(None): "null"}
    return kinds.get(type(value), "a number")
