"""State transitions for tool calls, from opening a batch to its results.

Each function returns the state after one event. A batch is closed when its last call has a result; only then
does the model receive the results, in the order of its calls.
"""

from collections.abc import Collection

from msgspec.structs import replace

from bridle.core.budget.limits import TOOL_CALL_LIMITS
from bridle.core.context.assemble import callable_tools
from bridle.core.context.token_estimate import (
    append_prompt,
    estimate_after_message,
    estimate_tool_tokens,
    extend_conversation,
)
from bridle.core.evaluate_reply import (
    CYCLE_LENGTH_MAX,
    NO_ANSWER,
    batch_signature,
    count_rejected_answer,
    describe_rejection,
    find_accepted_output,
    list_output_calls,
    record_output_check,
)
from bridle.core.state import CallBatch, Phase, State
from bridle.values import events as e
from bridle.values.budget import SubrunWaiting
from bridle.values.calls import RunConclusion
from bridle.values.errors import MisuseError
from bridle.values.message import Message, Text, ToolResult
from bridle.values.request import HANDOVER_PREFIX

from .catalogue import name_revealed_tools, note_handover
from .compensation import record_compensation
from .dispatch import find_call_problem
from .pending import (
    LOOKED_UP_SOURCES,
    PendingCall,
    add_doubt,
    add_receipt,
    find_call,
    is_still_unknown,
    pair_results,
    replace_call,
    settle_doubts,
    share_doubt,
)

CALL_INTERRUPTED = (
    "This call was interrupted while it was running. Whether it took effect is unknown; find out before"
    " you repeat it."
)
CALL_NOT_STARTED = "This call was not run: the run ended first."
ARGUMENTS_EDITED = "A person changed the arguments of this call to {arguments}\n"
ARGUMENTS_CHANGED = "The arguments of this call were changed to {arguments}\n"
RESULT_UNREVIEWED = "The call was run. Its result is withheld: the run ended before it was reviewed."


def apply_tool_started(state: State, event: e.ToolStarted, at: float, proof: str) -> State:
    pending, used, total = state.calls.batch.pending, state.run.budget, state.totals.spent
    if (place := find_call(pending, event.call_id)) is not None:
        item = replace(
            pending[place],
            attempt=event.attempt,
            key=event.key,
            running=True,
            in_doubt=False,
            epoch=event.epoch,
        )
        pending = replace_call(pending, place, item)
    calls = replace(state.calls, batch=CallBatch(pending=pending, tools_started=True))
    if event.attempt > 1 or event.name in state.settings.output_functions:
        return replace(state, calls=calls)  # a retry and an answer do not count as tool calls
    spent = replace(used.spent, tool_calls=used.spent.tool_calls + 1)
    total = spent if total == used.spent else replace(total, tool_calls=total.tool_calls + 1)
    return replace(
        state,
        calls=calls,
        run=replace(state.run, budget=replace(used, spent=spent)),
        totals=replace(state.totals, spent=total),
    )


def apply_subrun_waiting(state: State, event: SubrunWaiting, at: float, proof: str) -> State:
    return update_call(state, event.call_id, running=False, epoch=None, waiting_session=event.session)


def apply_tool_probed(state: State, event: e.ToolProbed, at: float, proof: str) -> State:
    """The probe found that the call never took effect: it may run, under its original key."""
    place = find_call(state.calls.batch.pending, event.call_id)
    if place is None:
        return state
    item = _share_call_doubt(state, state.calls.batch.pending[place])
    spec = state.settings.find_tool(item.call.name)
    doubts = settle_doubts(state.calls.in_doubt, item, spec) if spec is not None else state.calls.in_doubt
    return update_call(
        replace(state, calls=replace(state.calls, in_doubt=doubts)),
        event.call_id,
        in_doubt=False,
        key=item.key,
    )


def apply_tool_finished(state: State, event: e.ToolFinished, at: float, proof: str) -> State:
    before, known, stored = state, state.calls.stored_results, event.stored_result
    if stored is not None and stored not in known:
        before = replace(state, calls=replace(state.calls, stored_results=(*known, stored)))
    if event.rule in TOOL_CALL_LIMITS:
        before = replace(
            before,
            run=replace(
                before.run, budget=replace(before.run.budget, tool_call_limit=TOOL_CALL_LIMITS[event.rule])
            ),
        )
    if event.name[: len(HANDOVER_PREFIX)] == HANDOVER_PREFIX:
        before = note_handover(before, event)
    if (conclusion := _find_conclusion(state, event)) is not None:
        before = replace(before, run=replace(before.run, conclusion=conclusion))
    batch = state.calls.batch
    if (place := find_call(batch.pending, event.result.call_id)) is None:
        return close_batch(before, at)
    if batch.pending[place].unanswered_question is not None:
        before = _exclude_person_time(before, at)  # for an answer that never came
    item = replace(batch.pending[place], result=event.result, output=event.output, running=False)
    pending = replace_call(batch.pending, place, item)
    calls = replace(before.calls, batch=CallBatch(pending=pending, tools_started=batch.tools_started))
    return close_batch(_remember_finished_call(replace(before, calls=calls), item, event, at), at)


