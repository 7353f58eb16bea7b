"""Times one model call by a clock that never goes back."""

from collections.abc import Callable

from ..values.latency import Latency

DIGITS = 6
"""Microseconds: finer is noise."""


class Stopwatch:
    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._started: float | None = None
        self._byte: float | None = None
        self.token_at: float | None = None
        self._stopped: float | None = None

    def start(self) -> None:
        self._started = self._now()

    def note_byte(self) -> None:
        self._byte = self._now() if self._byte is None else self._byte

    def note_token(self) -> None:
        """Note the first token; for the later ones this is not called."""
        self.token_at = self._now()

    def stop(self) -> None:
        self._stopped = self._now()

    @property
    def latency(self) -> Latency | None:
        """None when it was never started; the total counts up to now while it runs."""
        if self._started is None:
            return None
        end = self._now() if self._stopped is None else self._stopped
        return Latency(
            first_byte=self._since_start(self._byte),
            first_token=self._since_start(self.token_at),
            total=self._since_start(end) or 0.0,
        )

    def _since_start(self, at: float | None) -> float | None:
        assert self._started is not None
        if at is None:
            return None
        return round(at - self._started, DIGITS) if at > self._started else 0.0
