"""State transitions for tool calls, from opening a batch to its results.

Each function returns the state after one event. A batch is closed when its last call has a result; only then
does the model receive the results, in the order of its calls.

Forks: a call pending at the fork point belongs to the parent, which may be running it right now. The fork
answers it without running it; the model can call again, under another key. With `once_per`, a call that was
running is in doubt in the fork, and so is an equal one. Calls that only read, or that may be repeated under
their key, stay open and run in both. Actions done before the fork are undone, if at all, in the parent.

Lost records: it is unknown what they did. A run in progress ends, its pending calls are in doubt whatever the
log says, and the model is informed that it may have done more than it can read, so that it does not repeat an
action.
"""

from msgspec.structs import replace

from bridle.core.budget.limits import TOOL_CALL_LIMITS
from bridle.core.context.token_estimate import append_message, estimate_tool_tokens
from bridle.core.evaluate_reply import CYCLE_LENGTH_MAX, batch_signature, count_rejected_answer
from bridle.core.state import Phase, State
from bridle.values import events as e
from bridle.values.errors import MisuseError
from bridle.values.lineage import Forked
from bridle.values.message import Message, Text, ToolResult
from bridle.values.request import ToolSpec
from bridle.values.settings import Settings

from .catalogue import name_revealed_tools
from .compensation import record_compensation
from .dispatch import callable_tools, find_call_problem, pair_results
from .pending import (
    LOOKED_UP_SOURCES,
    PendingCall,
    add_doubt,
    add_receipt,
    find_call,
    is_still_unknown,
    settle_doubts,
    share_doubt,
)

CALL_INTERRUPTED = (
    "This call was interrupted while it was running. Whether it took effect is unknown; find out before"
    " you repeat it."
)
CALL_NOT_STARTED = "This call was not run: the run ended first."
ARGUMENTS_EDITED = "A person changed the arguments of this call to {arguments}\n"


def apply_tool_started(state: State, event: e.ToolStarted, at: float, proof: str) -> State:
    after = replace(_count_tool_call(state) if event.attempt == 1 else state, tools_started=True)
    return _update_call(
        after, event.call_id, attempt=event.attempt, key=event.key, running=True, in_doubt=False
    )


def _count_tool_call(state: State) -> State:
    spent, total = state.run.spent, state.total_spent
    run = replace(state.run, spent=replace(spent, tool_calls=spent.tool_calls + 1))
    return replace(state, run=run, total_spent=replace(total, tool_calls=total.tool_calls + 1))


def apply_tool_probed(state: State, event: e.ToolProbed, at: float, proof: str) -> State:
    """The probe found that the call never took effect: it may run, under its original key."""
    place = find_call(state.pending_calls, event.call_id)
    if place is None:
        return state
    item = _share_call_doubt(state, state.pending_calls[place])
    spec = _find_spec(state, item)
    doubts = settle_doubts(state.calls_in_doubt, item, spec) if spec is not None else state.calls_in_doubt
    return _update_call(replace(state, calls_in_doubt=doubts), event.call_id, in_doubt=False, key=item.key)


def apply_tool_finished(state: State, event: e.ToolFinished, at: float, proof: str) -> State:
    new_results = (
        (event.stored_result,)
        if event.stored_result is not None and event.stored_result not in state.stored_results
        else ()
    )
    before = replace(state, stored_results=(*state.stored_results, *new_results)) if new_results else state
    if event.rule in TOOL_CALL_LIMITS:
        before = replace(before, run=replace(before.run, tool_call_limit=TOOL_CALL_LIMITS[event.rule]))
    place = find_call(state.pending_calls, event.result.call_id)
    if place is not None and state.pending_calls[place].unanswered_question is not None:
        before = _exclude_person_time(before, at)  # for an answer that never came
    after = _update_call(before, event.result.call_id, result=event.result, running=False)
    item = after.pending_calls[place] if place is not None else None
    return close_batch(_remember_finished_call(after, item, event, at) if item is not None else after, at)


