"""The system clock, and the clock of one driver."""

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

from bridle.ports.clock import Clock

T = TypeVar("T")


class SystemClock:
    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class SessionClock:
    """Time for one driver: the wall clock is read once, then advanced by the monotonic clock.

    Deadlines, time budgets and waits derive from record timestamps.  Setting the wall clock while a session
    is driven must not change them, so this clock stamps the records.
    """

    def __init__(self, clock: Clock) -> None:
        self.wall, self.monotonic = clock, clock.monotonic
        self.start_after(0.0)

    def start_after(self, last: float) -> None:
        """Read the wall clock again; the result is never earlier than `last`, the session's last record."""
        self._started_at, self._monotonic_start = max(self.wall.now(), last), self.monotonic()

    def now(self) -> float:
        # guard: clock-counts-seconds
        return self._started_at + (self.monotonic() - self._monotonic_start)

    def seconds_left(self, deadline: float | None) -> float | None:
        return None if deadline is None else max(0.0, deadline - self.now())

    def limit_time(self, work: Coroutine[Any, Any, T], deadline: float | None) -> Coroutine[Any, Any, T]:
        """Cancel the work at the deadline and raise `TimeoutError`; without one, it is the work itself."""
        return work if deadline is None else self._await_until(work, deadline)

    async def _await_until(self, work: Coroutine[Any, Any, T], deadline: float) -> T:
        async with asyncio.timeout(self.seconds_left(deadline)):
            return await work

    async def sleep(self, seconds: float) -> None:
        await self.wall.sleep(seconds)
