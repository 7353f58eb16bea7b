"""Times one model call by the run's clock."""

from collections.abc import Callable

from ..values.latency import Latency

DIGITS = 6
"""Microseconds: finer is noise."""


class Stopwatch:
    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._started: float | None = None
        self._byte: float | None = None
        self._token: float | None = None
        self._stopped: float | None = None

    def start(self) -> None:
        self._started = self._now()

    def note_byte(self) -> None:
        self._byte = self._now() if self._byte is None else self._byte

    def note_token(self) -> None:
        self._token = self._now() if self._token is None else self._token

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
            first_token=self._since_start(self._token),
            total=self._since_start(end) or 0.0,
        )

    def _since_start(self, at: float | None) -> float | None:
        assert self._started is not None
        return None if at is None else round(max(0.0, at - self._started), DIGITS)
