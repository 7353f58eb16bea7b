"""Spans of tool calls, of questions to a person about them, and of compensations."""

from bridle.values import events as e
from bridle.values.message import ToolResult
from bridle.values.record import Attributes
from bridle.values.settings import Settings

from . import attributes as a
from .open_trace import Moment, OpenSpan, OpenTrace

APPROVAL_ANSWER = "bridle.approval.answer"
TOOL_TYPE, UNKNOWN_TOOL = "function", "unknown tool"
INTERRUPTED, CANCELLED, EXPIRED = "interrupted", "cancelled", "expired"
EXPECTED_OUTCOMES = ("ok", "denied", "cancelled", "waiting")
"""Outcomes of a tool call that are not errors."""


def begin_tool_call(trace: OpenTrace, event: e.ToolStarted, moment: Moment) -> None:
    found = _tool_attributes(trace, event.call_id, event.name, event.arguments) | a.owner_attributes(
        moment.after
    )
    found["bridle.attempt"] = event.attempt
    parent = trace.turn or trace.agent
    trace.tools[event.call_id] = OpenSpan(
        trace.make_tool_id(event.call_id, event.attempt),
        parent.span_id if parent is not None else trace.root_id,
        f"{a.EXECUTE_TOOL} {event.name}",
        moment.at,
        found,
    )


def finish_tool_call(trace: OpenTrace, event: e.ToolFinished, moment: Moment) -> None:
    result = event.result
    approval = trace.approvals.pop(event.call_id, None)
    if approval is not None:
        approval.attributes[APPROVAL_ANSWER] = EXPIRED
        trace.close(approval, moment.at)
    span = trace.tools.pop(event.call_id, None)
    if span is None:
        name = mask_unknown_name(moment.before.settings, event.name)
        found = _tool_attributes(trace, event.call_id, name, event.arguments) | a.owner_attributes(
            moment.after
        )
        if name != event.name and trace.content is not None:
            found["bridle.tool.requested_name"] = trace.content(event.name)
        key, parent = ("result", moment.record.seq), trace.turn or trace.agent
        span = trace.open(key, f"{a.EXECUTE_TOOL} {name}", moment.at, found, parent)
    if event.source != "run":
        span.attributes["bridle.tool.result_source"] = event.source
    if event.rule and trace.content is not None:
        span.attributes["bridle.tool.rule"] = trace.content(event.rule)
    _close_tool(trace, span, moment.at, result)


def interrupt_tool_call(trace: OpenTrace, event: e.ToolInterrupted, moment: Moment) -> None:
    span = trace.tools.pop(event.call_id, None)
    if span is not None:
        span.attributes["bridle.tool.outcome"] = INTERRUPTED
        trace.close(span, moment.at, INTERRUPTED, event.why)


def mask_unknown_name(settings: Settings, name: str) -> str:
    """The name of a tool; a name that the model invented is content."""
    known = (*settings.tools, *settings.hidden_tools)
    return name if any(name == spec.name for spec in known) else UNKNOWN_TOOL


def _close_tool(trace: OpenTrace, span: OpenSpan, at: float, result: ToolResult) -> None:
    span.attributes["bridle.tool.outcome"] = result.outcome
    if trace.content is not None:
        described = a.describe_parts(result.parts, trace.content)
        span.attributes["gen_ai.tool.call.result"] = described
    error = "" if result.outcome in EXPECTED_OUTCOMES else result.outcome
    trace.close(span, at, error, result.text if error else "")


def _tool_attributes(trace: OpenTrace, call_id: str, name: str, arguments: str) -> Attributes:
    found: Attributes = {
        a.OPERATION: a.EXECUTE_TOOL,
        "gen_ai.tool.name": name,
        "gen_ai.tool.type": TOOL_TYPE,
        "gen_ai.tool.call.id": call_id,
    }
    if trace.content is not None:
        found["gen_ai.tool.call.arguments"] = trace.content(arguments)
    return found


def close_tools(trace: OpenTrace, at: float, outcome: str) -> None:
    for span in trace.tools.values():
        span.attributes["bridle.tool.outcome"] = outcome
        trace.close(span, at, outcome if outcome not in EXPECTED_OUTCOMES else "")
    trace.tools.clear()


def begin_approval(trace: OpenTrace, event: e.ApprovalAsked, moment: Moment) -> None:
    found: Attributes = {
        "gen_ai.tool.name": event.name,
        "gen_ai.tool.call.id": event.call_id,
        "bridle.approval.question": event.question,
        **a.owner_attributes(moment.after),
    }
    key, parent = ("approval", moment.record.seq), trace.turn or trace.agent
    trace.approvals[event.call_id] = trace.open(key, f"approval {event.name}", moment.at, found, parent)


def finish_approval(trace: OpenTrace, event: e.ApprovalAnswered, moment: Moment) -> None:
    span = trace.approvals.pop(event.call_id, None)
    if span is None:
        return
    span.attributes[APPROVAL_ANSWER] = event.answer
    if event.arguments is not None:
        span.attributes["bridle.approval.edited"] = True
    if trace.content is not None:
        span.attributes["bridle.approval.by"] = trace.content(event.by)
        span.attributes["bridle.approval.reason"] = trace.content(event.reason)
    trace.close(span, moment.at)


def begin_compensation(trace: OpenTrace, event: e.CompensationStarted, moment: Moment) -> None:
    found: Attributes = {"gen_ai.tool.name": event.name, "gen_ai.tool.call.id": event.call_id}
    key = ("compensation", event.call_id, event.attempt)
    name = f"compensate {event.name}"
    trace.tools[event.call_id] = trace.open(key, name, moment.at, found, trace.agent)


def finish_compensation(trace: OpenTrace, event: e.CompensationFinished, moment: Moment) -> None:
    span = trace.tools.pop(event.call_id, None)
    if span is not None:
        _close_tool(trace, span, moment.at, event.result)
