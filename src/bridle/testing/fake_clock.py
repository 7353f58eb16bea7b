"""A clock for tests: it moves when it is told to, or when somebody sleeps on it, and never by itself.

A sleeper does not wait: the clock jumps.  Those who sleep at the same time wake in the
order of their alarms, each at the time its alarm was set for, so that a test of hours
runs in no time and sees what it would have seen.
"""

import asyncio

LOOP_TURNS = 3
"""How many turns of the loop a sleeper leaves to the others before the clock jumps to its alarm:
whoever was just woken must be able to set a new alarm, and an earlier one goes first."""


class FakeClock:
    def __init__(self, at: float = 1_800_000_000.0) -> None:
        self.slept: list[float] = []
        """How long each sleep was asked to be, in the order of asking."""
        self._now, self._ahead = at, 0.0
        self._alarms: list[tuple[float, int]] = []

    def now(self) -> float:
        return self._now + self._ahead

    def monotonic(self) -> float:
        return self._now

    def set_wall(self, seconds: float) -> None:
        """Set the wall clock forward, or back when `seconds` is negative; no time passes."""
        self._ahead += seconds

    def advance(self, seconds: float) -> None:
        if seconds < 0:
            raise ValueError(f"time does not run backwards: advance({seconds})")
        self._now += seconds

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        alarm = (self._now + max(0.0, seconds), len(self.slept))
        self._alarms.append(alarm)
        try:
            first = 0
            while first < LOOP_TURNS:
                await asyncio.sleep(0)
                first = first + 1 if min(self._alarms) == alarm else 0
            self._now = max(self._now, alarm[0])
        finally:
            self._alarms.remove(alarm)
