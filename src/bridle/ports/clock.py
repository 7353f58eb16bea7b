"""The only source of time."""

from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since 1970."""
        ...

    async def sleep(self, seconds: float) -> None: ...
