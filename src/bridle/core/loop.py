"""The agent loop, as two pure functions.

    apply_event(state, event)   what has happened  -> the new state
    next_effects(state)         what is known      -> what to do now

Rule 1: `TRANSITIONS` names the function of every state change. Those of model calls are in
        core/model_turn.py, those of tool calls in core/calls/transitions.py.
Rule 2: this file knows no provider, no tool, no store, no clock.
Rule 3: effects are derived from the state, so that live and resumed runs are handled in the same way: fold
        the events, compute the next effects. There is no recovery code.

`TRANSITIONS` at the end is the specification: an event without an entry for the current phase is rejected.
"""

from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import replace

from bridle.core.budget.limits import (
    WRAP_UP_WHY,
    apply_subrun_charged,
    apply_subrun_started,
    charge_partial_reply,
)
from bridle.core.cache.prefix import (
    apply_prefix_moved,
    apply_tools_changed,
    mark_all_stale,
    mark_stale_after,
    stale_reasoning,
)
from bridle.core.cache.server_state import CACHE_TRANSITIONS, CONVERSATION_TRANSITIONS, allow_new_conversation
from bridle.core.calls.catalogue import add_agent, apply_request_adjusted, end_if_adjusted, limit_handovers
from bridle.core.calls.compatibility import upgrade_calls
from bridle.core.calls.compensation import (
    apply_compensation_finished,
    apply_compensation_started,
    compensation_notices,
    mark_compensations_reported,
)
from bridle.core.calls.dispatch import choose_call_effects
from bridle.core.calls.orphaned import LOG_TRANSITIONS, SERVER_EVENTS, close_calls, recheck_calls
from bridle.core.calls.transitions import (
    apply_approval_answered,
    apply_approval_asked,
    apply_call_reviewed,
    apply_output_checked,
    apply_subrun_waiting,
    apply_tool_finished,
    apply_tool_probed,
    apply_tool_started,
    apply_tools_revealed,
    doubt_if_running,
    exclude_waiting_time,
)
from bridle.core.compaction.plan import apply_compacted
from bridle.core.compaction.strategies import cap_estimate
from bridle.core.compaction.summary import progress_after_resume
from bridle.core.context.assemble import apply_options_chosen
from bridle.core.context.token_estimate import append_history, append_message, append_prompt
from bridle.core.context.view import rebuild_view
from bridle.core.recovery.fallback import apply_model_switched
from bridle.values import events as e
from bridle.values.budget import SubrunCharged, SubrunStarted, SubrunWaiting
from bridle.values.errors import MisuseError
from bridle.values.message import Message, Stop, Text

from .effects import Effect, EndRun, RecordFinding
from .evaluate_reply import (
    conclude_answer,
    conclude_run,
    count_rejected_answer,
    evaluate_reply,
    final_text,
    keep_function_answer,
    restart_output_progress,
)
from .hooks import (
    HOOK_TRANSITIONS,
    REVIEW_TRANSITIONS,
    apply_before_model,
    drop_open_reply,
    end_review,
    has_open_reply,
    hooks_after_resume,
    insert_hooks,
    list_withheld_changes,
    mark_judged,
    reopen_reply,
)
from .memory import MEMORY_TRANSITIONS, begin_prompt, clear_prompt_errors, take_over_prompt
from .model_turn import apply_model_asked, apply_model_failed, apply_model_replied, choose_next_effect
from .state import (
    Attempt,
    BudgetUse,
    CallBatch,
    ModelRoute,
    Phase,
    RequestAdjustments,
    Run,
    RunEnd,
    RunOrigin,
    State,
    Steering,
)
from .steering import STEERING_TRANSITIONS, append_waiting, continue_instead

CONTINUE_NOTICE = "Continue where you stopped."
ACTIVE_PHASES = (Phase.CALLING_MODEL, Phase.EVALUATING_REPLY, Phase.RUNNING_TOOLS)
CALLING_MODEL, EVALUATING_REPLY, RUNNING_TOOLS = ACTIVE_PHASES  # `Phase.x` costs a call before Python 3.12


def apply_event(state: State, event: e.Event, at: float = 0.0, proof: str = "") -> State:
    """State after an event; `at` and `proof` are the time and the hash of its record."""
    handle = (HOOKED_TRANSITIONS if state.settings.hooks else TRANSITIONS).get((state.phase, type(event)))
    if handle is None:
        raise MisuseError(f"{type(event).__name__} cannot happen while the session is {state.phase}")
    return replace(handle(state, event, at, proof), now=at if at > state.now else state.now)


