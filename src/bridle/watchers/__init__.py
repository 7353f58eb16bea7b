"""Watchers observe a run: they receive records and deltas, and cannot change the run.

A public name is loaded at its first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bridle.ports.span_exporter import SpanExporter as SpanExporter
    from bridle.values.record import Span
    from bridle.watchers.content_filter import RedactingWatcher as RedactingWatcher
    from bridle.watchers.jsonl import JsonLines as JsonLines
    from bridle.watchers.log_lines import LogLines as LogLines
    from bridle.watchers.notebook import NotebookView as NotebookView
    from bridle.watchers.otel.prometheus import PrometheusMetrics as PrometheusMetrics

_WHERE = {
    "Span": "bridle.values.record",
    "JsonLines": "bridle.watchers.jsonl",
    "LogLines": "bridle.watchers.log_lines",
    "NotebookView": "bridle.watchers.notebook",
    "PrometheusMetrics": "bridle.watchers.otel.prometheus",
    "RedactingWatcher": "bridle.watchers.content_filter",
    "SpanExporter": "bridle.ports.span_exporter",
}

__all__ = [
    "JsonLines",
    "LogLines",
    "NotebookView",
    "PrometheusMetrics",
    "RedactingWatcher",
    "Span",
    "SpanExporter",
]


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(_WHERE[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
