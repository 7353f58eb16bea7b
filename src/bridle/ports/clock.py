"""The only source of chance.

Whatever is drawn is recorded with the event it was drawn for, so that a log can be folded without it.
"""

from collections.abc import Callable
from typing import Protocol

RandomSource = Callable[[], float]
"""A number from 0 up to 1, another one every time; `random.Random(seed).random` is one for tests."""


# The only source of time.


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since 1970, by the wall clock, which may be set back or forward at any moment.

        It stamps records and dates signatures; nothing is measured by it.
        """
        ...

    def monotonic(self) -> float:
        """Seconds since some moment of its own; it never goes back and never jumps."""
        ...

    async def sleep(self, seconds: float) -> None: ...