def next_effects(state: State, *, with_hooks: bool = True) -> tuple[Effect, ...]:
    evaluation = state.run.evaluation
    if with_hooks and (state.settings.hooks or evaluation.hooks.is_used):
        return insert_hooks(state, next_effects(state, with_hooks=False))
    if state.cache.history.alarm is not None and state.phase in ACTIVE_PHASES:
        return (RecordFinding(event=state.cache.history.alarm),)
    adjustments = state.run.adjustments
    if adjustments.reported_changes and state.phase in ACTIVE_PHASES:
        return (RecordFinding(event=e.RequestAdjusted(adjustments=adjustments.reported_changes)),)
    if adjustments.refused_adjustments and state.phase in (EVALUATING_REPLY, RUNNING_TOOLS):
        return tuple(filter(None, (end_if_adjusted(state),)))
    if state.run.conclusion is not None and state.phase in ACTIVE_PHASES:
        return conclude_run(state, state.run.conclusion)
    if state.phase is CALLING_MODEL and state.run.origin.settles:
        return ()  # until the settings of the first agent are recorded
    if state.phase is CALLING_MODEL:
        return limit_handovers(state) if state.run.origin.handover else (choose_next_effect(state),)
    if evaluation.suspected_truncation and state.phase in (EVALUATING_REPLY, RUNNING_TOOLS):
        return (EndRun(stop="failed", reason=evaluation.suspected_truncation),)
    if state.phase is EVALUATING_REPLY:
        effect = evaluate_reply(state) or choose_next_effect(state)
        return (continue_instead(state, effect) if state.run.prompt.steering.waiting else effect,)
    if state.phase is RUNNING_TOOLS:
        return choose_call_effects(state)
    return ()


def is_replaced(state: State, effect: Effect) -> bool:
    """True if a message that arrived after this effect was chosen is taken up in its place."""
    return bool(state.run.prompt.steering.waiting) and effect not in next_effects(state)


def _apply_configured(state: State, event: e.Configured, at: float, proof: str) -> State:
    phase = Phase.IDLE if state.phase is Phase.NEW else state.phase
    # Only a driver that takes over brings other settings; before that, no driver was active.
    after = exclude_waiting_time(state, at)
    after = replace(
        after,
        phase=phase,
        settings=event.settings,
        identity=replace(after.identity, id=state.identity.id or event.session),
        calls=replace(after.calls, batch=CallBatch(pending=after.calls.batch.pending)),
    )
    if event.upgraded_calls:
        after = upgrade_calls(after, event.upgraded_calls)
    if event.settings.all_tools != state.settings.all_tools:
        after = replace(after, calls=replace(after.calls, batch=CallBatch(pending=recheck_calls(after))))
    if event.settings.chain is True and state.settings.chain is not True:
        after = replace(
            after, cache=replace(after.cache, chained_from=len(state.conversation.transcript.messages))
        )
    if event.settings.prompt_head != state.settings.prompt_head:
        after = mark_all_stale(after)
    if event.settings.output != state.settings.output and state.run.end.stop not in (None, "done"):
        after = drop_open_reply(after)  # it answers a request for another type
    if (
        event.handed_over_to
        or event.settings.model.endpoint.endpoint_id != state.settings.model.endpoint.endpoint_id
    ):
        # guard: hand-over-judged-again
        after = replace(after, conversation=replace(after.conversation, judged=()))
    if event.is_return:
        origin = replace(after.run.origin, agents=(), settles=False, first_settings=None)
        after = replace(after, run=replace(after.run, origin=origin))
    if event.handed_over_to:
        after = replace(after, run=replace(after.run, origin=add_agent(state, event.handed_over_to)))
        return take_over_prompt(rebuild_view(after), at)
    return rebuild_view(after)


def _apply_imported(state: State, event: e.Imported, at: float, proof: str) -> State:
    after = replace(state, conversation=replace(state.conversation, imported_instructions=event.instructions))
    return append_history(after, [replace(message, provenance="import") for message in event.messages])


