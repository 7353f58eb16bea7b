"""What a run shows, to any number of viewers, none of whom it ever waits for.

Each viewer has a buffer of its own.  One that falls behind loses pieces of text first: when
`pieces_max` of them wait for it, those that follow are counted instead of kept, until it has
caught up half-way, and a `Skipped` stands where they would have been.  Events are never lost:
there are as many as the run takes steps, and the whole reply is in one of them.

A viewer nobody holds any more is forgotten: leaving a loop is all it takes to leave a run.
"""

import asyncio
import logging
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from typing import Generic, Self, TypeVar

from bridle.ports.watcher import Watcher
from bridle.values.errors import MisuseError
from bridle.values.events import Event
from bridle.values.record import Record
from bridle.values.result import (
    CallReady,
    Delta,
    DeltasSkipped,
    FinalAnswer,
    ReasoningDelta,
    Result,
    TextDelta,
    ToolCallDelta,
)

StreamItem = Event | Delta | DeltasSkipped
DELTA_TYPES = (TextDelta, ReasoningDelta, ToolCallDelta, CallReady)
"""What can be done without: all of it comes again, whole, in the reply."""
DELTAS_BUFFERED_MAX = 1_000
"""About a page of text, in the smallest pieces that providers send."""


class ViewerBuffer:
    """What one viewer has not looked at yet.  Belongs to one event loop."""

    __slots__ = ("__weakref__", "_count", "_most", "_skipped", "_waiter", "items")

    def __init__(self, pieces_max: int | None) -> None:
        self.items: deque[StreamItem] = deque()
        self._most, self._count, self._skipped = pieces_max, 0, 0
        self._waiter: asyncio.Future[None] | None = None

    def put(self, item: Event | Delta) -> None:
        if self._most is not None and not self._has_room(item, self._most):
            self._skipped += 1
        else:
            if self._skipped:
                self._close_gap()
            self.items.append(item)
        if self._waiter is not None:
            self.wake()

    def take(self) -> StreamItem:
        """The oldest of `items`."""
        item = self.items.popleft()
        if self._most is not None:
            if isinstance(item, DELTA_TYPES):
                self._count -= 1
            if self._skipped and not self.items:
                self._close_gap()
        return item

    def wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def wait_for_more(self) -> None:
        """Until something is there, or `wake` is called.  One at a time may wait."""
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter

    def _has_room(self, item: Event | Delta, most: int) -> bool:
        if not isinstance(item, DELTA_TYPES):
            return True
        if self._count >= most or (self._skipped and self._count > most // 2):
            return False
        self._count += 1
        return True

    def _close_gap(self) -> None:
        self.items.append(DeltasSkipped(count=self._skipped))
        self._skipped = 0


class ViewerBuffers:
    """A watcher that passes on what it sees to whoever looks on just now."""

    def __init__(self) -> None:
        self._buffers: list[weakref.ref[ViewerBuffer]] = []

    def add_viewer(self, pieces_max: int | None) -> ViewerBuffer:
        """A new viewer: it sees what happens from now on."""
        buffer = ViewerBuffer(pieces_max)
        self._buffers.append(weakref.ref(buffer, self._remove_buffer))
        return buffer

    def on_event(self, session: str, happening: Record | Delta) -> None:
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

    def _remove_buffer(self, reference: "weakref.ref[ViewerBuffer]") -> None:
        self._buffers.remove(reference)


# Those who look on: shown everything, in order, and never able to change a run.


LOG = logging.getLogger("bridle")


class WatcherGroup:
    def __init__(self, session: str, watchers: Sequence[Watcher]) -> None:
        self._session, self._watchers = session, list(watchers)

    def notify(self, happening: Record | Delta) -> None:
        for watcher in tuple(self._watchers):
            try:
                watcher.on_event(self._session, happening)
            except Exception as error:  # noqa: BLE001 - a watcher can never change a run
                self._watchers.remove(watcher)
                LOG.warning("%s raised %r and was dismissed", type(watcher).__name__, error)


# A run shown while it happens: to one viewer it belongs to, or to any number it does not.
#
#     async for event in agent.stream(prompt)     the run belongs to this loop: leaving it ends the run,
#                                                 because nobody is left to want it, and a forgotten
#                                                 stream would go on spending
#
#     run = agent.stream(prompt).start()          the run belongs to itself
#     async for event in run.view()               look on; leaving changes nothing
#     await run.result()                          wait for the end; giving up waiting changes nothing
#     run.cancel()                                the only way to end it from outside
#
# The run is a task of its own, and what it shows goes through buffers (viewing.py), so that it
# never waits for anybody who looks on.  `cancel` lets everybody see the end.


T = TypeVar("T")

_running_tasks: "set[asyncio.Task[object]]" = set()
"""A loop holds its tasks weakly; a run that nobody looks at must not be collected half-way."""


class RunHandle(Generic[T]):
    """A run under way, and everything that can be done with it from outside."""

    def __init__(
        self,
        session: str,
        start: Callable[[ViewerBuffers], Coroutine[None, None, Result[T]]],
        cancelled: Callable[[], Coroutine[None, None, Result[T]]],
    ) -> None:
        """`start` is the run; `cancelled` tells how things stand in one that was ended from outside."""
        self.session = session
        self._start, self._read_cancelled_result = start, cancelled
        self._has_begun = self._is_cancelled = False
        self._viewers = ViewerBuffers()
        self._task = asyncio.create_task(self._run())
        _running_tasks.add(self._task)
        self._task.add_done_callback(self._on_done)

    @property
    def done(self) -> bool:
        return self._task.done()

    def cancel(self) -> None:
        """End the run; views go on to its end, and the result tells what there is.  Asking twice is once."""
        if not self._is_cancelled and not self._task.done():
            self._is_cancelled = True
            if self._has_begun:
                self._task.cancel()

    async def result(self) -> Result[T]:
        """How it ended.  May be awaited by many, and given up: that ends nothing."""
        await asyncio.wait((self._task,))
        return self._task.result()

    def view(self, pieces_max: int | None = DELTAS_BUFFERED_MAX) -> "RunView[T]":
        """What happens from now on, and last of all a `FinalAnswer`.

        At most `pieces_max` pieces of text wait for a slow viewer; None is for one that must see all.
        """
        return RunView(self, self.add_viewer(pieces_max))

    def add_viewer(self, pieces_max: int | None) -> ViewerBuffer:
        return self._viewers.add_viewer(pieces_max)

    async def _run(self) -> Result[T]:
        self._has_begun = True
        try:
            if not self._is_cancelled:
                return await self._start(self._viewers)
        except asyncio.CancelledError:
            if not self._is_cancelled:
                raise
        return await self._read_cancelled_result()

    def _on_done(self, task: "asyncio.Task[Result[T]]") -> None:
        _running_tasks.discard(task)
        self._viewers.wake()

    async def cancel_and_wait(self) -> None:
        """End the run and wait until it has cleaned up."""
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait((self._task,))


class RunView(Generic[T]):
    """One viewer of a run, with a pace of its own.  Iterate over it once; leave when you like."""

    def __init__(self, run: RunHandle[T], buffer: ViewerBuffer) -> None:
        self._run, self._buffer = run, buffer
        self._is_finished = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StreamItem | FinalAnswer[T]:
        while not self._buffer.items:
            if self._is_finished:
                raise StopAsyncIteration
            if self._run.done:
                self._is_finished = True
                return FinalAnswer(result=await self._run.result())
            await self._buffer.wait_for_more()
        return self._buffer.take()


class Stream(Generic[T]):
    """A run that has not begun.  Iterate over it once, or `start` it: deltas, events, a `FinalAnswer`."""

    def __init__(
        self,
        session: str,
        start: Callable[[ViewerBuffers], Coroutine[None, None, Result[T]]],
        cancelled: Callable[[], Coroutine[None, None, Result[T]]],
    ) -> None:
        self.session = session
        self._start, self._read_cancelled_result = start, cancelled
        self._run: RunHandle[T] | None = None
        self._is_cancelled = False

    def start(self) -> RunHandle[T]:
        """Let it run on its own from here on.  Needs a running event loop."""
        if self._run is not None:
            raise MisuseError("a stream is one run, and it has begun; ask again for another")
        self._run = RunHandle(self.session, self._start, self._read_cancelled_result)
        if self._is_cancelled:
            self._run.cancel()
        return self._run

    def cancel(self) -> None:
        """End the run; the stream goes on to its end and tells what there is."""
        self._is_cancelled = True
        if self._run is not None:
            self._run.cancel()

    async def __aiter__(self) -> AsyncGenerator[StreamItem | FinalAnswer[T], None]:
        if self._run is not None:
            raise MisuseError("a stream can be iterated once; ask again for another run")
        run = self.start()
        # Whose run it is loses nothing: what waits is no more than what the run has said.
        buffer = run.add_viewer(None)
        try:
            while True:
                while buffer.items:
                    yield buffer.take()
                if run.done:
                    break
                await buffer.wait_for_more()
            yield FinalAnswer(result=await run.result())
        finally:
            await run.cancel_and_wait()