def _remember_finished_call(state: State, item: PendingCall, event: e.ToolFinished, at: float) -> State:
    """Record the compensation and the receipt of a finished call, which outlive its batch."""
    found = _share_call_doubt(state, item) if event.source in LOOKED_UP_SOURCES else item
    if found.repeated_call_id and not is_still_unknown(found, event.source):
        found = replace(found, attempt=1)  # this result is of the earlier call's attempt
    after = record_compensation(state, found, event.stored_result)
    if found.attempt == 0:
        return after
    if is_still_unknown(found, event.source):
        return record_call_in_doubt(after, found, at)
    spec = _find_spec(state, found)
    if spec is None or spec.once_per is None:
        return after
    receipts = add_receipt(after.receipts, found, spec, event.stored_result, run=len(after.prompt_ids), at=at)
    return replace(after, receipts=receipts, calls_in_doubt=settle_doubts(after.calls_in_doubt, found, spec))


def record_call_in_doubt(state: State, item: PendingCall, at: float) -> State:
    """State after a call was answered whose effect is unknown."""
    return replace(
        state, calls_in_doubt=add_doubt(state.calls_in_doubt, item, run=len(state.prompt_ids), at=at)
    )


def _share_call_doubt(state: State, item: PendingCall) -> PendingCall:
    """The call, with the doubt and key of an interrupted one if both are the same action."""
    spec = _find_spec(state, item)
    if spec is None:
        return item
    return share_doubt(state.calls_in_doubt, item, spec, run=len(state.prompt_ids), now=state.now)


def _find_spec(state: State, item: PendingCall) -> ToolSpec | None:
    for spec in state.settings.all_tools:
        if spec.name == item.call.name:
            return spec
    return None


def apply_tools_revealed(state: State, event: e.ToolsRevealed, at: float, proof: str) -> State:
    """Append tools to the visible ones; names that are already visible change nothing."""
    hidden = {spec.name: spec for spec in state.settings.hidden_tools}
    unknown_names = [name for name in event.names if name not in hidden]
    if unknown_names:
        raise MisuseError(f"{', '.join(unknown_names)} cannot be revealed: no hidden tool has that name")
    new = tuple(name for name in dict.fromkeys(event.names) if name not in state.revealed_tools)
    # Without an estimate there is nothing to add to; the first estimate counts all visible tools.
    added_tokens = estimate_tool_tokens(tuple(hidden[name] for name in new)) if state.prompt_tokens else 0
    return replace(
        state,
        revealed_tools=(*state.revealed_tools, *new),
        revealed_at=(*state.revealed_at, *[len(state.transcript.messages)] * len(new)),
        prompt_tokens=state.prompt_tokens + added_tokens,
        tools_searched=state.tools_searched or event.initial,
        tools_to_reveal=tuple(name for name in state.tools_to_reveal if name not in new),
    )


def apply_approval_asked(state: State, event: e.ApprovalAsked, at: float, proof: str) -> State:
    return _update_call(state, event.call_id, question=event, asked_at=at)


def apply_approval_answered(state: State, event: e.ApprovalAnswered, at: float, proof: str) -> State:
    place = find_call(state.pending_calls, event.call_id)
    item = state.pending_calls[place] if place is not None else None
    question = item.unanswered_question if item is not None else None
    if item is None or question is None or question.binding != event.binding:
        raise MisuseError(f"no pending approval for {event.call_id}; run `bridle approvals` to list them")
    if question.expires_at is not None and at >= question.expires_at:
        raise MisuseError(f"the approval of {event.call_id} has expired; resume the run to continue")
    if event.answer == "done" and question.question != "in_doubt":
        raise MisuseError(f"{event.call_id} was never started, so it cannot be done; approve or reject it")
    is_doubted = bool(item.attempt) or question.question == "in_doubt"
    if event.arguments is not None and is_doubted:
        raise MisuseError(
            f"{event.call_id} was started already, so its arguments cannot change; answer without them"
        )
    if event.arguments is not None:
        edited = replace(item.call, arguments=event.arguments)
        problem = find_call_problem(edited, callable_tools(state))
        if problem:
            raise MisuseError(f"{item.call.name} cannot be run with these arguments: {problem}")
    waited = _exclude_person_time(state, at)
    if is_doubted and item.answer is not None:
        # It was started with arguments from an earlier answer; its key stands for them.
        event = replace(event, arguments=item.answer.arguments, resource_claim=item.answer.resource_claim)
    return _update_call(replace(waited, tools_started=False), event.call_id, answer=event)


