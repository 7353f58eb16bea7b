"""Calls that lost their driver: pending calls in a fork, and in a log with lost records.

Forks: a call pending at the fork point belongs to the parent, which may be running it right now. The fork
answers it without running it; the model can call again, under another key. With `once_per`, a call that was
running is in doubt in the fork, and so is an equal one. Calls that only read, or that may be repeated under
their key, stay open and run in both. Actions done before the fork are undone, if at all, in the parent.

Lost records: it is unknown what they did. A run in progress ends, its pending calls are in doubt whatever the
log says, and the model is informed that it may have done more than it can read, so that it does not repeat an
action.

`LOG_TRANSITIONS` has the events about the log itself, which may come in every phase.
"""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from bridle.core.cache.prefix import mark_stale_from
from bridle.core.context.token_estimate import append_message
from bridle.core.state import Phase, RunEnd, State
from bridle.values import events as e
from bridle.values.cache import PrefixMoved
from bridle.values.message import Message, Text, ToolResult
from bridle.values.request import ToolSpec

from .pending import PendingCall, find_call
from .transitions import abandon_calls, append_results, close_batch, record_call_in_doubt, update_call

RUNNING_IN_PARENT = (
    "This call was under way in the session that this one was forked from. Whether it took effect is not"
    " known here; find out before you repeat it."
)
LEFT_TO_PARENT = (
    "This call was not run here. It belongs to the session that this one was forked from, which may run it"
    " yet; find out before you repeat it."
)


def apply_forked(state: State, event: e.Forked, at: float, proof: str) -> State:
    # The provider's conversation object continues with the parent session.
    state = replace(state, cache=replace(state.cache, server_conversation=None))
    run = replace(
        state.run, compensations=tuple(item for item in state.run.compensations if item.state == "done")
    )
    if not any(item.result is None for item in state.calls.batch.pending):
        return replace(state, run=run)
    calls = tuple(
        _inherit_call(item, state.settings.find_tool(item.call.name)) for item in state.calls.batch.pending
    )
    for before, item in zip(state.calls.batch.pending, calls, strict=True):
        if before.result is None and item.result is not None and item.result.outcome == "unknown":
            state = record_call_in_doubt(state, item, at)
    if all(item.result is not None for item in calls):
        run = replace(run, end=replace(run.end, stop=None, reason=""))
        return close_batch(
            replace(
                state,
                phase=Phase.RUNNING_TOOLS,
                calls=replace(state.calls, batch=replace(state.calls.batch, pending=calls)),
                run=run,
            ),
            at,
        )
    return replace(
        state, calls=replace(state.calls, batch=replace(state.calls.batch, pending=calls)), run=run
    )


def has_calls_to_keep(state: State) -> bool:
    """True if a fork here would leave pending calls with effects to the parent."""
    return any(
        _is_owned_by_parent(item, state.settings.find_tool(item.call.name))
        for item in state.calls.batch.pending
    )


def _is_owned_by_parent(item: PendingCall, spec: ToolSpec | None) -> bool:
    """True if running the call in both sessions would perform its action twice."""
    if item.result is not None or item.problem or spec is None:
        return False
    return spec.effect != "read" and spec.on_unknown != "retry"


def _inherit_call(item: PendingCall, spec: ToolSpec | None) -> PendingCall:
    """A pending call as the fork inherits it: not running here."""
    if item.result is not None or item.hooks.unreviewed is not None:
        return item
    started = item.running or item.in_doubt
    if not _is_owned_by_parent(item, spec):
        return replace(item, running=False, in_doubt=started)
    result = ToolResult(
        call_id=item.call.id,
        parts=(Text(text=RUNNING_IN_PARENT if started else LEFT_TO_PARENT),),
        outcome="unknown" if started else "cancelled",
    )
    return replace(item, running=False, in_doubt=False, result=result)


RECORDS_LOST = (
    "A part of the record of this conversation was lost at this point. Things may have been said and done"
    " that are not in it; find out before you repeat anything."
)
ENDED_BY_LOSS = "the rest of the log was lost"


def apply_log_repaired(state: State, event: e.LogRepaired, at: float, proof: str) -> State:
    if not event.records_lost or state.phase is Phase.NEW:
        return state
    after = state
    if state.phase is not Phase.IDLE:
        run = replace(
            state.run,
            end=RunEnd(stop="cancelled", reason=ENDED_BY_LOSS),
            evaluation=replace(state.run.evaluation, reply=None, continued_text=""),
        )
        after = replace(state, phase=Phase.IDLE, run=run)
        if state.calls.batch.pending:
            doubtful = tuple(replace(item, in_doubt=True) for item in state.calls.batch.pending)
            after = append_results(after, abandon_calls(doubtful), at)
    return append_message(
        after, Message(role="user", parts=(Text(text=RECORDS_LOST),), at=at, provenance="harness")
    )


def ignore_unknown_event(state: State, event: e.UnknownEvent, at: float, proof: str) -> State:
    return state


def apply_interrupt(state: State, event: e.ToolInterrupted, at: float, proof: str) -> State:
    """The call has started and has no result; its tool's `on_unknown` decides, as after a crash."""
    return update_call(state, event.call_id, running=False, in_doubt=True)


def apply_server_request(
    state: State, event: e.ServerAsked | e.ServerAnswered, at: float, proof: str
) -> State:
    """Keep the answer to a request of a server with its call, which may run again."""
    place = find_call(state.calls.batch.pending, event.call_id)
    if place is None or isinstance(event, e.ServerAsked):
        return state
    answers = (*state.calls.batch.pending[place].server_answers, event)
    return update_call(state, event.call_id, server_answers=answers)


SERVER_EVENTS: dict[tuple[Phase, type], Callable[[State, Any, float, str], State]] = {
    (Phase.RUNNING_TOOLS, e.ToolInterrupted): apply_interrupt,
    (Phase.RUNNING_TOOLS, e.ServerAsked): apply_server_request,
    (Phase.RUNNING_TOOLS, e.ServerAnswered): apply_server_request,
}
"""Transitions of events about the services of tools, such as servers."""


def apply_content_redacted(state: State, event: e.ContentRedacted, at: float, proof: str) -> State:
    """Send everything again: the prompt has changed, and a provider may hold what was removed."""
    messages = state.conversation.transcript.messages
    places = [place for place, message in enumerate(messages) if message.id == event.message]
    if not places:
        return state
    moved = PrefixMoved(
        layer="history",
        block=f"message {event.message}",
        cause="view_changed",
        why=f"content of record {event.record} was redacted",
    )
    cache = replace(
        state.cache,
        history=replace(state.cache.history, prefix_change=moved),
        last_request=None,
        server_conversation=None,
        chained_from=len(messages),
    )
    return mark_stale_from(replace(state, cache=cache), places[0])


LOG_TRANSITIONS: dict[tuple[Phase, type], Callable[[State, Any, float, str], State]] = {
    (phase, event): handle
    for phase in Phase
    for event, handle in (
        (e.Forked, apply_forked),
        (e.LogRepaired, apply_log_repaired),
        (e.UnknownEvent, ignore_unknown_event),
        (e.ContentRedacted, apply_content_redacted),
        (e.ControlRefused, ignore_unknown_event),
    )
}
