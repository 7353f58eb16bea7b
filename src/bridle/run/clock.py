"""The system's clocks, and the clock of one driver."""

import asyncio
import time

from bridle.ports.clock import Clock


class SystemClock:
    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class SessionClock:
    """Time as one driver counts it: read off the wall once, and carried on by the monotonic clock.

    Deadlines, budgets in seconds and waits follow from the times of records.  A wall clock that is set while
    a session is driven must not change them, so records are stamped by this clock.
    """

    def __init__(self, clock: Clock) -> None:
        self.wall, self.monotonic = clock, clock.monotonic
        self.start_after(0.0)

    def start_after(self, last: float) -> None:
        """Read the wall again; never before the last record of the session."""
        self._started_at, self._monotonic_start = max(self.wall.now(), last), self.monotonic()

    def now(self) -> float:
        return self._started_at + (self.monotonic() - self._monotonic_start)

    async def sleep(self, seconds: float) -> None:
        await self.wall.sleep(seconds)