def _apply_view_changed(state: State, event: e.ViewChanged, at: float, proof: str) -> State:
    conversation = state.conversation
    run = state.run if conversation.unsupported_parts else _settle_refusal(state)
    return cap_estimate(
        rebuild_view(
            mark_stale_after(
                replace(
                    state,
                    run=run,
                    conversation=replace(conversation, view_changes=(*conversation.view_changes, event)),
                ),
                event,
            )
        )
    )


def _settle_refusal(state: State) -> Run:
    """The run after the view was changed because of something the endpoint refused."""
    run, refusals = state.run, state.run.refusals
    if refusals.rejected_parts:
        settled = replace(refusals, rejected_parts=(), part_removals=refusals.part_removals + 1)
    elif refusals.reply_echo:
        settled = replace(refusals, reply_echo="", part_removals=refusals.part_removals + 1)
    elif refusals.reasoning_status == "refused" or stale_reasoning(state):
        return replace(run, refusals=replace(refusals, reasoning_status="left out"))
    else:
        return run
    return replace(run, refusals=settled, attempt=replace(run.attempt, failure=None))


def _apply_prompted(state: State, event: e.Prompted, at: float, proof: str) -> State:
    message = Message(role="user", parts=event.parts, at=at, provenance="person")
    if state.run.evaluation.hooks.withheld:
        state = _withhold_refused(state, at, proof)
    prompt, notice = begin_prompt(state, event.parts), compensation_notices(state)
    waiting = state.run.prompt.steering.waiting
    if waiting and not state.calls.batch.pending:  # the run before could not take them up
        state = append_waiting(state, len(waiting), at)
    held: tuple[Message, ...] = ()
    if state.calls.batch.pending:  # they are settled first
        held = (*state.run.prompt.held, message)
        prompt = replace(prompt, held=held, steering=Steering(waiting=state.run.prompt.steering.waiting))
    run = Run(
        budget=BudgetUse(limits=event.budget, parts=event.budget_parts, started_at=at),
        origin=RunOrigin(
            caller=event.caller,
            tenant=event.tenant,
            parent_session=event.parent_session,
            traceparent=event.traceparent,
            agents=event.settled_by,
            settles=bool(event.settled_by),
            first_settings=state.run.origin.first_settings if event.settled_by else None,
            client_waits=event.client_waits,
        ),
        prompt=prompt,
    )
    earlier = state.totals.earlier_seconds + state.run.budget.seconds
    conversation = allow_new_conversation(state)
    owner = event.tenant if state.identity.owner is None else state.identity.owner
    prepared = replace(
        state,
        phase=Phase.CALLING_MODEL,
        run=run,
        identity=replace(state.identity, owner=owner),
        totals=replace(state.totals, earlier_seconds=earlier),
        cache=replace(state.cache, server_conversation=conversation),
    )
    if held:
        return replace(prepared, phase=Phase.RUNNING_TOOLS)
    prepared = _append_notice(prepared, notice, at) if notice else prepared
    return append_prompt(prepared, message) if event.parts else prepared


def _append_notice(state: State, parts: tuple[Text, ...], at: float) -> State:
    """Append a notice of the harness, which is sent in the user role."""
    return append_message(state, Message(role="user", parts=parts, at=at, provenance="harness"))


def _apply_resumed(state: State, event: e.Resumed, at: float, proof: str) -> State:
    """Continue a run: time without a driver does not count, and calls in progress are in doubt."""
    run, used = state.run, state.run.budget
    run = replace(
        run,
        budget=replace(
            used,
            limits=event.budget or used.limits,
            parts=event.budget_parts or used.parts,
            wrap_up_reason="" if event.budget else used.wrap_up_reason,
            tool_call_limit="own" if used.tool_call_limit == "own" else "",
            started_at=at - max(0.0, state.now - used.started_at),
        ),
        attempt=Attempt(),
        route=ModelRoute(endpoint_reached=run.route.endpoint_reached),
        evaluation=replace(
            run.evaluation,
            batch_signatures=(),
            reprompts=0,
            output_progress=restart_output_progress(run.evaluation.output_progress),
            pauses=0,
            hooks=hooks_after_resume(state),
        ),
        adjustments=RequestAdjustments(
            recorded_notes=run.adjustments.recorded_notes, step_options=run.adjustments.step_options
        ),
        compaction=progress_after_resume(state),
        conclusion=None if state.phase is Phase.IDLE else run.conclusion,
        prompt=replace(
            clear_prompt_errors(run.prompt), steering=Steering(waiting=run.prompt.steering.waiting)
        ),
        end=RunEnd(answer=run.end.answer),
    )
    calls = tuple(map(doubt_if_running, state.calls.batch.pending))
    resumed = replace(
        state,
        run=run,
        calls=replace(state.calls, batch=CallBatch(pending=calls)),
        cache=replace(state.cache, server_conversation=allow_new_conversation(state)),
    )
    if state.phase is Phase.AWAITING_APPROVAL or (state.phase is Phase.IDLE and calls):
        return replace(resumed, phase=Phase.RUNNING_TOOLS)
    if state.phase is not Phase.IDLE:
        return resumed
    if event.continues_reply and has_open_reply(state):
        return reopen_reply(resumed)
    prepared = mark_compensations_reported(drop_open_reply(replace(resumed, phase=Phase.CALLING_MODEL)))
    last, waiting = state.conversation.transcript.messages[-1], state.run.prompt.steering.waiting
    to_continue = last.role == "assistant" and not waiting
    notices = (*compensation_notices(state), *((Text(text=CONTINUE_NOTICE),) if to_continue else ()))
    if not notices and run.evaluation.output is not None and run.evaluation.output_progress.function:
        return replace(resumed, phase=Phase.EVALUATING_REPLY)  # its output function is not called again
    return _append_notice(prepared, notices, at) if notices else prepared


