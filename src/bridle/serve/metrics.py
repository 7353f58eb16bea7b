"""Metrics of a server in the text format of Prometheus: runs, tokens, dollars, viewers and latencies."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from bridle.values.events import ModelReplied, RunEnded
from bridle.values.record import Record
from bridle.values.result import Delta
from bridle.watchers.otel.metrics import DURATION_BOUNDS, FIRST_CHUNK_BOUNDS, Counter, Histogram
from bridle.watchers.otel.prometheus import format_labels, render_series

if TYPE_CHECKING:
    from .host import AgentHost

USAGE_KINDS = ("input", "cache_read", "cache_write", "output")


class ServerMetrics:
    """A watcher that counts what the runs of a server use."""

    def __init__(self) -> None:
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

    def count_adoption(self, reason: str) -> None:
        """Count a run that this server continues for another one, or after its own failure."""
        self.adoptions.add((("reason", reason),), 1)

    def on_event(self, session: str, happening: Record | Delta) -> None:
        event = happening.event if isinstance(happening, Record) else None
        if isinstance(event, RunEnded):
            self.runs.add((("stop", event.stop),), 1)
        elif isinstance(event, ModelReplied):
            for kind in USAGE_KINDS:
                if count := getattr(event.reply.usage, kind):
                    self.tokens.add((("kind", kind),), count)
            if event.usd is not None:
                self.cost.add((), float(event.usd))
            if event.latency is not None:
                self.replies.add((), event.latency.total_seconds)
                if event.latency.first_token_seconds is not None:
                    self.first_tokens.add((), event.latency.first_token_seconds)

    def render(self, host: "AgentHost") -> str:
        series = (
            self.runs,
            self.tokens,
            self.cost,
            self.first_tokens,
            self.replies,
            self.requests,
            self.adoptions,
        )
        lines = [line for each in series for line in render_series(each)]
        return "".join(f"{line}\n" for line in (*lines, *_render_gauges(host)))


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
