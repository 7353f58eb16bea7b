"""Sums spans into the metrics of the OpenTelemetry conventions, for as long as the process lives.

Every span counts, whether or not its trace is sampled. Attributes are names with few values: provider, model, tool,
outcome. Sessions are not among them, because each would be a series of its own. Agents and tenants are if a user turns
the label on: the number of their values is limited, and the rest is counted together as `other`.
"""

import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, Protocol, get_args

from bridle.values.errors import MisuseError
from bridle.values.record import Attributes, AttributeValue, Span

TOKEN_BOUNDS = tuple(float(4**power) for power in range(14))
DURATION_BOUNDS = tuple(0.01 * 2**power for power in range(14))
WAIT_BOUNDS = tuple(float(4**power) for power in range(12))
SHARE_BOUNDS = (0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
FIRST_CHUNK_BOUNDS = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
)  # fmt: skip
SeriesKey = tuple[tuple[str, AttributeValue], ...]
OPERATION, PROVIDER, MODEL = "gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model"
CALL_LABELS = (OPERATION, PROVIDER, MODEL, "gen_ai.response.model", "error.type")
TOOL_LABELS = (OPERATION, "gen_ai.tool.name", "bridle.tool.outcome", "error.type")
RUN_LABELS = (OPERATION, "gen_ai.agent.name", "bridle.stop")
OUTCOME_LABELS = ("gen_ai.tool.name", "bridle.tool.outcome")
APPROVAL_ANSWER, BUDGET_USE = "bridle.approval.answer", "bridle.budget.use."
APPROVAL_LABELS = ("gen_ai.tool.name", APPROVAL_ANSWER)
INPUT_TOKENS, CACHED_TOKENS = "gen_ai.usage.input_tokens", "gen_ai.usage.cache_read.input_tokens"
TOKEN_TYPES = (
    ("input", INPUT_TOKENS),
    ("output", "gen_ai.usage.output_tokens"),
    ("cache_read", CACHED_TOKENS),
    ("cache_creation", "gen_ai.usage.cache_creation.input_tokens"),
)
"""Types of tokens; the last two are part of `input`."""
SERIES_MAX = 2_000
"""Points of one metric; further combinations of attributes are counted together."""
MetricLabel = Literal["agent", "tenant"]
LABEL_ATTRIBUTES: dict[MetricLabel, str] = {"agent": "gen_ai.agent.name", "tenant": "bridle.tenant"}
# not from outside: an argument of the user's program
LABEL_VALUES_DEFAULT, LABEL_VALUES_MAX = 100, 1_000
"""Values of one label that are counted on their own."""
OTHER = "other"
"""Value of a label for all after the last that is counted on its own."""
NONE = "none"
"""Value of a label for a run without one, such as a run of no tenant."""
OVERFLOW: SeriesKey = (("otel.metric.overflow", True),)


HIT_RATE = "bridle.cache.hit_rate"
HIT_RATE_DESCRIPTION = "Share of the input tokens that was read from a cache"


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


class Gauge:
    """Latest values, each computed from sums."""

    def __init__(self, name: str, unit: str, description: str) -> None:
        self.name, self.unit, self.description = name, unit, description
        self.points: dict[SeriesKey, float] = {}


class MetricsSnapshot(NamedTuple):
    start: float
    at: float
    series: tuple[Histogram | Counter | Gauge, ...]


class Sum(Protocol):
    """A metric that values are added to."""

    def add(self, key: SeriesKey, value: float) -> None: ...


class LabelValues:
    """The values of the labels that are turned on, limited in number."""

    def __init__(self, labels: Sequence[MetricLabel], values_max: int) -> None:
        self.names = tuple(LABEL_ATTRIBUTES[label] for label in check_labels(labels, values_max))
        self._max = values_max
        self._known: dict[str, set[AttributeValue]] = {name: set() for name in self.names}

    def select(self, found: Attributes) -> SeriesKey:
        """The labels of a span; a value beyond the limit is `other`."""
        return tuple([(name, self._limit(name, found.get(name, NONE))) for name in self.names])

    def _limit(self, name: str, value: AttributeValue) -> AttributeValue:
        known = self._known[name]
        if value not in known and len(known) >= self._max:
            return OTHER
        known.add(value)
        return value


def check_labels(labels: Sequence[MetricLabel], values_max: int) -> Sequence[MetricLabel]:
    """Raise `MisuseError` for an unknown label, or a limit that is none."""
    if isinstance(labels, str) or any(label not in get_args(MetricLabel) for label in labels):
        choices = ", ".join(map(repr, get_args(MetricLabel)))
        raise MisuseError(f"metric_labels must be a list of {choices}; not {labels!r}")
    if not 1 <= values_max <= LABEL_VALUES_MAX:
        raise MisuseError(f"label_values_max must be from 1 to {LABEL_VALUES_MAX:,}, not {values_max!r}")
    return tuple(dict.fromkeys(labels))


