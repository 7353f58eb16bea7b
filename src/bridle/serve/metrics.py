"""Metrics of a server in the text format of Prometheus: runs, tokens, dollars, viewers and latencies."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from bridle.ports.watcher import RunSummary
from bridle.values.events import ModelReplied, RunEnded, ToolFinished, ToolInterrupted
from bridle.values.record import Attributes, Record
from bridle.values.result import Delta
from bridle.watchers.otel.metrics import (
    DURATION_BOUNDS,
    FIRST_CHUNK_BOUNDS,
    LABEL_ATTRIBUTES,
    LABEL_VALUES_DEFAULT,
    SHARE_BOUNDS,
    Counter,
    Gauge,
    Histogram,
    LabelValues,
    MetricLabel,
    SeriesKey,
)
from bridle.watchers.otel.prometheus import format_labels, render_series

if TYPE_CHECKING:
    from .host import AgentHost

CENSUS_GAUGES = (
    ("bridle.serve.runs.waiting", "Runs of the store that wait for a person"),
    ("bridle.serve.runs.orphaned", "Unfinished runs of the store that no process drives"),
    (
        "bridle.serve.calls.in_doubt",
        "Calls that were started and have no result, and that no process works on",
    ),
)
SHORT_LABELS = {attribute: label for label, attribute in LABEL_ATTRIBUTES.items()}
RUNNING_MAX = 10_000
"""Runs whose labels are remembered."""
USAGE_KINDS = ("input", "cache_read", "cache_write", "output")


class ServerMetrics:
    """A watcher that counts what the runs of a server use."""

    def __init__(self, labels: Sequence[MetricLabel] = ()) -> None:
        """`labels`: count what runs do and use, adoptions and open work by agent, by tenant or by both."""
        self._labels, self.has_labels = LabelValues(labels, LABEL_VALUES_DEFAULT), bool(labels)
        self._running: dict[str, SeriesKey] = {}
        """Labels of the runs in progress, by session; empty without labels."""
        self._summaries: dict[str, RunSummary] = {}
        self.tools = Counter(
            "bridle.serve.tool.calls", "{call}", "Calls of tools that ended, by their outcome"
        )
        self.budgets = Histogram(
            "bridle.serve.budget.use", "1", "Share of a limit that a run has used at its end", SHARE_BOUNDS
        )
        self.runs = Counter("bridle.serve.runs", "{token}", "Runs that ended, by their end")
        self.tokens = Counter("bridle.serve.tokens", "{token}", "Tokens of model calls")
        self.cost = Counter("bridle.serve.cost", "USD", "Cost of model calls")
        self.first_tokens = Histogram(
            "bridle.serve.first_token", "s", "Time to the first token of a model call", FIRST_CHUNK_BOUNDS
        )
        self.replies = Histogram("bridle.serve.reply", "s", "Duration of model calls", DURATION_BOUNDS)
        self.adoptions = Counter(
            "bridle.serve.adoptions", "{run}", "Runs that were continued because their process had ended"
        )
        self.requests = Counter("bridle.serve.requests", "{token}", "HTTP requests, by status")

    def on_run_agent(self, session: str, agent: str, tenant: str) -> None:
        """Note the labels of a run."""
        if not self.has_labels:
            return
        self._running.pop(session, None)
        self._running[session] = self.select_labels(agent, tenant)
        if len(self._running) > RUNNING_MAX:  # runs that raised have no end
            del self._running[next(iter(self._running))]

    def on_run_end(self, session: str, summary: RunSummary) -> None:
        """Note whose run ends; its event follows."""
        self._summaries[session] = summary

    def _count_run(self, stop: str, summary: RunSummary | None) -> None:
        labels = self.select_labels(summary.agent, summary.tenant) if summary is not None else ()
        self.runs.add((("stop", stop), *labels), 1)
        for kind, share in summary.budget_use if summary is not None else ():
            self.budgets.add((("kind", kind), *labels), share)

    def select_labels(self, agent: str, tenant: str) -> SeriesKey:
        """The labels of an agent and a tenant that are turned on; beyond a number of values they are `other`."""
        given = {LABEL_ATTRIBUTES["agent"]: agent, LABEL_ATTRIBUTES["tenant"]: tenant}
        found: Attributes = {name: value for name, value in given.items() if value}
        return tuple((SHORT_LABELS[name], value) for name, value in self._labels.select(found))

    def count_adoption(self, reason: str, agent: str, tenant: str) -> None:
        """Count a run that this server continues for another process, or after its own failure."""
        self.adoptions.add((("reason", reason), *self.select_labels(agent, tenant)), 1)

    def on_event(self, session: str, happening: Record | Delta) -> None:
        event = happening.event if isinstance(happening, Record) else None
        if isinstance(event, RunEnded):
            self._running.pop(session, None)
            self._count_run(event.stop, self._summaries.pop(session, None))
        elif isinstance(event, ToolFinished | ToolInterrupted):
            outcome = event.result.outcome if isinstance(event, ToolFinished) else "interrupted"
            self.tools.add((("outcome", outcome), *self._find_labels(session)), 1)
        elif isinstance(event, ModelReplied):
            labels = self._find_labels(session)
            for kind in USAGE_KINDS:
                if count := getattr(event.reply.usage, kind):
                    self.tokens.add((("kind", kind), *labels), count)
            if event.usd is not None:
                self.cost.add(labels, float(event.usd))
            if event.latency is not None:
                self.replies.add((), event.latency.total_seconds)
                if event.latency.first_token_seconds is not None:
                    self.first_tokens.add((), event.latency.first_token_seconds)

    def _find_labels(self, session: str) -> SeriesKey:
        return self._running[session] if session in self._running else self.select_labels("", "")

    def render(self, host: "AgentHost") -> str:
        series = (
            self.runs,
            self.tokens,
            self.cost,
            self.first_tokens,
            self.replies,
            self.requests,
            self.adoptions,
            self.tools,
            self.budgets,
        )
        lines = [line for each in series for line in render_series(each)]
        return "".join(f"{line}\n" for line in (*lines, *_render_census(host, self), *_render_gauges(host)))


def _render_census(host: "AgentHost", metrics: ServerMetrics) -> Iterator[str]:
    """Gauges of the whole store: each server shows the same."""
    census, gauges = host.census, [Gauge(name, "{run}", about) for name, about in CENSUS_GAUGES]
    for gauge in gauges:
        if not metrics.has_labels:
            gauge.points[()] = 0
    for found in census.counted:
        key = metrics.select_labels(found.agent, found.tenant)
        for gauge, count in zip(gauges, (found.waiting, found.orphaned, found.in_doubt), strict=True):
            gauge.points[key] = gauge.points.get(key, 0) + count
    for gauge in gauges:
        yield from render_series(gauge)
    waits, servers = round(census.oldest_waiting_seconds, 1), max(len(host.adoption.servers), 1)
    for name, about, value in (
        ("bridle_serve_oldest_waiting_seconds", "Time that the longest waiting run has waited", waits),
        ("bridle_serve_store_up", "1 if the store could be read", int(census.is_store_up)),
        ("bridle_serve_servers", "Servers of the store, this one included", servers),
    ):
        yield from (f"# HELP {name} {about}", f"# TYPE {name} gauge", f"{name} {value}")


def _render_gauges(host: "AgentHost") -> Iterator[str]:
    live = dict.fromkeys(host.agents, 0) | host.runs.count_by_agent()
    yield "# HELP bridle_serve_runs_live Runs in progress"
    yield "# TYPE bridle_serve_runs_live gauge"
    yield from (f"bridle_serve_runs_live{format_labels((('agent', name),))} {n}" for name, n in live.items())
    yield "# HELP bridle_serve_viewers Open event streams"
    yield "# TYPE bridle_serve_viewers gauge"
    yield f"bridle_serve_viewers {host.feeds.viewers}"
    yield "# HELP bridle_serve_catch_up_pages_total Pages that slow or new viewers read from the log"
    yield "# TYPE bridle_serve_catch_up_pages_total counter"
    yield f"bridle_serve_catch_up_pages_total {host.feeds.caught_up}"
