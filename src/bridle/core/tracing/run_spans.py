"""Spans of runs: begun by a prompt, continued by another agent or another driver, and ended."""

from bridle.core.cache.breakpoints import agent_name
from bridle.core.state import State
from bridle.values import events as e
from bridle.values.record import NO_SPAN, Attributes, SpanEvent, TraceContext, parse_traceparent
from bridle.values.usage import Usage

from . import attributes as a
from .model_spans import LOST, close_model_call, price_partial
from .open_trace import Moment, OpenSpan, OpenTrace, hash_id
from .tool_spans import CANCELLED, INTERRUPTED, close_tools


def begin_run(trace: OpenTrace, event: e.Prompted, moment: Moment) -> None:
    key = bytes.fromhex(moment.record.hash)
    parent = parse_traceparent(event.traceparent) if event.traceparent else None
    trace.begin(parent or TraceContext(trace_id=hash_id(key, "trace", 16)), key)
    found = a.run_attributes(trace.session, moment.after, event)
    if trace.content is not None:
        found["gen_ai.input.messages"] = a.describe_messages("user", event.parts, trace.content)
        if event.caller:
            found["enduser.id"] = trace.content(event.caller)
        if moment.after.settings.instructions:
            found["gen_ai.system_instructions"] = trace.content(moment.after.settings.instructions)
    trace.root_id = trace.make_id("run")
    name = f"{a.INVOKE_AGENT} {agent_name(moment.after.settings)}"
    trace.root = trace.agent = OpenSpan(
        trace.root_id, trace.parent.span_id, name, moment.at, found, events=[]
    )


def hand_over_run(trace: OpenTrace, event: e.Configured, moment: Moment) -> None:
    if event.handed_over_to and trace.agent is not None:
        trace.close_turn()
        if trace.agent is not trace.root:
            trace.close(trace.agent, moment.at)
        _open_agent(trace, moment, {"bridle.handed_over": True})


def _open_agent(trace: OpenTrace, moment: Moment, extra: Attributes) -> None:
    """Open the span of the part of a run that another agent or another driver does."""
    state = moment.after
    found = a.agent_attributes(state.settings) | {
        a.OPERATION: a.INVOKE_AGENT,
        "gen_ai.conversation.id": trace.session,
        **extra,
    }
    if state.run.origin.tenant:
        found["bridle.tenant"] = state.run.origin.tenant
    name = f"{a.INVOKE_AGENT} {agent_name(state.settings)}"
    trace.agent = OpenSpan(
        trace.make_id("agent", moment.record.seq),
        trace.root_id,
        name,
        moment.at,
        found,
        events=[],
    )


def resume_run(trace: OpenTrace, event: object, moment: Moment) -> None:
    if trace.root_id == NO_SPAN:
        return
    if trace.agent is None:
        _open_agent(trace, moment, {"bridle.resumed": True})
        return
    if trace.model_call is not None:
        close_model_call(trace, trace.last_at, Usage(incomplete=True), None, LOST)
    close_tools(trace, trace.last_at, INTERRUPTED)
    trace.agent.events.append(SpanEvent(name="resumed", at=moment.at, attributes={}))


def end_run(trace: OpenTrace, event: e.RunEnded, moment: Moment) -> None:
    if trace.agent is None:
        return
    if trace.model_call is not None:
        usage, usd, why = Usage(incomplete=True), None, LOST
        if event.usage is not None:
            usage, usd = price_partial(moment.before, event.usage, event.usd)
            why = CANCELLED
        trace.model_call.attributes.update(a.latency_attributes(event.latency))
        close_model_call(trace, moment.at, usage, usd, why, is_error=False)
    close_tools(trace, moment.at, "waiting" if event.stop == "waiting" else CANCELLED)
    if trace.compaction is not None:
        trace.close(trace.compaction, moment.at)
        trace.compaction = None
    trace.close_turn()
    trace.failed_at = None
    totals = a.end_attributes(event, moment.after)
    failed = event.stop in a.FAILED_STOPS
    if trace.content is not None:
        totals["bridle.stop.reason"] = trace.content(event.reason)
        text = _latest_reply_text(moment.after) if event.stop == "done" else ""
        if text:
            totals["gen_ai.output.messages"] = a.encode_json(
                [{"role": "assistant", "parts": [{"type": "text", "content": trace.content(text)}]}]
            )
    last = trace.root or trace.agent
    for span in (trace.agent, last) if trace.agent is not last else (last,):
        span.attributes.update(totals)
        error = event.stop if failed else ""
        trace.close(span, moment.at, error, event.reason, ends_run=span is last)
    trace.agent = trace.root = None


def _latest_reply_text(state: State) -> str:
    latest = state.conversation.transcript.messages[-1:]
    return latest[0].text if latest and latest[0].role == "assistant" else ""
