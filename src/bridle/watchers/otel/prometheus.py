"""Metrics in the text format of Prometheus, without a package and without a receiver.

metrics = PrometheusMetrics()
agent = Agent(…, telemetry=Telemetry(exporter=metrics))
metrics.render()            the body for GET /metrics; its type is `PrometheusMetrics.CONTENT_TYPE`
"""

import re
import threading
from collections.abc import Iterator, Sequence

from bridle.values.record import Span

from .metrics import (
    LABEL_VALUES_DEFAULT,
    Counter,
    Gauge,
    Histogram,
    MetricLabel,
    Metrics,
    SeriesKey,
)

NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_]")
UNITS = {
    "s": "seconds",
    "USD": "usd",
    "{token}": "",
    "{retry}": "",
    "{span}": "",
    "{run}": "",
    "{call}": "",
    "1": "",
}
"""Ends of names by unit, as Prometheus writes them."""


class PrometheusMetrics:
    """An exporter that only counts: tokens, costs, durations and retries since the process began."""

    CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

    def __init__(
        self, *, labels: Sequence[MetricLabel] = (), label_values_max: int = LABEL_VALUES_DEFAULT
    ) -> None:
        """`labels`: count calls and runs by agent, by tenant or by both, with a hit rate of the cache for each.

        Of each label at most `label_values_max` values are counted on their own, and the rest as `other`.
        """
        self._metrics, self._lock = Metrics(labels, label_values_max), threading.Lock()

    def export(self, spans: Sequence[Span]) -> None:
        with self._lock:
            for span in spans:
                self._metrics.count_span(span)

    def flush(self, seconds: float) -> bool:
        """Nothing waits to be sent."""
        return True

    def render(self) -> str:
        """All metrics so far, as text."""
        with self._lock:
            snapshot = self._metrics.snapshot()
            series = snapshot.series if snapshot is not None else ()
            return "".join(line + "\n" for each in series for line in render_series(each))


def render_series(series: Histogram | Counter | Gauge) -> Iterator[str]:
    """The lines of one metric."""
    unit = UNITS[series.unit]
    name = NOT_IN_NAMES.sub("_", series.name) + (f"_{unit}" if unit else "")
    if isinstance(series, Counter):
        name += "_total"
    yield f"# HELP {name} {series.description}"
    yield f"# TYPE {name} {type(series).__name__.lower()}"
    if not isinstance(series, Histogram):
        for key, value in series.points.items():
            yield f"{name}{format_labels(key)} {value!r}"
        return
    for key, point in series.points.items():
        total = 0
        for bound, count in zip((*map(repr, series.bounds), "+Inf"), point.buckets, strict=True):
            total += count
            yield f"{name}_bucket{format_labels((*key, ('le', bound)))} {total}"
        yield f"{name}_sum{format_labels(key)} {point.total!r}"
        yield f"{name}_count{format_labels(key)} {point.count}"


def format_labels(key: SeriesKey) -> str:
    pairs = (f'{NOT_IN_NAMES.sub("_", name)}="{escape_label(str(value))}"' for name, value in key)
    return f"{{{','.join(pairs)}}}" if key else ""


def escape_label(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