def _apply_reprompted(state: State, event: e.Reprompted, at: float, proof: str) -> State:
    run, evaluation = state.run, state.run.evaluation
    cut = evaluation.reply is not None and evaluation.reply.stop is Stop.LENGTH
    run = replace(
        run,
        evaluation=replace(
            evaluation,
            reprompts=evaluation.reprompts + (event.why not in ("output", "repeating", WRAP_UP_WHY)),
            output_progress=count_rejected_answer(evaluation.output_progress)
            if event.why == "output"
            else evaluation.output_progress,
            continued_text=final_text(state) if cut else "",
            reply=None,
        ),
        budget=replace(run.budget, wrap_up_reason=event.message.partition(". ")[0])
        if event.why == WRAP_UP_WHY
        else run.budget,
    )
    return _append_notice(replace(state, phase=Phase.CALLING_MODEL, run=run), (Text(text=event.message),), at)


def _apply_run_ended(state: State, event: e.RunEnded, at: float, proof: str) -> State:
    """End the run with a transcript that any later request can continue."""
    if state.phase is Phase.REVIEWING_REPLY or state.run.evaluation.hooks.decided:
        state = end_review(state, at, proof)
    after = charge_partial_reply(state, event.usage, event.usd)
    after = replace(
        after,
        run=replace(after.run, budget=replace(after.run.budget, seconds=at - after.run.budget.started_at)),
    )
    if event.stop == "waiting":
        run = replace(after.run, end=replace(after.run.end, stop=event.stop, reason=event.reason))
        return replace(after, phase=Phase.AWAITING_APPROVAL, run=run)
    if state.calls.batch.pending:
        after = close_calls(after, event, at)
    partial = event.partial_text.strip()
    if partial:
        parts = (Text(text=partial),)
        message = Message(role="assistant", parts=parts, at=at, stop=Stop.OTHER, provenance="model")
        after = append_message(after, message)
    answer, output = conclude_answer(state, event.stop, partial)
    ended = after if event.stop == "cancelled" else drop_open_reply(after)
    evaluation = replace(ended.run.evaluation, output=output)
    if state.calls.batch.pending:
        evaluation = keep_function_answer(state, evaluation)
    run = replace(
        after.run, end=RunEnd(stop=event.stop, reason=event.reason, answer=answer), evaluation=evaluation
    )
    return replace(after, phase=Phase.IDLE, run=run)


def _apply_request_hook(state: State, event: e.HookDecided, at: float, proof: str) -> State:
    after = apply_before_model(state, event, at)
    if event.head_edits:
        edits = (*after.conversation.head_edits, *event.head_edits)
        after = mark_all_stale(replace(after, conversation=replace(after.conversation, head_edits=edits)))
    if event.edits:
        changed = e.ViewChanged(changes=event.edits, why=f"hook {event.hook}")
        after = _apply_view_changed(after, changed, at, proof)
    return mark_judged(state, after, event)


