"""Folds the records of a session into spans.

    invoke_agent            a run; a resumed run and a hand-over add one inside it
      turn N                a model call and the tools that its reply asked for
        chat MODEL          one attempt at a model call
        retry               the wait between two attempts
        execute_tool NAME   one attempt at a tool call; a run inside it is its child
        approval NAME       a question to a person
      compaction            with the model call for its summary
      store_prompt, compensate NAME

Ids are hashes of the record that began the run and of what the span is about. They are the same in every process
that reads the log: a resumed run continues its trace, and a span that is emitted again has the id it had.

A span is emitted when it ends. A run that stopped and is resumed gets a new `invoke_agent` span inside the first. A
run whose process was killed is continued by the spans that were open: only the calls in progress end as
`interrupted`, at the time of the last record before the crash.
"""

from collections.abc import Callable
from typing import Any

from bridle.core.state import State
from bridle.values import events as e
from bridle.values.cache import CacheDegraded, PrefixMoved, PromptStored
from bridle.values.record import Attributes, Record, Span, SpanEvent, TraceContext

from .attributes import MODEL, TraceContent
from .model_spans import (
    begin_model_call,
    fail_model_call,
    finish_compaction,
    finish_model_call,
    record_stored_prompt,
)
from .open_trace import Moment, OpenTrace
from .run_spans import begin_run, end_run, hand_over_run, resume_run
from .tool_spans import (
    begin_approval,
    begin_compensation,
    begin_tool_call,
    finish_approval,
    finish_compensation,
    finish_tool_call,
    interrupt_tool_call,
)


class SessionTrace:
    """The trace of one session, as far as its records go."""

    def __init__(self, session: str, content: TraceContent = None) -> None:
        self._open = OpenTrace(session, content)

    def apply(self, record: Record, before: State, after: State) -> list[Span]:
        """Spans that ended with this record; `before` and `after` are the states around it."""
        trace = self._open
        handler = HANDLERS.get(type(record.event))
        if handler is not None:
            handler(trace, record.event, Moment(record, before, after))
        trace.last_at = record.at
        finished, trace.finished = trace.finished, []
        return finished

    def list_open(self) -> list[Span]:
        """The spans that have not ended, as if they ended with the latest record."""
        return self._open.list_open()

    @property
    def is_running(self) -> bool:
        """True from a prompt to the end of its run."""
        return self._open.agent is not None

    @property
    def parent(self) -> TraceContext:
        """The caller's context, or that of a new trace."""
        return self._open.parent

    def run_context(self) -> TraceContext:
        """Context of user code between the calls of the run."""
        current = self._open.agent
        return self._make_context(current.span_id if current is not None else self._open.root_id)

    def call_context(self, call_id: str, attempt: int) -> TraceContext:
        """Context inside a tool call."""
        return self._make_context(self._open.make_tool_id(call_id, attempt))

    def _make_context(self, span_id: bytes) -> TraceContext:
        parent = self._open.parent
        return TraceContext(trace_id=parent.trace_id, span_id=span_id, sampled=parent.sampled)


def add_moment(trace: OpenTrace, event: e.Event, moment: Moment) -> None:
    """Note an event of the run that has no duration."""
    if trace.agent is not None:
        name = str(type(event).__struct_config__.tag)
        found = SpanEvent(name=name, at=moment.at, attributes=_describe_moment(event))
        trace.agent.events.append(found)


def _describe_moment(event: object) -> Attributes:
    """Members of fixed lists, names and numbers of an event; none of its text."""
    match event:
        case e.ModelSwitched(model=model):
            return {MODEL: model.id}
        case PrefixMoved(layer=layer, cause=cause, uncached_tokens=tokens):
            return {"layer": layer, "cause": cause, "uncached_tokens": tokens}
        case CacheDegraded(rule=rule, rate=rate, outcome=outcome, missed_tokens=tokens):
            return {"rule": rule, "rate": rate, "outcome": outcome, "missed_tokens": tokens}
        case e.HookDecided(hook=hook, point=point, action=action):
            return {"hook": hook, "point": point, "action": action}
        case e.OutputChecked(validator=validator, verdict=verdict):
            return {"validator": validator, "verdict": verdict}
        case e.ToolsRevealed(names=names):
            return {"names": names}
        case e.ToolsChanged(server=server, added=added, missing=missing):
            return {"server": server, "added": tuple(spec.name for spec in added), "missing": missing}
    return {}


Handler = Callable[[OpenTrace, Any, Moment], None]
HANDLERS: dict[type[Any], Handler] = {
    e.Prompted: begin_run,
    e.Configured: hand_over_run,
    e.Resumed: resume_run,
    e.RunEnded: end_run,
    e.ModelAsked: begin_model_call,
    e.ModelReplied: finish_model_call,
    e.ModelFailed: fail_model_call,
    e.ToolStarted: begin_tool_call,
    e.ToolInterrupted: interrupt_tool_call,
    e.ToolFinished: finish_tool_call,
    e.ApprovalAsked: begin_approval,
    e.ApprovalAnswered: finish_approval,
    e.CompensationStarted: begin_compensation,
    e.CompensationFinished: finish_compensation,
    e.Compacted: finish_compaction,
    PromptStored: record_stored_prompt,
    **dict.fromkeys(
        (e.ModelSwitched, PrefixMoved, CacheDegraded, e.HookDecided, e.OutputChecked, e.ToolsRevealed,
         e.RequestAdjusted, e.Reprompted, e.Steered, e.PauseRequested, e.LogRepaired, e.ViewChanged,
         e.ToolsChanged),
        add_moment,
    ),
}  # fmt: skip
"""Events that begin, end or mark a span."""