class Metrics:
    """All metrics of one exporter."""

    def __init__(
        self,
        labels: Sequence[MetricLabel] = (),
        values_max: int = LABEL_VALUES_DEFAULT,
        make_histogram: Callable[[str, str, str, tuple[float, ...]], Sum] = Histogram,
        make_counter: Callable[[str, str, str], Sum] = Counter,
    ) -> None:
        self._start = time.time()
        self._labels = LabelValues(labels, values_max)
        self._prompts: dict[SeriesKey, list[int]] = {}
        """Input tokens by labels, and those of them that were read from a cache."""
        self.tokens = make_histogram(
            "gen_ai.client.token.usage", "{token}", "Tokens of model calls", TOKEN_BOUNDS
        )
        self.durations = make_histogram(
            "gen_ai.client.operation.duration",
            "s",
            "Duration of model calls, tools and runs",
            DURATION_BOUNDS,
        )
        self.first_chunks = make_histogram(
            "gen_ai.client.operation.time_to_first_chunk", "s", "Time to first output", FIRST_CHUNK_BOUNDS
        )
        self.cost = make_counter("bridle.cost", "USD", "Cost of model calls and stored prompts")
        self.retries = make_counter(
            "bridle.retries", "{retry}", "Model calls that were repeated after a failure"
        )
        self.tools = make_counter("bridle.tool.calls", "{call}", "Calls of tools, by their outcome")
        self.answers = make_histogram(
            "bridle.approval.wait",
            "s",
            "Time until a question to a person was answered or expired",
            WAIT_BOUNDS,
        )
        self.budgets = make_histogram(
            "bridle.budget.use", "1", "Share of a limit that a run has used at its end", SHARE_BOUNDS
        )
        self.dropped = make_counter("bridle.telemetry.dropped", "{span}", "Spans that were not exported")
        self.hit_rates = Gauge(HIT_RATE, "1", HIT_RATE_DESCRIPTION)

    def count_span(self, span: Span) -> None:
        found = span.attributes
        operation = found.get(OPERATION)
        if operation == "chat":
            self._count_call(span, found)
        elif operation == "execute_tool":
            self.durations.add(_select(found, TOOL_LABELS), span.end - span.start)
            self.tools.add(_add_labels(_select(found, OUTCOME_LABELS), self._labels.select(found)), 1)
        elif operation is not None:
            key = _add_labels(_select(found, RUN_LABELS), self._labels.select(found))
            self.durations.add(key, span.end - span.start)
            if span.ends_run:
                self._count_budgets(found)
        elif APPROVAL_ANSWER in found:
            key = _add_labels(_select(found, APPROVAL_LABELS), self._labels.select(found))
            self.answers.add(key, span.end - span.start)
        elif span.name == "retry":
            self.retries.add((), 1)
        elif isinstance(usd := found.get("bridle.cost.usd"), float):
            self.cost.add(self._labels.select(found), usd)

    def _count_budgets(self, found: Attributes) -> None:
        labels = self._labels.select(found)
        for name, share in found.items():
            if name.startswith(BUDGET_USE) and isinstance(share, float):
                self.budgets.add((("bridle.budget.kind", name.removeprefix(BUDGET_USE)), *labels), share)

    def _count_call(self, span: Span, found: Attributes) -> None:
        labels = self._labels.select(found)
        key = _add_labels(_select(found, CALL_LABELS), labels)
        if labels:
            self._count_prompt(labels, found)
        self.durations.add(key, span.end - span.start)
        for type_, name in TOKEN_TYPES:
            if isinstance(count := found.get(name), int) and count:
                self.tokens.add((*key, ("gen_ai.token.type", type_)), count)
        if isinstance(seconds := found.get("gen_ai.response.time_to_first_chunk"), float):
            self.first_chunks.add(key, seconds)
        if isinstance(usd := found.get("bridle.cost.usd"), float):
            self.cost.add(key, usd)

    def _count_prompt(self, labels: SeriesKey, found: Attributes) -> None:
        read, cached = (found.get(name) for name in (INPUT_TOKENS, CACHED_TOKENS))
        sums = self._prompts.setdefault(labels, [0, 0])
        sums[0] += read if isinstance(read, int) else 0
        sums[1] += cached if isinstance(cached, int) else 0

    def compute_hit_rates(self) -> dict[SeriesKey, float]:
        """Share of the input tokens that was read from a cache, by the labels that are turned on."""
        return {key: cached / read for key, (read, cached) in self._prompts.items() if read}

    def snapshot(self) -> MetricsSnapshot | None:
        """The sums so far; None before the first span."""
        self.hit_rates.points = self.compute_hit_rates()
        every = (
            self.tokens, self.durations, self.first_chunks, self.cost, self.retries, self.tools, self.answers,
            self.budgets, self.dropped, self.hit_rates,
        )  # fmt: skip
        series = tuple(
            each for each in every if isinstance(each, Histogram | Counter | Gauge) and each.points
        )
        return MetricsSnapshot(self._start, time.time(), series) if series else None


def _select(found: Attributes, names: tuple[str, ...]) -> SeriesKey:
    return tuple([(name, found[name]) for name in names if name in found])


def _add_labels(key: SeriesKey, labels: SeriesKey) -> SeriesKey:
    """The key with these labels, in the place of attributes of their names."""
    names = [name for name, _ in labels]
    return (*(pair for pair in key if pair[0] not in names), *labels) if labels else key