def _find_conclusion(state: State, event: e.ToolFinished) -> RunConclusion | None:
    """The end of the run that follows from a result; the first one counts."""
    if (
        state.run.conclusion is not None or state.run.prompt.held
    ):  # else the call belongs to an earlier prompt
        return None
    if event.conclusion is None and event.raised is not None and state.settings.tool_errors == "raise":
        raised = event.raised
        where = f" at {raised.place}" if raised.place else ""
        why = f"tool `{event.name}` raised {raised.type}{where}: {event.result.text}"
        return RunConclusion(stop="failed", reason=why)
    return event.conclusion


def _remember_finished_call(state: State, item: PendingCall, event: e.ToolFinished, at: float) -> State:
    """Record the compensation and the receipt of a finished call, which outlive its batch."""
    found = _share_call_doubt(state, item) if event.source in LOOKED_UP_SOURCES else item
    if found.repeated_call_id and not is_still_unknown(found, event.source):
        found = replace(found, attempt=1)  # this result is of the earlier call's attempt
    after = _record_undo(state, found, event)
    if found.attempt == 0:
        return after
    if is_still_unknown(found, event.source):
        return record_call_in_doubt(after, found, at)
    spec = state.settings.find_tool(found.call.name)
    if spec is None or spec.once_per is None:
        return after
    receipts = add_receipt(
        after.calls.receipts, found, spec, event.stored_result,
        run=len(after.conversation.prompt_ids), at=at, conclusion=event.conclusion,
    )  # fmt: skip
    return replace(
        after,
        calls=replace(
            after.calls, receipts=receipts, in_doubt=settle_doubts(after.calls.in_doubt, found, spec)
        ),
    )


def _record_undo(state: State, item: PendingCall, event: e.ToolFinished) -> State:
    """Record the compensation of a call, by the result before hooks changed it."""
    original = item.hooks.original
    if original is None:
        return record_compensation(state, item, event.stored_result)
    return record_compensation(state, replace(item, result=original.result), original.stored_result)


def remember_abandoned_call(state: State, item: PendingCall, at: float) -> State:
    """Record what is known about a call that the end of the run answered."""
    finished = item.hooks.unreviewed
    if finished is not None:
        hooks = replace(item.hooks, original=item.hooks.original or finished)
        withheld = replace(finished, result=item.result or finished.result, stored_result=None)
        return _remember_finished_call(state, replace(item, hooks=hooks), withheld, at)
    after = record_compensation(state, item, None)
    if item.result is not None and item.result.outcome == "unknown":
        return record_call_in_doubt(after, item, at)
    return after


def doubt_if_running(item: PendingCall) -> PendingCall:
    """The call after its driver is gone: in doubt if it was running, unless its result is only unreviewed."""
    if item.hooks.unreviewed is not None:
        return item
    return replace(item, in_doubt=item.has_started, running=False, waiting_session="")


def record_call_in_doubt(state: State, item: PendingCall, at: float) -> State:
    """State after a call was answered whose effect is unknown."""
    return replace(
        state,
        calls=replace(
            state.calls,
            in_doubt=add_doubt(state.calls.in_doubt, item, run=len(state.conversation.prompt_ids), at=at),
        ),
    )


def _share_call_doubt(state: State, item: PendingCall) -> PendingCall:
    """The call, with the doubt and key of an interrupted one if both are the same action."""
    spec = state.settings.find_tool(item.call.name)
    if spec is None:
        return item
    return share_doubt(
        state.calls.in_doubt, item, spec, run=len(state.conversation.prompt_ids), now=state.now
    )


