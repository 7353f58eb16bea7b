"""A run shown while it happens: to one viewer it belongs to, or to any number it does not.

    async for event in agent.stream(prompt)     the run belongs to this loop: leaving it ends the run,
                                                because nobody is left to want it, and a forgotten
                                                stream would go on spending

    run = agent.stream(prompt).start()          the run belongs to itself
    async for event in run.view()               look on; leaving changes nothing
    await run.result()                          wait for the end; giving up waiting changes nothing
    run.cancel()                                the only way to end it from outside

The run is a task of its own, and what it shows goes through buffers (viewing.py), so that it
never waits for anybody who looks on.  `cancel` lets everybody see the end.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Generic, Self, TypeVar

from ..values.errors import MisuseError
from ..values.result import FinalAnswer, Result
from .viewing import PIECES_MAX, Buffer, Shown, Viewers

T = TypeVar("T")

_under_way: "set[asyncio.Task[object]]" = set()
"""A loop holds its tasks weakly; a run that nobody looks at must not be collected half-way."""


class Running(Generic[T]):
    """A run under way, and everything that can be done with it from outside."""

    def __init__(
        self,
        session: str,
        start: Callable[[Viewers], Coroutine[None, None, Result[T]]],
        cancelled: Callable[[], Coroutine[None, None, Result[T]]],
    ) -> None:
        """`start` is the run; `cancelled` tells how things stand in one that was ended from outside."""
        self.session = session
        self._start, self._cancelled = start, cancelled
        self._began = self._asked_to_stop = False
        self._viewers = Viewers()
        self._task = asyncio.create_task(self._run())
        _under_way.add(self._task)
        self._task.add_done_callback(self._ended)

    @property
    def done(self) -> bool:
        return self._task.done()

    def cancel(self) -> None:
        """End the run; views go on to its end, and the result tells what there is.  Asking twice is once."""
        if not self._asked_to_stop and not self._task.done():
            self._asked_to_stop = True
            if self._began:
                self._task.cancel()

    async def result(self) -> Result[T]:
        """How it ended.  May be awaited by many, and given up: that ends nothing."""
        await asyncio.wait((self._task,))
        return self._task.result()

    def view(self, pieces_max: int | None = PIECES_MAX) -> "View[T]":
        """What happens from now on, and last of all a `FinalAnswer`.

        At most `pieces_max` pieces of text wait for a slow viewer; None is for one that must see all.
        """
        return View(self, self.admit(pieces_max))

    def admit(self, pieces_max: int | None) -> Buffer:
        return self._viewers.admit(pieces_max)

    async def _run(self) -> Result[T]:
        self._began = True
        try:
            if not self._asked_to_stop:
                return await self._start(self._viewers)
        except asyncio.CancelledError:
            if not self._asked_to_stop:
                raise
        return await self._cancelled()

    def _ended(self, task: "asyncio.Task[Result[T]]") -> None:
        _under_way.discard(task)
        self._viewers.wake()

    async def abandon(self) -> None:
        """End the run and wait until it has cleaned up."""
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait((self._task,))


class View(Generic[T]):
    """One viewer of a run, with a pace of its own.  Iterate over it once; leave when you like."""

    def __init__(self, run: Running[T], buffer: Buffer) -> None:
        self._run, self._buffer = run, buffer
        self._told = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Shown | FinalAnswer[T]:
        while not self._buffer.items:
            if self._told:
                raise StopAsyncIteration
            if self._run.done:
                self._told = True
                return FinalAnswer(result=await self._run.result())
            await self._buffer.more()
        return self._buffer.take()


class Stream(Generic[T]):
    """A run that has not begun.  Iterate over it once, or `start` it: deltas, events, a `FinalAnswer`."""

    def __init__(
        self,
        session: str,
        start: Callable[[Viewers], Coroutine[None, None, Result[T]]],
        cancelled: Callable[[], Coroutine[None, None, Result[T]]],
    ) -> None:
        self.session = session
        self._start, self._cancelled = start, cancelled
        self._run: Running[T] | None = None
        self._asked_to_stop = False

    def start(self) -> Running[T]:
        """Let it run on its own from here on.  Needs a running event loop."""
        if self._run is not None:
            raise MisuseError("a stream is one run, and it has begun; ask again for another")
        self._run = Running(self.session, self._start, self._cancelled)
        if self._asked_to_stop:
            self._run.cancel()
        return self._run

    def cancel(self) -> None:
        """End the run; the stream goes on to its end and tells what there is."""
        self._asked_to_stop = True
        if self._run is not None:
            self._run.cancel()

    async def __aiter__(self) -> AsyncGenerator[Shown | FinalAnswer[T], None]:
        if self._run is not None:
            raise MisuseError("a stream can be iterated once; ask again for another run")
        run = self.start()
        # Whose run it is loses nothing: what waits is no more than what the run has said.
        buffer = run.admit(None)
        try:
            while True:
                while buffer.items:
                    yield buffer.take()
                if run.done:
                    break
                await buffer.more()
            yield FinalAnswer(result=await run.result())
        finally:
            await run.abandon()
