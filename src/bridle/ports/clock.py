"""Sources of time and randomness, and turns: the order in which the tasks of one event loop proceed.

Every random draw is recorded with its event, so that a log can be folded without the source.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

RandomSource = Callable[[], float]
"""Returns a new number from 0 (inclusive) to 1 (exclusive); `random.Random(seed).random` is one for tests."""


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since 1970 by the wall clock, which may be adjusted at any time.

        Used for timestamps and signatures, never to measure durations.
        """
        ...

    def monotonic(self) -> float:
        """Seconds since an arbitrary moment; never goes back and never jumps."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class Turns:
    """A semaphore of one event loop that costs one call while turns are left; `asyncio.Semaphore` costs five."""

    def __init__(self, count: float) -> None:
        self._free = count
        self._waiting: deque[asyncio.Future[None]] | None = None
        """Made when a task has to wait: most never do, and an empty queue takes 700 bytes."""

    def take_free(self) -> bool:
        """Take a turn if one is left; saves the coroutine of `take`."""
        if self._free > 0:
            self._free -= 1
            return True
        return False

    async def take(self) -> None:
        if self.take_free():
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._waiting is None:
            self._waiting = deque()
        self._waiting.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.give_back()  # the turn came at the same time
            raise

    def give_back(self) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self._free += 1