def apply_tools_revealed(state: State, event: e.ToolsRevealed, at: float, proof: str) -> State:
    """Append tools to the visible ones; names that are already visible change nothing."""
    estimate = state.estimate
    hidden = {spec.name: spec for spec in state.settings.hidden_tools}
    unknown_names = [name for name in event.names if name not in hidden]
    if unknown_names:
        raise MisuseError(f"{', '.join(unknown_names)} cannot be revealed: no hidden tool has that name")
    new = tuple(name for name in dict.fromkeys(event.names) if name not in state.tools.revealed)
    # Without an estimate there is nothing to add to; the first estimate counts all visible tools.
    added_tokens = estimate_tool_tokens(tuple(hidden[name] for name in new)) if estimate.prompt_tokens else 0
    return replace(
        state,
        tools=replace(
            state.tools,
            revealed=(*state.tools.revealed, *new),
            revealed_at=(*state.tools.revealed_at, *[len(state.conversation.transcript.messages)] * len(new)),
            searched=state.tools.searched or event.initial,
            to_reveal=tuple(name for name in state.tools.to_reveal if name not in new),
        ),
        estimate=replace(estimate, prompt_tokens=estimate.prompt_tokens + added_tokens),
    )


def apply_approval_asked(state: State, event: e.ApprovalAsked, at: float, proof: str) -> State:
    return update_call(state, event.call_id, question=event, asked_at=at)


def apply_approval_answered(state: State, event: e.ApprovalAnswered, at: float, proof: str) -> State:
    place = find_call(state.calls.batch.pending, event.call_id)
    item = state.calls.batch.pending[place] if place is not None else None
    question = _find_answered_question(item, event) if item is not None else None
    # guard: answer-binding
    if item is None or question is None or question.binding != event.binding:
        raise MisuseError(f"no pending approval for {event.call_id}; run `bridle approvals` to list them")
    is_withdrawn = event.replaces > 0 and event.answer == "reject"
    if question.expires_at is not None and at >= question.expires_at and not is_withdrawn:
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
        if problem := find_call_problem(edited, callable_tools(state)):
            raise MisuseError(f"{item.call.name} cannot be run with these arguments: {problem}")
    waited = _exclude_person_time(state, at)
    if is_doubted and item.answer is not None:
        # It was started with arguments from an earlier answer; its key stands for them.
        event = replace(event, arguments=item.answer.arguments, resource_claim=item.answer.resource_claim)
    # guard: edited-arguments-reviewed
    return update_call(
        replace(waited, calls=replace(waited.calls, batch=CallBatch(pending=waited.calls.batch.pending))),
        event.call_id,
        answer=event,
        upgraded_edit=item.upgraded_edit if is_doubted else None,
        hooks=item.hooks if event.arguments is None or is_doubted else item.hooks.for_new_arguments(),
    )


def _find_answered_question(item: PendingCall, event: e.ApprovalAnswered) -> e.ApprovalAsked | None:
    """The question that an answer is about: an open one, or that of an approved call which has not started."""
    if event.replaces == 0 or item.answer is None:
        return item.unanswered_question
    return item.approved_question if event.replaces == item.answer.replaces + 1 else None


def apply_call_reviewed(state: State, event: e.CallReviewed, at: float, proof: str) -> State:
    place = find_call(state.calls.batch.pending, event.call_id)
    if place is None:
        return state
    item = state.calls.batch.pending[place]
    claim = event.resource_claim or item.resource_claim
    # guard: approval-discarded
    if not event.discards_approval or item.answer is None:
        return update_call(state, event.call_id, resource_claim=claim)
    # A started call keeps its arguments: its key stands for them.
    kept_answer = replace(item.answer, binding="") if item.attempt else None
    discarded = item.approvals_discarded + 1
    return update_call(
        state,
        event.call_id,
        resource_claim=claim,
        answer=kept_answer,
        question=None,
        approvals_discarded=discarded,
        discard_reason="",
        hooks=item.hooks.for_new_arguments() if kept_answer is None and item.answer.arguments else item.hooks,
    )


def apply_output_checked(state: State, event: e.OutputChecked, at: float, proof: str) -> State:
    evaluation = state.run.evaluation
    evaluation = replace(evaluation, output_progress=record_output_check(evaluation.output_progress, event))
    after = replace(state, run=replace(state.run, evaluation=evaluation))
    if event.verdict == "accepted" or state.phase is not Phase.RUNNING_TOOLS:
        return after
    return update_call(after, event.answer_id, problem=describe_rejection(event))


def exclude_waiting_time(state: State, at: float) -> State:
    """State in which the time since the last event, when the run waited, does not count as its running time."""
    started_at = state.run.budget.started_at + max(0.0, at - state.now)
    return replace(state, run=replace(state.run, budget=replace(state.run.budget, started_at=started_at)))


