"""Contract of a receiver of finished spans.

`export` must return quickly and never await; it may be called from any thread. It cannot affect a run: if it raises,
a warning is issued once and the run continues without telemetry.
"""

from collections.abc import Sequence
from typing import Protocol

from bridle.values.record import Span


class SpanExporter(Protocol):
    def export(self, spans: Sequence[Span]) -> None: ...

    def flush(self, seconds: float) -> bool:
        """Send what is queued; returns False if that takes longer."""
        ...
