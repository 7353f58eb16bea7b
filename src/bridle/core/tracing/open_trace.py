"""The spans of a session that have not ended, and the ids of all of them.

Ids are hashes of the record that began the run and of what a span is about.
"""

from hashlib import sha256
from typing import NamedTuple

import msgspec

from bridle.core.state import State
from bridle.values.record import (
    NO_SPAN,
    NO_TRACE,
    Attributes,
    Record,
    Span,
    SpanEvent,
    SpanKind,
    TraceContext,
)

from .attributes import ERROR_TYPE, TraceContent


class Moment(NamedTuple):
    """A record, and the states before and after it."""

    record: Record
    before: State
    after: State

    @property
    def at(self) -> float:
        return self.record.at


class OpenSpan(msgspec.Struct, gc=False):
    """A span that has not ended."""

    span_id: bytes
    parent_id: bytes
    name: str
    start: float
    attributes: Attributes
    kind: SpanKind = "internal"
    events: list[SpanEvent] = []
    last_end: float = 0.0
    """End of the last span inside it."""


class OpenTrace:
    """The trace of the current run of a session: what is open, and what ended with the latest record."""

    def __init__(self, session: str, content: TraceContent = None) -> None:
        self.session, self.content = session, content
        self.finished: list[Span] = []
        self.last_at = 0.0
        self.begin(TraceContext(trace_id=NO_TRACE), b"")

    def begin(self, parent: TraceContext, key: bytes) -> None:
        """Start the trace of a run inside `parent`; every id is derived from `key`."""
        self.parent, self._key = parent, key
        self.root_id = NO_SPAN
        self.root: OpenSpan | None = None
        self.agent: OpenSpan | None = None
        """The run, or the part of it that the current agent or driver does."""
        self.turn: OpenSpan | None = None
        self.step = 0
        self.model_call: OpenSpan | None = None
        self.failed_at: float | None = None
        """Time of a failed model call that was not repeated yet."""
        self.compaction: OpenSpan | None = None
        self.tools: dict[str, OpenSpan] = {}
        self.approvals: dict[str, OpenSpan] = {}

    def open(
        self,
        key: tuple[object, ...],
        name: str,
        at: float,
        attributes: Attributes,
        parent: OpenSpan | None,
        kind: SpanKind = "internal",
    ) -> OpenSpan:
        parent_id = parent.span_id if parent is not None else self.root_id
        return OpenSpan(self.make_id(*key), parent_id, name, at, attributes, kind)

    def open_turn(self, at: float, step: int) -> OpenSpan:
        if self.turn is None or step != self.step:
            self.close_turn()
            about = self.agent.span_id.hex() if self.agent is not None else ""
            attributes: Attributes = {"bridle.step": step}
            self.turn = self.open(("turn", step, about), f"turn {step}", at, attributes, self.agent)
            self.step = step
        return self.turn

    def close_turn(self) -> None:
        """End the turn with the last span inside it."""
        turn, self.turn = self.turn, None
        if turn is not None:
            self.close(turn, max(turn.start, turn.last_end))

    def close(
        self, span: OpenSpan, at: float, error: str = "", text: str = "", *, ends_run: bool = False
    ) -> None:
        """End a span; `text` is the message of the error, which is content."""
        if self.turn is not None and span.parent_id == self.turn.span_id:
            self.turn.last_end = max(self.turn.last_end, at)
        if error:
            span.attributes[ERROR_TYPE] = error
        shown = self.content(text) if error and text and self.content is not None else ""
        self.finished.append(self._make_span(span, at, error, shown, ends_run=ends_run))

    def list_open(self) -> list[Span]:
        """The spans that have not ended, up to the latest record."""
        single = (self.root, self.agent, self.turn, self.model_call, self.compaction)
        spans = {
            span.span_id: span for span in (*single, *self.tools.values(), *self.approvals.values()) if span
        }
        return [self._make_span(span, self.last_at) for span in spans.values()]

    def _make_span(
        self, span: OpenSpan, at: float, error: str = "", text: str = "", *, ends_run: bool = False
    ) -> Span:
        return Span(
            trace_id=self.parent.trace_id,
            span_id=span.span_id,
            parent_id=span.parent_id,
            name=span.name,
            kind=span.kind,
            start=span.start,
            end=max(at, span.start),
            attributes=span.attributes,
            events=tuple(span.events),
            error=error,
            error_text=text,
            sampled=self.parent.sampled,
            has_caller=self.parent.span_id != NO_SPAN,
            ends_run=ends_run,
        )

    def make_id(self, *about: object) -> bytes:
        return sha256(b"%b%b" % (self._key, " ".join(map(str, about)).encode())).digest()[:8]

    def make_tool_id(self, call_id: str, attempt: int) -> bytes:
        """Id of a tool call, known before the call is recorded."""
        return sha256(b"%btool %b %d" % (self._key, call_id.encode(), attempt)).digest()[:8]


def hash_id(key: bytes, about: str, size: int) -> bytes:
    return sha256(key + about.encode()).digest()[:size]
