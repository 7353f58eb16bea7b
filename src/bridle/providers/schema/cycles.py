"""Finds cycles of references and cuts those that pass through no field or item.

A reference that leads to itself without a field or item in between is vacuous. It is dropped, so that every
remaining cycle passes through a field or an item and following references terminates. A constraint that
becomes stricter when something inside it accepts more ("not", "oneOf", "if") is dropped with it if it refers
to such a location.
"""

from collections.abc import Container, Iterable, Mapping

from .losses import SchemaLosses
from .node import Schema, iter_nodes, iter_references, iter_same_value

_FRAGILE_KEYWORDS = {"not": ("not",), "if": ("if", "then", "else"), "oneOf": ("oneOf",)}
"""Constraints that become stricter when something inside them is dropped, and the keywords dropped with them.
"""


class ReferenceGraph:
    """The definitions that each definition refers to, directly or indirectly."""

    def __init__(self, definitions: Mapping[str, Schema]) -> None:
        self._edges = {place: list(iter_references(held)) for place, held in definitions.items()}
        self._known: dict[str, frozenset[str]] = {}

    def targets(self, place: str) -> frozenset[str]:
        if place not in self._known:
            self._known[place] = frozenset(_find_reachable(place, self._edges))
        return self._known[place]


def cut_cycles(
    root: Schema, definitions: Mapping[str, Schema], loosened: set[str], losses: SchemaLosses
) -> None:
    """Drop the references that make a schema refer to itself without a field or item in between.

    `loosened` holds the definitions that accept more than the source says.
    """
    steps = {
        place: [(node.at, node["$ref"]) for node in iter_same_value(held) if "$ref" in node]
        for place, held in definitions.items()
    }
    edges = {place: [target for _, target in taken] for place, taken in steps.items()}
    cut = {
        at
        for place, taken in steps.items()
        if place in _find_reachable(place, edges)
        for at, target in taken
        if place in (target, *_find_reachable(target, edges))
    }
    trees = (("#", root), *definitions.items())
    for place, held in trees if cut else ():
        for node in iter_nodes(held):
            if node.at in cut and node.pop("$ref", None) is not None:
                losses.add(node.at, "$ref", "refers to itself with nothing in between; left out")
                loosened.add(place)
    while loosened and _drop_fragile_rules(trees, cut, ReferenceGraph(definitions), loosened, losses):
        pass


def _drop_fragile_rules(
    trees: Iterable[tuple[str, Schema]],
    cut: Container[str],
    leads: ReferenceGraph,
    loosened: set[str],
    losses: SchemaLosses,
) -> bool:
    """Drop constraints that became stricter because something they refer to was dropped; True if any was."""
    found = False
    for place, held in trees:
        for node in iter_nodes(held):
            for keyword in [word for word in _FRAGILE_KEYWORDS if word in node]:
                parts = node[keyword] if keyword == "oneOf" else [node[keyword]]
                if not any(_is_loosened(part, cut, leads, loosened) for part in parts):
                    continue
                found = True
                loosened.add(place)
                became = "cannot be kept with part of it missing; left out"
                if keyword == "oneOf" and "anyOf" not in node:
                    became = "became anyOf, because part of it is missing"
                    node["anyOf"] = parts
                for word in _FRAGILE_KEYWORDS[keyword]:
                    node.pop(word, None)
                losses.add(node.at, keyword, became)
    return found


def _is_loosened(schema: Schema, cut: Container[str], leads: ReferenceGraph, loosened: set[str]) -> bool:
    reached = {place for target in iter_references(schema) for place in (target, *leads.targets(target))}
    return not reached.isdisjoint(loosened) or any(node.at in cut for node in iter_nodes(schema))


def _find_reachable(place: str, edges: Mapping[str, Iterable[str]]) -> set[str]:
    found: set[str] = set()
    waiting = [place]
    while waiting:
        fresh = [target for target in edges[waiting.pop()] if target not in found]
        found.update(fresh)
        waiting.extend(fresh)
    return found
