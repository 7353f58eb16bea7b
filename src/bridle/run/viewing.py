"""What a run shows, to any number of viewers, none of whom it ever waits for.

Each viewer has a buffer of its own.  One that falls behind loses pieces of text first: when
`pieces_max` of them wait for it, those that follow are counted instead of kept, until it has
caught up half-way, and a `Skipped` stands where they would have been.  Events are never lost:
there are as many as the run takes steps, and the whole reply is in one of them.

A viewer nobody holds any more is forgotten: leaving a loop is all it takes to leave a run.
"""

import asyncio
import weakref
from collections import deque

from ..values.delta import CallReady, Delta, ReasoningDelta, Skipped, TextDelta, ToolCallDelta
from ..values.event import Event
from ..values.record import Record

Shown = Event | Delta | Skipped
PIECES = (TextDelta, ReasoningDelta, ToolCallDelta, CallReady)
"""What can be done without: all of it comes again, whole, in the reply."""
PIECES_MAX = 1_000
"""About a page of text, in the smallest pieces that providers send."""


class Buffer:
    """What one viewer has not looked at yet.  Belongs to one event loop."""

    __slots__ = ("__weakref__", "_count", "_most", "_skipped", "_waiter", "items")

    def __init__(self, pieces_max: int | None) -> None:
        self.items: deque[Shown] = deque()
        self._most, self._count, self._skipped = pieces_max, 0, 0
        self._waiter: asyncio.Future[None] | None = None

    def put(self, item: Event | Delta) -> None:
        if self._most is not None and not self._keeps(item, self._most):
            self._skipped += 1
        else:
            if self._skipped:
                self._close_gap()
            self.items.append(item)
        if self._waiter is not None:
            self.wake()

    def take(self) -> Shown:
        """The oldest of `items`."""
        item = self.items.popleft()
        if self._most is not None:
            if isinstance(item, PIECES):
                self._count -= 1
            if self._skipped and not self.items:
                self._close_gap()
        return item

    def wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def more(self) -> None:
        """Until something is there, or `wake` is called.  One at a time may wait."""
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter

    def _keeps(self, item: Event | Delta, most: int) -> bool:
        if not isinstance(item, PIECES):
            return True
        if self._count >= most or (self._skipped and self._count > most // 2):
            return False
        self._count += 1
        return True

    def _close_gap(self) -> None:
        self.items.append(Skipped(count=self._skipped))
        self._skipped = 0


class Viewers:
    """A watcher that passes on what it sees to whoever looks on just now."""

    def __init__(self) -> None:
        self._buffers: list[weakref.ref[Buffer]] = []

    def admit(self, pieces_max: int | None) -> Buffer:
        """A new viewer: it sees what happens from now on."""
        buffer = Buffer(pieces_max)
        self._buffers.append(weakref.ref(buffer, self._left))
        return buffer

    def saw(self, session: str, happening: Record | Delta) -> None:
        item = happening.event if isinstance(happening, Record) else happening
        for reference in tuple(self._buffers):
            buffer = reference()
            if buffer is not None:
                buffer.put(item)

    def wake(self) -> None:
        for reference in tuple(self._buffers):
            buffer = reference()
            if buffer is not None:
                buffer.wake()

    def _left(self, reference: "weakref.ref[Buffer]") -> None:
        self._buffers.remove(reference)
