"""The system clock, and the clock of one driver."""

import asyncio
import time
from contextlib import AbstractAsyncContextManager, nullcontext

from bridle.ports.clock import Clock

NO_LIMIT = nullcontext()


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
        return self._started_at + (self.monotonic() - self._monotonic_start)

    def seconds_left(self, deadline: float | None) -> float | None:
        return None if deadline is None else max(0.0, deadline - self.now())

    def limit_time(self, deadline: float | None) -> AbstractAsyncContextManager[object]:
        """Raise `TimeoutError` if the context is still open at the deadline; without one, do nothing."""
        return NO_LIMIT if deadline is None else asyncio.timeout(self.seconds_left(deadline))

    async def sleep(self, seconds: float) -> None:
        await self.wall.sleep(seconds)
