"""The only source of time."""

from typing import Protocol


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
