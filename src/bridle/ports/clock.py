"""Sources of time and randomness.

Every random draw is recorded with its event, so that a log can be folded without the source.
"""

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
