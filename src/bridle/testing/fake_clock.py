"""A clock for tests, which moves only when it is advanced or when a task sleeps on it.

Sleeping does not wait: the clock jumps. Concurrent sleepers wake in the order of their alarms, each at the
time its alarm was set for, so a test of hours takes no time and sees the same order of events.
"""

import asyncio

LOOP_TURNS = 3
"""Event loop turns that a sleeper yields before the clock jumps to its alarm.

A task that was just woken may set a new alarm, and an earlier alarm goes first.
"""


class FakeClock:
    def __init__(self, at: float = 1_800_000_000.0) -> None:
        self.slept: list[float] = []
        """Requested length of each sleep, in order."""
        self._now, self._ahead = at, 0.0
        self._alarms: list[tuple[float, int]] = []

    def now(self) -> float:
        return self._now + self._ahead

    def monotonic(self) -> float:
        return self._now

    def set_wall(self, seconds: float) -> None:
        """Move the wall clock by `seconds`, which may be negative; no time passes."""
        self._ahead += seconds

    def advance(self, seconds: float) -> None:
        if seconds < 0:
            raise ValueError(f"advance() needs a positive number of seconds, not {seconds}")
        self._now += seconds

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        alarm = (self._now + max(0.0, seconds), len(self.slept))
        self._alarms.append(alarm)
        try:
            turns = 0
            while turns < LOOP_TURNS:
                await asyncio.sleep(0)
                turns = turns + 1 if min(self._alarms) == alarm else 0
            self._now = max(self._now, alarm[0])
        finally:
            self._alarms.remove(alarm)
