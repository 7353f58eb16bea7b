"""Calls that lost their driver: pending calls at the end of a run, in a fork, and in a log with lost records.

End of a run: a call that was started and has no result is in doubt. If it has an effect and its tool has a policy
(`on_unknown`), it stays open (`RunEnded.in_doubt`), and `resume` or the next prompt settles it before the conversation
continues. All other calls get a result. A call with runs inside it, such as a call of another agent, is settled if one
of those runs has a call in doubt.

Forks: a call pending at the fork point belongs to the parent, which may be running it right now. The fork
answers it without running it; the model can call again, under another key. With `once_per`, a call that was
running is in doubt in the fork, and so is an equal one. Calls that only read, or that may be repeated under
their key, stay open and run in both. Actions done before the fork are undone, if at all, in the parent.

Lost records: it is unknown what they did. A run in progress ends, its pending calls are in doubt whatever the
log says, and the model is informed that it may have done more than it can read, so that it does not repeat an
action.

`LOG_TRANSITIONS` has the events about the log itself, which may come in every phase.
"""

from collections.abc import Callable, Collection
from typing import Any

from msgspec.structs import replace

from bridle.core.cache.prefix import mark_stale_from
from bridle.core.context.assemble import callable_tools
from bridle.core.context.token_estimate import append_message
from bridle.core.effects import RunTool
from bridle.core.state import CallBatch, Phase, RunEnd, State
from bridle.values import events as e
from bridle.values.cache import PrefixMoved
from bridle.values.message import Message, Text, ToolResult
from bridle.values.request import OnUnknown, ToolSpec

from .dispatch import find_call_problem
from .pending import PendingCall, find_call
from .transitions import (
    abandon_calls,
    append_results,
    close_batch,
    record_call_in_doubt,
    remember_abandoned_call,
    update_call,
)

IN_DOUBT_REASON = "{calls} started and has no result; resume or the next prompt {action}"
CUT_ATTEMPTS_MAX = 3
"""Attempts at a call that are cut at their time limit before the model is told of a timeout."""
SETTLING_ACTIONS: dict[OnUnknown, str] = {
    "probe": "runs its probe",
    "ask": "asks a person",
    "retry": "repeats it with the same key",
}


def list_doubts(state: State, nested: Collection[str] = ()) -> tuple[str, ...]:
    """Ids of the calls that the end of the run leaves open; `nested` are calls with runs inside that have doubts."""
    with_runs = {each.call_id for each in state.run.budget.subruns}
    found = []
    for item in state.calls.batch.pending:
        policy = find_policy(state, item) if item.has_started else None
        goes_on = policy == "retry" and item.call.id in with_runs  # it continues those runs
        if policy is not None and (not goes_on or item.call.id in nested):
            found.append(item.call.id)
    return tuple(found)


def find_policy(state: State, item: PendingCall) -> OnUnknown | None:
    """Policy that settles the call after its run; None if it only reads, or its outcome is reported as unknown."""
    spec = state.settings.find_tool(item.call.name)
    if spec is None or spec.effect == "read" or spec.on_unknown == "report" or spec.handover:
        return None
    return spec.on_unknown


def is_cut_in_doubt(state: State, effect: RunTool) -> bool:
    """True if the tool's policy settles a call that was cut at its time limit and did not say what it had done."""
    place = find_call(state.calls.batch.pending, effect.call.id)
    if place is None:
        return False
    policy = find_policy(state, state.calls.batch.pending[place])
    has_runs = any(each.call_id == effect.call.id for each in state.run.budget.subruns)
    return policy == "ask" or (
        policy is not None and effect.attempt < CUT_ATTEMPTS_MAX and not (policy == "retry" and has_runs)
    )


def describe_doubts(state: State, calls: Collection[str]) -> str:
    """Text for the reason of a run: its calls in doubt and what settles them; empty if there are none."""
    told = []
    for item in state.calls.batch.pending:
        if item.call.id in calls and (policy := find_policy(state, item)) is not None:
            called = f"{item.call.name} ({item.call.id})"
            told.append(IN_DOUBT_REASON.format(calls=called, action=SETTLING_ACTIONS[policy]))
    return "; ".join(told)


def close_calls(state: State, event: e.RunEnded, at: float) -> State:
    """State in which the pending calls have results; if some are in doubt, the batch stays open for these."""
    closed = abandon_calls(state.calls.batch.pending, event.in_doubt)
    for before, item in zip(state.calls.batch.pending, closed, strict=True):
        if before.result is None and item.result is not None:
            state = remember_abandoned_call(state, item, at)
    if any(item.result is None for item in closed):
        return replace(state, calls=replace(state.calls, batch=CallBatch(pending=closed)))
    return append_results(state, closed, at)


def recheck_calls(state: State) -> tuple[PendingCall, ...]:
    """Pending calls under new settings: calls that are yet to start must be valid for the current tools."""
    known = callable_tools(state)
    return tuple(
        replace(item, problem=find_call_problem(item.effective_call, known))
        if item.result is None and item.attempt == 0 and not item.is_declined
        else item
        for item in state.calls.batch.pending
    )


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
