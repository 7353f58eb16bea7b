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
        self._groups = _find_groups(self._edges)

    def is_cyclic(self, place: str) -> bool:
        return _is_on_cycle(place, self._edges[place], self._groups)

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
    groups = _find_groups(edges)
    cut = {at for place, taken in steps.items() for at, target in taken if groups[place] == groups[target]}
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


def _is_on_cycle(place: str, targets: Iterable[str], groups: Mapping[str, int]) -> bool:
    return any(groups[target] == groups[place] for target in targets)


def _find_groups(edges: Mapping[str, list[str]]) -> dict[str, int]:
    """Number the groups of places that lead to one another; two places with one number are on one cycle.

    This is Tarjan's algorithm with a stack of its own, in time linear in the number of edges.
    """
    groups: dict[str, int] = {}
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    opened: list[str] = []
    for start in edges:
        if start in order:
            continue
        path = [(start, iter(edges[start]))]
        order[start] = lowest[start] = len(order)
        opened.append(start)
        while path:
            place, targets = path[-1]
            target = next(targets, None)
            if target is None:
                path.pop()
                if path:
                    lowest[path[-1][0]] = min(lowest[path[-1][0]], lowest[place])
                if lowest[place] == order[place]:
                    _close_group(place, opened, groups, order[place])
            elif target not in order:
                order[target] = lowest[target] = len(order)
                opened.append(target)
                path.append((target, iter(edges[target])))
            elif target not in groups:
                lowest[place] = min(lowest[place], order[target])
    return groups


def _close_group(place: str, opened: list[str], groups: dict[str, int], number: int) -> None:
    while True:
        member = opened.pop()
        groups[member] = number
        if member == place:
            return


def _find_reachable(place: str, edges: Mapping[str, Iterable[str]]) -> set[str]:
    found: set[str] = set()
    waiting = [place]
    while waiting:
        fresh = [target for target in edges[waiting.pop()] if target not in found]
        found.update(fresh)
        waiting.extend(fresh)
    return found
