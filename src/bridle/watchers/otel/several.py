"""Gives spans to several exporters, such as one that counts for Prometheus and one that sends over OTLP."""

from collections.abc import Callable, Sequence

from bridle.ports.span_exporter import DeferringExporter, SpanExporter
from bridle.values.record import Span


class SeveralExporters:
    """One that has a thread of its own derives the spans for all."""

    def __init__(self, exporters: Sequence[SpanExporter]) -> None:
        self._exporters = tuple(exporters)
        self._deferring = next((each for each in exporters if isinstance(each, DeferringExporter)), None)

    def export(self, spans: Sequence[Span]) -> None:
        for exporter in self._exporters:
            exporter.export(spans)

    def export_later(self, export_pending: Callable[[], None], *, is_urgent: bool) -> None:
        if self._deferring is None:
            export_pending()
        else:
            self._deferring.export_later(export_pending, is_urgent=is_urgent)

    def flush(self, seconds: float) -> bool:
        flushed = [exporter.flush(seconds) for exporter in self._exporters]
        return all(flushed)
