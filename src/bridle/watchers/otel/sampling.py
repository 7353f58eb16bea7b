"""Decides which traces are sent.

At the head: the caller's decision, and a share of the trace ids. Every process decides the same for a trace.
At the tail: a trace outside of that share is held back until its run ends, and is sent if it failed, was
expensive or slow. What is held back is bounded; the oldest trace is given up first.
"""

from collections import OrderedDict
from collections.abc import Sequence

from bridle.values.record import Span

from .settings import Telemetry

HELD_SPANS_MAX = 20_000
KEPT_TRACES_MAX = 10_000
ID_RANGE = 1 << 64
PARENT_SESSION = "bridle.parent.session"
COSTS = ("bridle.run.cost.usd", "bridle.subruns.cost.usd")


def is_in_sample(trace_id: bytes, share: float) -> bool:
    """True for a share of all trace ids: by their last eight bytes, as other OpenTelemetry libraries decide."""
    return share >= 1 or int.from_bytes(trace_id[8:]) < share * ID_RANGE


class Sampler:
    """Chooses spans for sending; not safe for use by several threads."""

    def __init__(self, settings: Telemetry) -> None:
        self._settings = settings
        self._holds = (
            settings.keep_errors or settings.keep_usd is not None or settings.keep_seconds is not None
        )
        self._held: OrderedDict[bytes, list[Span]] = OrderedDict()
        self._held_count = 0
        self._kept: OrderedDict[bytes, None] = OrderedDict()
        """Traces that were sent although they are outside of the sample."""
        self.given_up = 0
        """Spans of traces that could not be held back until their end."""

    def choose(self, spans: Sequence[Span]) -> list[Span]:
        """The spans to send now."""
        chosen: list[Span] = []
        for span in spans:
            trace_id = span.trace_id
            if (span.sampled and is_in_sample(trace_id, self._settings.sample)) or trace_id in self._kept:
                chosen.append(span)
            elif self._holds:
                chosen += self._hold(span)
        return chosen

    def _hold(self, span: Span) -> Sequence[Span]:
        trace_id = span.trace_id
        self._held.setdefault(trace_id, []).append(span)
        self._held_count += 1
        if span.ends_run and PARENT_SESSION not in span.attributes:
            held = self._held.pop(trace_id)
            self._held_count -= len(held)
            if self._is_kept(span, held):
                self._kept[trace_id] = None
                while len(self._kept) > KEPT_TRACES_MAX:
                    self._kept.popitem(last=False)
                return held
            return ()
        while self._held_count > HELD_SPANS_MAX:
            _, lost = self._held.popitem(last=False)
            self._held_count -= len(lost)
            self.given_up += len(lost)
        return ()

    def _is_kept(self, run: Span, held: Sequence[Span]) -> bool:
        rules = self._settings
        if rules.keep_errors and any(span.error for span in held):
            return True
        costs = (run.attributes.get(name) for name in COSTS)
        cost = sum(each for each in costs if isinstance(each, float))
        if rules.keep_usd is not None and cost >= rules.keep_usd:
            return True
        start = min(span.start for span in held)
        return rules.keep_seconds is not None and run.end - start >= rules.keep_seconds
