"""Contract of a receiver of finished spans.

`export` must return quickly and never await; it may be called from any thread. It cannot affect a run: if it raises,
a warning is issued once and the run continues without telemetry.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from bridle.values.record import Span


class SpanExporter(Protocol):
    def export(self, spans: Sequence[Span]) -> None: ...

    def flush(self, seconds: float) -> bool:
        """Send what is queued; returns False if that takes longer."""
        ...


@runtime_checkable
class DeferringExporter(Protocol):
    """An exporter with a thread of its own, in which spans are derived from records in batches."""

    def export_later(self, export_pending: Callable[[], None], *, is_urgent: bool) -> None:
        """Call the function soon; it calls `export`. If urgent, send the spans then without a delay."""
        ...