def apply_call_reviewed(state: State, event: e.CallReviewed, at: float, proof: str) -> State:
    place = find_call(state.pending_calls, event.call_id)
    if place is None:
        return state
    item = state.pending_calls[place]
    claim = event.resource_claim or item.resource_claim
    if not event.discards_approval or item.answer is None:
        return _update_call(state, event.call_id, resource_claim=claim)
    # A started call keeps its arguments: its key stands for them.
    kept_answer = replace(item.answer, binding="") if item.attempt else None
    discarded = item.approvals_discarded + 1
    return _update_call(
        state,
        event.call_id,
        resource_claim=claim,
        answer=kept_answer,
        question=None,
        approvals_discarded=discarded,
    )


def exclude_waiting_time(state: State, at: float) -> State:
    """State with the time since the last event, spent waiting, excluded from the run's time."""
    started_at = state.run.started_at + max(0.0, at - state.now)
    return replace(state, run=replace(state.run, started_at=started_at))


def _exclude_person_time(state: State, at: float) -> State:
    """Exclude the time a person took, unless a tool was running at the same time."""
    return (
        state
        if any(item.running and item.result is None for item in state.pending_calls)
        else exclude_waiting_time(state, at)
    )


def close_batch(state: State, at: float) -> State:
    """State after the last result of a batch; unchanged if results are missing."""
    calls = state.pending_calls
    # From the end, because the last calls are usually answered last.
    if not calls or any(item.result is None for item in reversed(calls)):
        return state
    remembered = CYCLE_LENGTH_MAX * (state.settings.repeats_max or 0)
    output = _accepted_output(state.settings, calls)
    progress = state.run.output_progress
    for item in calls:
        if progress.tool_retries or (item.result is not None and item.result.outcome == "retry"):
            progress = replace(progress, tool_retries=_count_retries(progress.tool_retries, calls))
            break
    if output is None and _output_calls(state.settings, calls):
        progress = count_rejected_answer(progress)
    run = replace(
        state.run,
        batch_signatures=(*state.run.batch_signatures, batch_signature(pair_results(calls)))[-remembered:]
        if remembered
        else (),
        output=output,
        output_progress=progress,
    )
    after = append_results(replace(state, run=run), calls, at)
    return replace(after, phase=Phase.EVALUATING_REPLY if output is not None else Phase.CALLING_MODEL)


def _count_retries(
    counted: tuple[tuple[str, int], ...], calls: tuple[PendingCall, ...]
) -> tuple[tuple[str, int], ...]:
    """Replies in a row in which every result of a tool asked the model to try again, by tool."""
    outcomes: dict[str, set[str]] = {}
    for item in calls:
        if item.result is not None:
            outcomes.setdefault(item.call.name, set()).add(item.result.outcome)
    before = dict(counted)
    kept = {name: count for name, count in before.items() if name not in outcomes}
    asked_again = {name: before.get(name, 0) + 1 for name, found in outcomes.items() if found == {"retry"}}
    return tuple((kept | asked_again).items())


def recheck_calls(state: State) -> tuple[PendingCall, ...]:
    """Pending calls under new settings: calls not yet started must be valid for the current tools."""
    known = callable_tools(state)
    return tuple(
        replace(item, problem=find_call_problem(item.call, known))
        if item.result is None and item.attempt == 0
        else item
        for item in state.pending_calls
    )


def abandon_calls(calls: tuple[PendingCall, ...]) -> tuple[PendingCall, ...]:
    """The calls, each with a result: calls still pending are abandoned."""
    return tuple(_abandon_call(item) for item in calls)


def append_results(state: State, calls: tuple[PendingCall, ...], at: float) -> State:
    """State with the results appended as a message to the model."""
    message, revealed = name_revealed_tools(state, _make_results_message(calls, at))
    return append_message(
        replace(
            state, pending_calls=(), tools_started=False, tools_to_reveal=(*state.tools_to_reveal, *revealed)
        ),
        message,
    )


def _make_results_message(calls: tuple[PendingCall, ...], at: float) -> Message:
    """Message with the results; for a call whose arguments a person changed, with a note about it."""
    results = tuple(_result_for_model(item) for item in calls if item.result is not None)
    return Message(role="tool", parts=results, at=at, provenance="tool")


