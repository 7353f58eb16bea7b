"""A run shown while it happens.

The run is a task of its own; what it shows passes through a plain queue, which costs
next to nothing for a token and lets the run go on while its viewer is busy.  A viewer
that leaves the loop ends the run: nobody is left to want it, and a forgotten stream
would go on spending.  `cancel()` ends it too, but lets the viewer see the end.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from typing import Generic, TypeVar

from ..values.delta import Delta
from ..values.errors import MisuseError
from ..values.event import Event
from ..values.record import Record
from ..values.result import FinalAnswer, Result

T = TypeVar("T")


class Feed:
    """A watcher that keeps what it saw until somebody takes it."""

    def __init__(self) -> None:
        self._items: deque[Event | Delta] = deque()
        self._waiter: asyncio.Future[None] | None = None

    def saw(self, session: str, happening: Record | Delta) -> None:
        self._items.append(happening.event if isinstance(happening, Record) else happening)
        if self._waiter is not None:
            self.wake()

    def wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def take(self, task: "asyncio.Task[object]") -> AsyncIterator[Event | Delta]:
        """Everything seen, until the task is done and nothing is left."""
        while True:
            while self._items:
                yield self._items.popleft()
            if task.done():
                return
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter


class Stream(Generic[T]):
    """Iterate over it once: deltas, events, and last of all a `FinalAnswer`."""

    def __init__(
        self,
        start: Callable[[Feed], Coroutine[None, None, Result[T]]],
        cancelled: Callable[[], Coroutine[None, None, Result[T]]],
    ) -> None:
        self._start, self._cancelled = start, cancelled
        self._task: asyncio.Task[Result[T]] | None = None
        self._asked_to_stop = False

    def cancel(self) -> None:
        """End the run; the stream goes on to its end and tells what there is."""
        self._asked_to_stop = True
        if self._task is not None:
            self._task.cancel()

    async def __aiter__(self) -> AsyncGenerator[Event | Delta | FinalAnswer[T], None]:
        if self._task is not None:
            raise MisuseError("a stream can be iterated once; ask again for another run")
        feed = Feed()
        task = self._task = asyncio.create_task(self._start(feed))
        task.add_done_callback(lambda _: feed.wake())
        if self._asked_to_stop:
            task.cancel()
        try:
            async for item in feed.take(task):
                yield item
            try:
                result = task.result()
            except asyncio.CancelledError:
                if not self._asked_to_stop:
                    raise
                result = await self._cancelled()
            yield FinalAnswer(result=result)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})