def _withhold_refused(state: State, at: float, proof: str) -> State:
    """State in which no later prompt contains what a hook refused in the last run, and no hook judges it again."""
    conversation = state.conversation
    ids = (*conversation.withheld_ids, *state.run.evaluation.hooks.withheld)
    changed = e.ViewChanged(changes=list_withheld_changes(state), why=state.run.evaluation.hooks.refusal)
    after = replace(state, conversation=replace(conversation, withheld_ids=ids))
    # guard: refused-prompt-removed
    return _apply_view_changed(after, changed, at, proof)


EventHandler = Callable[[State, Any, float, str], State]


def _in_phases(
    phases: Iterable[Phase], handlers: dict[type, EventHandler]
) -> dict[tuple[Phase, type], EventHandler]:
    return {(phase, event): handle for phase in phases for event, handle in handlers.items()}


TRANSITIONS: dict[tuple[Phase, type], EventHandler] = {
    (Phase.NEW, e.Configured): _apply_configured,
    (Phase.REVIEWING_REPLY, e.RunEnded): _apply_run_ended,
    (Phase.IDLE, e.Imported): _apply_imported,
    (Phase.IDLE, e.ApprovalAnswered): apply_approval_answered,
    (Phase.IDLE, e.Prompted): _apply_prompted,
    (Phase.IDLE, e.CompensationStarted): apply_compensation_started,
    (Phase.IDLE, e.CompensationFinished): apply_compensation_finished,
    **_in_phases(
        (Phase.CALLING_MODEL, Phase.EVALUATING_REPLY),
        {
            e.ModelAsked: apply_model_asked,
            e.ModelFailed: apply_model_failed,
            e.ModelSwitched: apply_model_switched,
            e.ViewChanged: _apply_view_changed,
            e.Compacted: apply_compacted,
            e.ToolsRevealed: apply_tools_revealed,
            e.OptionsChosen: apply_options_chosen,
            e.PrefixMoved: apply_prefix_moved,
            e.RequestAdjusted: apply_request_adjusted,
            e.Reprompted: _apply_reprompted,
            e.RunEnded: _apply_run_ended,
        },
    ),
    (Phase.CALLING_MODEL, e.ModelReplied): apply_model_replied,
    (Phase.RUNNING_TOOLS, e.RequestAdjusted): apply_request_adjusted,
    (Phase.RUNNING_TOOLS, e.ToolsRevealed): apply_tools_revealed,
    (Phase.RUNNING_TOOLS, e.ToolStarted): apply_tool_started,
    (Phase.RUNNING_TOOLS, e.ToolProbed): apply_tool_probed,
    **SERVER_EVENTS,
    (Phase.RUNNING_TOOLS, e.ToolFinished): apply_tool_finished,
    (Phase.RUNNING_TOOLS, SubrunWaiting): apply_subrun_waiting,
    (Phase.RUNNING_TOOLS, e.ApprovalAsked): apply_approval_asked,
    (Phase.RUNNING_TOOLS, e.ApprovalAnswered): apply_approval_answered,
    (Phase.RUNNING_TOOLS, e.CallReviewed): apply_call_reviewed,
    **_in_phases((Phase.EVALUATING_REPLY, Phase.RUNNING_TOOLS), {e.OutputChecked: apply_output_checked}),
    (Phase.RUNNING_TOOLS, e.RunEnded): _apply_run_ended,
    (Phase.AWAITING_APPROVAL, e.ApprovalAnswered): apply_approval_answered,
    (Phase.AWAITING_APPROVAL, e.RunEnded): _apply_run_ended,
    **_in_phases(
        [phase for phase in Phase if phase is not Phase.NEW],
        {
            e.Configured: _apply_configured,
            e.ToolsChanged: apply_tools_changed,
            e.Resumed: _apply_resumed,
            SubrunStarted: apply_subrun_started,
            SubrunCharged: apply_subrun_charged,
        },
    ),
    **LOG_TRANSITIONS,
    (Phase.CALLING_MODEL, e.HookDecided): _apply_request_hook,
    (Phase.EVALUATING_REPLY, e.HookDecided): _apply_request_hook,
    **HOOK_TRANSITIONS,
    **MEMORY_TRANSITIONS,
    **STEERING_TRANSITIONS,
    **CACHE_TRANSITIONS,
    **CONVERSATION_TRANSITIONS,
}
HOOKED_TRANSITIONS: dict[tuple[Phase, type], EventHandler] = {**TRANSITIONS, **REVIEW_TRANSITIONS}
"""Transitions of a session with hooks, which may hold back replies and results."""
