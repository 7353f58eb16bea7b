"""Events as lines for a person: a label and its text."""

import msgspec

from bridle.values import events as e
from bridle.values.budget import (
    Amount,
    BudgetReserved,
    BudgetSettled,
    BudgetSnapshot,
    SubrunCharged,
    SubrunStarted,
    SubrunWaiting,
)
from bridle.values.calls import ServerRequestEvent
from bridle.values.memory import ContextRetrieved, InstructionWritten, MemoryLoaded, NoteRemoved, NoteWritten
from bridle.values.request import StepOptions
from bridle.watchers.console import describe_tool_changes, format_count, format_dollars, format_usage


def format_tools(event: e.ToolsRevealed | e.ToolsChanged) -> list[tuple[str, str]]:
    if isinstance(event, e.ToolsChanged):
        return [("tools", line) for line in describe_tool_changes(event)]
    names = ", ".join(event.names) or "no more"
    uncached = f", {event.uncached_tokens} of the prompt uncached" if event.uncached_tokens else ""
    return [("tools", f"{names} shown from here on: {event.why} (about {event.tokens} tokens{uncached})")]


def format_options(chosen: StepOptions) -> tuple[str, str]:
    return "options", f"chosen by functions of the agent: {msgspec.json.encode(chosen).decode()}"


def format_conversation(event: e.ConversationOpened | e.ConversationDropped) -> tuple[str, str]:
    if isinstance(event, e.ConversationOpened):
        return "state", f"the provider stores the conversation as {event.name}"
    dropped = f", {event.name} is no longer used" if event.name else ""
    return "state", f"the whole conversation is sent{dropped}: {event.why}"


def format_view_change(event: e.ViewChanged | e.Compacted) -> list[tuple[str, str]]:
    """One line: what was changed or shortened, by how much, and the cost in cached tokens."""
    if isinstance(event, e.ViewChanged):
        return [("view", f"{format_count(len(event.changes), 'part')} no longer sent: {event.why}")]
    maker = " that the provider made" if event.native_parts else ""
    turns = f"everything up to {event.summarized_until} is a summary{maker}" if event.summarized_until else ""
    what = " and ".join(filter(None, (turns, format_count(len(event.changes), "part") * bool(event.changes))))
    cost = f", {format_dollars(float(event.usd))}" if event.usd is not None else ""
    sizes = f"{event.before_tokens:,} -> {event.after_tokens:,} tokens"
    uncached = f"{event.uncached_tokens:,} of them not read from the cache{cost}"
    return [("compact", f"{', '.join(event.strategies)}: {what}; {sizes}, {uncached}: {event.why}")]


def format_notice(event: e.Reprompted | e.Steered | e.SteeringTaken | e.PauseRequested) -> tuple[str, str]:
    match event:
        case e.Reprompted(why=why, message=words):
            return "reprompt", f"{why}: {words}"
        case e.Steered(message=words, by=by):
            return "steer", f"{by}: {words}" if by else words
        case e.SteeringTaken(count=count):
            return "steer", f"{format_count(count, 'message')} taken up"
        case e.PauseRequested(reason=reason):
            return "pause", reason


LogEvent = e.ContentRedacted | e.ControlRequested | e.ControlRefused | e.TrialScored | e.UnknownEvent


def format_log_event(event: LogEvent) -> tuple[str, str]:
    """An event about the log itself, or about a request of another process."""
    match event:
        case e.ContentRedacted(record=seq, field=field, by=by, reason=reason):
            return "redacted", f"{field or 'all content'} of record {seq}, by {by}: {reason}"
        case e.ControlRequested(action=action, by=by, text=text):
            return "request", f"{action} by {by}{f': {text}' if text else ''}"
        case e.ControlRefused(action=action, by=by, why=why):
            return "refused", f"{action} by {by}: {why}"
        case e.TrialScored(task=task, number=number, passed=passed):
            return "trial", f"{task} {number} {'passed' if passed else 'failed'}"
        case e.UnknownEvent(kind=kind):
            return "unknown", f"{kind or 'of no kind'}: written by a newer version; ignored"


