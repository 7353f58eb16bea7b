"""Which calls of one reply may run beside each other.

A batch must come out as if it had been run in the order the model wrote it.  `Conflicts` holds what is known
of the earlier calls in sums, so that a look at a later call costs the same however many there are.
"""

from ..values.request import ToolSpec
from .opencall import OpenCall

ORDERED = ("read", "write")
"""Effects that only conflict on one resource; every other effect conflicts with everything."""


class Conflicts:
    """The calls before the one that is looked at: unfinished ones, and those that wait for a person."""

    def __init__(self) -> None:
        self._unfinished = self._waiting = False
        self.blocks_all = False
        """An unfinished call conflicts with every later one, whatever it is."""
        self._exclusive_waits = False
        self._touched: dict[str, set[str | None]] = {"read": set(), "write": set()}
        """Resources of the unfinished calls; None for a call that names none."""
        self._awaited: set[tuple[str | None, bool]] = set()
        """Resources of the waiting calls, and whether the call only reads."""

    def add_unfinished(self, item: OpenCall, spec: ToolSpec) -> None:
        self._unfinished = True
        resource = resource_of(item)
        if spec.effect not in ORDERED or (spec.effect == "write" and resource is None):
            self.blocks_all = True
        else:
            self._touched[spec.effect].add(resource)

    def add_waiting(self, item: OpenCall, spec: ToolSpec) -> None:
        self._waiting = True
        self._exclusive_waits = self._exclusive_waits or spec.effect == "exclusive"
        self._awaited.add((resource_of(item), spec.effect == "read"))

    def hold_back(self, item: OpenCall, spec: ToolSpec) -> bool:
        """Whether a call must not start yet."""
        return self._disturbs(item, spec) or self._touches(item, spec)

    def _disturbs(self, item: OpenCall, spec: ToolSpec) -> bool:
        """Whether running it beside an unfinished call could come out otherwise than in order."""
        if self.blocks_all or not self._unfinished:
            return self.blocks_all
        if spec.effect not in ORDERED:
            return True
        resource, writes = resource_of(item), self._touched["write"]
        if spec.effect == "read":
            return bool(writes) and (resource is None or resource in writes)
        reads = self._touched["read"]
        return resource is None or resource in writes or resource in reads or None in reads

    def _touches(self, item: OpenCall, spec: ToolSpec) -> bool:
        """Whether it is *known* to conflict with a waiting call: exclusive, or on one resource."""
        if not self._waiting:
            return False
        if self._exclusive_waits or spec.effect == "exclusive":
            return True
        resource = resource_of(item)
        if resource is None:
            return False
        return (resource, False) in self._awaited or (
            spec.effect != "read" and (resource, True) in self._awaited
        )


def resource_of(item: OpenCall) -> str | None:
    """The resource a call works on.  Arguments that a person changed have a claim of their own."""
    if item.answer is not None and item.answer.arguments is not None:
        return item.answer.claim.resource if item.answer.claim else None
    return item.claim.resource if item.claim else None
