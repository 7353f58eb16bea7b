"""Which calls of a streamed reply are complete while the reply goes on.

A call is complete when its block ends.  There is one exception: a reply that runs out of room
may end its last block before the first word of the arguments, and that looks like a call
without any.  Such a call is held back until something comes after it.
"""

from msgspec.structs import replace

from ..values.delta import CallReady, Delta
from ..values.parts import Part, ToolCall


class ReadyCalls:
    __slots__ = ("_count", "_held")

    def __init__(self) -> None:
        self._count = 0
        self._held: list[Delta] = []

    def begin(self) -> int:
        """A call begins: which of the reply's calls it is."""
        self._count += 1
        return self._count - 1

    def end(self, index: int, call: ToolCall, *, sure: bool) -> list[Delta]:
        """Its block ended; `sure` when its arguments were really said."""
        self._held.append(CallReady(index=index, call=call))
        return self.more() if sure else []

    def more(self) -> list[Delta]:
        """Something comes after the calls so far."""
        if not self._held:
            return self._held
        held, self._held = self._held, []
        return held


def leave_open(parts: list[Part], *, cut: bool) -> list[Part]:
    """The parts of a reply that came whole; a call without arguments where the reply was cut off stays open.

    Open arguments are no JSON, so such a call never runs.
    """
    last = parts[-1] if parts else None
    if not cut or not isinstance(last, ToolCall) or last.arguments.strip() != "{}":
        return parts
    return [*parts[:-1], replace(last, arguments="")]