def format_hook(event: e.HookDecided) -> list[tuple[str, str]]:
    """One line about a hook that changed, refused, answered or failed; none if it continued."""
    if event.action == "continue":
        return []
    subject = f"{event.point} {event.call_id}".strip()
    what = event.reason or event.arguments or event.replacement or format_count(len(event.edits), "edit")
    return [("hook", f"{event.hook}, {subject}: {event.action}: {what}")]


MemoryEvent = MemoryLoaded | ContextRetrieved | NoteWritten | NoteRemoved | InstructionWritten


def format_memory(event: MemoryEvent) -> tuple[str, str]:
    match event:
        case InstructionWritten(name=name, instructions=text, write_error=error):
            return "instruction", f"{name}: {error or text}"
        case NoteWritten(note=note):
            return "note", f"{note.id} by {note.written_by}: {note.text}"
        case NoteRemoved(id=note_id, removed_by=by):
            return "note", f"{note_id} removed by {by}"
    left = f"; {event.omitted_count} left out for lack of space" if event.omitted_count else ""
    trouble = f"; {event.load_error}" if event.load_error else ""
    if isinstance(event, MemoryLoaded):
        whose = f" for the caller {event.caller}" if event.caller else ""
        withheld = (
            f"; {event.withheld_count} of the tenant not shown to a caller" if event.withheld_count else ""
        )
        notes = format_count(len(event.notes), "note")
        return "memory", f"{notes}{whose} from here on: {event.why}{withheld}{left}{trouble}"
    sources = ", ".join(
        dict.fromkeys(chunk.source or chunk.id for chunk in event.chunks if chunk.source or chunk.id)
    )
    chunks, facts = format_count(len(event.chunks), "chunk"), format_count(len(event.facts), "fact")
    return "retrieved", f"{chunks}{f' ({sources})' if sources else ''}, {facts}{left}{trouble}"


BudgetEvent = BudgetReserved | BudgetSettled | BudgetSnapshot


def format_subrun(
    event: SubrunStarted | SubrunCharged | SubrunWaiting | ServerRequestEvent,
) -> tuple[str, str]:
    """An event of a run inside a tool call, or of a request of the tool's server."""
    match event:
        case ServerRequestEvent(call_id=call_id, server=server, kind=kind):
            said = [getattr(event, name, "") for name in ("request", "action", "content", "reason", "by")]
            return "server", f"{call_id} {server}, {kind}: {'; '.join(filter(None, said))}"
        case SubrunStarted(call_id=call_id, session=session):
            return "nested", f"{call_id} runs session {session}"
        case SubrunWaiting(call_id=call_id, session=session, reason=reason):
            return "nested", f"{call_id} waits for session {session}: {reason}"
        case SubrunCharged(session=session, id=call, tool_calls=tool_calls) if tool_calls:
            return "nested", f"{session}: tool call {call.rpartition('/')[2]} counted"
        case SubrunCharged(session=session, usage=usage, usd=usd):
            cost = format_dollars(None if usd is None else float(usd))
            return "nested", f"{session}: {format_usage(usage)} · {cost}"


def format_budget_event(event: BudgetEvent) -> list[tuple[str, str]]:
    match event:
        case BudgetReserved(id=id_, amount=amount):
            return [("reserved", f"{id_} {_format_amount(amount)}")]
        case BudgetSettled(id=id_, amount=amount, source=how):
            return [("settled", f"{id_} {_format_amount(amount)}" + (f" ({how})" if how else ""))]
        case BudgetSnapshot(spent=spent, open_reservations=open_):
            return [("snapshot", f"{_format_amount(spent)} spent, {format_count(len(open_), 'call')} open")]


def _format_amount(amount: Amount) -> str:
    return f"{format_dollars(float(amount.usd))} · {amount.tokens:,} tokens"