def _exclude_person_time(state: State, at: float) -> State:
    """Exclude the time a person took, unless a tool was running at the same time."""
    return (
        state
        if any(item.running and item.result is None for item in state.calls.batch.pending)
        else exclude_waiting_time(state, at)
    )


def close_batch(state: State, at: float) -> State:
    """State after the last result of a batch; unchanged if results are missing."""
    calls = state.calls.batch.pending
    if not calls or None in [item.result for item in calls]:
        return state
    remembered = CYCLE_LENGTH_MAX * (state.settings.repeats_max or 0)
    evaluation = state.run.evaluation
    has_output = (
        state.settings.output is not None and not state.run.prompt.held
    )  # else it answers an earlier prompt
    output, function = find_accepted_output(state, calls) if has_output else NO_ANSWER
    progress = evaluation.output_progress
    if function != progress.function:
        progress = replace(progress, function=function)
    for item in calls:
        if progress.tool_retries or (item.result is not None and item.result.outcome == "retry"):
            progress = replace(progress, tool_retries=_count_retries(progress.tool_retries, calls))
            break
    if output is None and has_output and list_output_calls(state.settings, calls):
        progress = count_rejected_answer(progress)
    signatures: tuple[str, ...] = ()
    if remembered:
        signatures = (*evaluation.batch_signatures, batch_signature(pair_results(calls)))[-remembered:]
    evaluation = replace(evaluation, batch_signatures=signatures, output=output, output_progress=progress)
    after = append_results(state, calls, at)
    return replace(
        after,
        phase=Phase.EVALUATING_REPLY if output is not None else Phase.CALLING_MODEL,
        run=replace(after.run, evaluation=evaluation),
    )


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


def abandon_calls(calls: tuple[PendingCall, ...], in_doubt: Collection[str] = ()) -> tuple[PendingCall, ...]:
    """The calls, each with a result: calls still pending are abandoned, except those that stay in doubt."""
    return tuple(
        doubt_if_running(item) if item.call.id in in_doubt else _abandon_call(item) for item in calls
    )


def append_results(state: State, calls: tuple[PendingCall, ...], at: float) -> State:
    """State with the results appended as a message to the model, and after them the prompts that waited for them."""
    message, revealed = name_revealed_tools(state, _make_results_message(calls, at))
    tools = state.tools
    after = replace(
        state,
        conversation=extend_conversation(state.conversation, state.settings.model, message),
        estimate=estimate_after_message(state, message),
        calls=replace(state.calls, batch=CallBatch()),
        tools=replace(tools, to_reveal=(*tools.to_reveal, *revealed)) if revealed else tools,
    )
    held = state.run.prompt.held
    for prompt in held:
        after = append_prompt(after, prompt)
    if not held:
        return after
    return replace(after, run=replace(after.run, prompt=replace(after.run.prompt, held=())))


def _make_results_message(calls: tuple[PendingCall, ...], at: float) -> Message:
    """Message with the results; for a call whose arguments a person changed, with a note about it."""
    results = tuple([_result_for_model(item) for item in calls if item.result is not None])
    return Message(role="tool", parts=results, at=at, provenance="tool")


def update_call(state: State, call_id: str, **changes: object) -> State:
    batch = state.calls.batch
    if (place := find_call(batch.pending, call_id)) is None:
        return state
    pending = replace_call(batch.pending, place, replace(batch.pending[place], **changes))
    return replace(state, calls=replace(state.calls, batch=replace(batch, pending=pending)))


def _result_for_model(item: PendingCall) -> ToolResult:
    result = item.result
    assert result is not None
    edited = item.edited_arguments
    notice = ARGUMENTS_EDITED
    if edited is None and item.hooks.edited_by:
        edited, notice = item.call.arguments, ARGUMENTS_CHANGED
    if edited is None or result.outcome in ("denied", "cancelled", "invalid"):
        return result
    return replace(result, parts=(Text(text=notice.format(arguments=edited)), *result.parts))


def _abandon_call(item: PendingCall) -> PendingCall:
    if item.result is not None:
        return item
    if item.hooks.unreviewed is not None:
        notice = (Text(text=RESULT_UNREVIEWED),)
        return replace(item, result=replace(item.hooks.unreviewed.result, parts=notice))
    started = item.has_started
    result = ToolResult(
        call_id=item.call.id,
        parts=(Text(text=CALL_INTERRUPTED if started else CALL_NOT_STARTED),),
        outcome="unknown" if started else "cancelled",
    )
    return replace(item, result=result)