def _update_call(state: State, call_id: str, **changes: object) -> State:
    calls, place = state.pending_calls, find_call(state.pending_calls, call_id)
    if place is None:
        return state
    changed = replace(calls[place], **changes)
    return replace(state, pending_calls=(*calls[:place], changed, *calls[place + 1 :]))


def _result_for_model(item: PendingCall) -> ToolResult:
    result = item.result
    assert result is not None
    edited = item.answer.arguments if item.answer is not None else None
    if edited is None or result.outcome in ("denied", "cancelled", "invalid"):
        return result
    return replace(result, parts=(Text(text=ARGUMENTS_EDITED.format(arguments=edited)), *result.parts))


def _abandon_call(item: PendingCall) -> PendingCall:
    if item.result is not None:
        return item
    started = item.running or item.in_doubt
    result = ToolResult(
        call_id=item.call.id,
        parts=(Text(text=CALL_INTERRUPTED if started else CALL_NOT_STARTED),),
        outcome="unknown" if started else "cancelled",
    )
    return replace(item, result=result)


def _output_calls(settings: Settings, calls: tuple[PendingCall, ...]) -> tuple[PendingCall, ...]:
    output = settings.output
    if output is None or output.mode != "tool":
        return ()
    return tuple(item for item in calls if item.call.name == output.name and item.result is not None)


def _accepted_output(settings: Settings, calls: tuple[PendingCall, ...]) -> str | None:
    good = [item for item in _output_calls(settings, calls) if item.result and not item.result.is_error]
    return good[0].call.arguments if good else None


RUNNING_IN_PARENT = (
    "This call was under way in the session that this one was forked from. Whether it took effect is not"
    " known here; find out before you repeat it."
)
LEFT_TO_PARENT = (
    "This call was not run here. It belongs to the session that this one was forked from, which may run it"
    " yet; find out before you repeat it."
)


def apply_forked(state: State, event: Forked, at: float, proof: str) -> State:
    # The provider's conversation object continues with the parent session.
    state = replace(state, server_conversation=None)
    run = replace(
        state.run, compensations=tuple(item for item in state.run.compensations if item.state == "done")
    )
    if not any(item.result is None for item in state.pending_calls):
        return replace(state, run=run)
    calls = tuple(_inherit_call(item, find_tool_spec(state, item)) for item in state.pending_calls)
    for before, item in zip(state.pending_calls, calls, strict=True):
        if before.result is None and item.result is not None and item.result.outcome == "unknown":
            state = record_call_in_doubt(state, item, at)
    if all(item.result is not None for item in calls):
        run = replace(run, stop=None, reason="")
        return close_batch(replace(state, phase=Phase.RUNNING_TOOLS, pending_calls=calls, run=run), at)
    return replace(state, pending_calls=calls, run=run)


def has_calls_to_keep(state: State) -> bool:
    """True if a fork here would leave pending calls with effects to the parent."""
    return any(_is_owned_by_parent(item, find_tool_spec(state, item)) for item in state.pending_calls)


def find_tool_spec(state: State, item: PendingCall) -> ToolSpec | None:
    return next((spec for spec in state.settings.all_tools if spec.name == item.call.name), None)


def _is_owned_by_parent(item: PendingCall, spec: ToolSpec | None) -> bool:
    """True if running the call in both sessions would perform its action twice."""
    if item.result is not None or item.problem or spec is None:
        return False
    return spec.effect != "read" and spec.on_unknown != "retry"


def _inherit_call(item: PendingCall, spec: ToolSpec | None) -> PendingCall:
    """A pending call as the fork inherits it: not running here."""
    if item.result is not None:
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
            state.run, stop="cancelled", reason=ENDED_BY_LOSS, answer="", reply=None, continued_text=""
        )
        after = replace(state, phase=Phase.IDLE, run=run)
        if state.pending_calls:
            doubtful = tuple(replace(item, in_doubt=True) for item in state.pending_calls)
            after = append_results(after, abandon_calls(doubtful), at)
    return append_message(
        after, Message(role="user", parts=(Text(text=RECORDS_LOST),), at=at, provenance="harness")
    )


def ignore_unknown_event(state: State, event: e.UnknownEvent, at: float, proof: str) -> State:
    return state
