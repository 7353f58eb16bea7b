"""Sums spans into the metrics of the OpenTelemetry conventions, for as long as the process lives.

Every span counts, whether or not its trace is sampled. Attributes are names with few values: provider, model, tool,
outcome. Sessions and tenants are not among them, because each would be a series of its own.
"""

import time
from bisect import bisect_left
from typing import NamedTuple

from bridle.values.record import Attributes, AttributeValue, Span

TOKEN_BOUNDS = tuple(float(4**power) for power in range(14))
DURATION_BOUNDS = tuple(0.01 * 2**power for power in range(14))
FIRST_CHUNK_BOUNDS = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
)  # fmt: skip
SeriesKey = tuple[tuple[str, AttributeValue], ...]
OPERATION, PROVIDER, MODEL = "gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model"
CALL_LABELS = (OPERATION, PROVIDER, MODEL, "gen_ai.response.model", "error.type")
TOOL_LABELS = (OPERATION, "gen_ai.tool.name", "bridle.tool.outcome", "error.type")
RUN_LABELS = (OPERATION, "gen_ai.agent.name", "bridle.stop")
TOKEN_TYPES = (
    ("input", "gen_ai.usage.input_tokens"),
    ("output", "gen_ai.usage.output_tokens"),
    ("cache_read", "gen_ai.usage.cache_read.input_tokens"),
    ("cache_creation", "gen_ai.usage.cache_creation.input_tokens"),
)
"""Types of tokens; the last two are part of `input`."""
SERIES_MAX = 2_000
"""Points of one metric; further combinations of attributes are counted together."""
OVERFLOW: SeriesKey = (("otel.metric.overflow", True),)


class Distribution:
    """Count, sum and buckets of one series."""

    def __init__(self, bucket_count: int) -> None:
        self.count, self.total, self.buckets = 0, 0.0, [0] * bucket_count


class Histogram:
    def __init__(self, name: str, unit: str, description: str, bounds: tuple[float, ...]) -> None:
        self.name, self.unit, self.description, self.bounds = name, unit, description, bounds
        self.points: dict[SeriesKey, Distribution] = {}

    def add(self, key: SeriesKey, value: float) -> None:
        point = self.points.get(key)
        if point is None:
            key = key if len(self.points) < SERIES_MAX else OVERFLOW
            point = self.points.setdefault(key, Distribution(len(self.bounds) + 1))
        point.count += 1
        point.total += value
        point.buckets[bisect_left(self.bounds, value)] += 1


class Counter:
    def __init__(self, name: str, unit: str, description: str) -> None:
        self.name, self.unit, self.description = name, unit, description
        self.points: dict[SeriesKey, float] = {}

    def add(self, key: SeriesKey, value: float) -> None:
        key = key if key in self.points or len(self.points) < SERIES_MAX else OVERFLOW
        self.points[key] = self.points.get(key, 0.0) + value


class MetricsSnapshot(NamedTuple):
    start: float
    at: float
    series: tuple[Histogram | Counter, ...]


class Metrics:
    """All metrics of one exporter."""

    def __init__(self) -> None:
        self._start = time.time()
        self.tokens = Histogram("gen_ai.client.token.usage", "{token}", "Tokens of model calls", TOKEN_BOUNDS)
        self.durations = Histogram(
            "gen_ai.client.operation.duration",
            "s",
            "Duration of model calls, tools and runs",
            DURATION_BOUNDS,
        )
        self.first_chunks = Histogram(
            "gen_ai.client.operation.time_to_first_chunk", "s", "Time to first output", FIRST_CHUNK_BOUNDS
        )
        self.cost = Counter("bridle.cost", "USD", "Cost of model calls and stored prompts")
        self.retries = Counter("bridle.retries", "{retry}", "Model calls that were repeated after a failure")
        self.dropped = Counter("bridle.telemetry.dropped", "{span}", "Spans that were not exported")

    def count_span(self, span: Span) -> None:
        found = span.attributes
        operation = found.get(OPERATION)
        if operation == "chat":
            self._count_call(span, found)
        elif operation == "execute_tool":
            self.durations.add(_select(found, TOOL_LABELS), span.end - span.start)
        elif operation is not None:
            self.durations.add(_select(found, RUN_LABELS), span.end - span.start)
        elif span.name == "retry":
            self.retries.add((), 1)
        elif isinstance(usd := found.get("bridle.cost.usd"), float):
            self.cost.add((), usd)

    def _count_call(self, span: Span, found: Attributes) -> None:
        key = _select(found, CALL_LABELS)
        self.durations.add(key, span.end - span.start)
        for type_, name in TOKEN_TYPES:
            if isinstance(count := found.get(name), int) and count:
                self.tokens.add((*key, ("gen_ai.token.type", type_)), count)
        if isinstance(seconds := found.get("gen_ai.response.time_to_first_chunk"), float):
            self.first_chunks.add(key, seconds)
        if isinstance(usd := found.get("bridle.cost.usd"), float):
            self.cost.add(key, usd)

    def snapshot(self) -> MetricsSnapshot | None:
        """The sums so far; None before the first span."""
        every: tuple[Histogram | Counter, ...] = (
            self.tokens, self.durations, self.first_chunks, self.cost, self.retries, self.dropped,
        )  # fmt: skip
        series = tuple(each for each in every if each.points)
        return MetricsSnapshot(self._start, time.time(), series) if series else None


def _select(found: Attributes, names: tuple[str, ...]) -> SeriesKey:
    return tuple([(name, found[name]) for name in names if name in found])
