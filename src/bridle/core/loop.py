"""The agent loop, as two pure functions.

    apply_event(state, event)   what has happened  -> the new state
    next_effects(state)         what is known      -> what to do now

Rule 1: every state change of a session is in this file, and in core/calls/transitions.py for its tools.
Rule 2: this file knows no provider, no tool, no store, no clock.
Rule 3: effects are derived from the state, so that live and resumed runs are handled in the same way: fold
        the events, compute the next effects. There is no recovery code.

`TRANSITIONS` at the end is the specification: an event without an entry for the current phase is rejected.
"""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from bridle.core.budget.limits import (
    WRAP_UP_WHY,
    add_spending,
    apply_subrun_charged,
    apply_subrun_started,
    billable_usage,
    charge_partial_reply,
)
from bridle.core.cache.diagnosis import record_call_answered, record_call_sent
from bridle.core.cache.prefix import (
    apply_prefix_moved,
    mark_all_stale,
    mark_stale_after,
    snapshot_request,
    stale_reasoning,
)
from bridle.core.cache.server_state import (
    CACHE_TRANSITIONS,
    CONVERSATION_TRANSITIONS,
    allow_new_conversation,
    classify_failure,
    mark_conversation_answered,
    mark_conversation_failed,
    mark_conversation_sent,
)
from bridle.core.calls.catalogue import apply_request_adjusted
from bridle.core.calls.compensation import (
    apply_compensation_finished,
    apply_compensation_started,
    compensation_notices,
    mark_compensations_reported,
    record_compensation,
)
from bridle.core.calls.dispatch import choose_call_effects, open_calls
from bridle.core.calls.transitions import (
    abandon_calls,
    append_results,
    apply_approval_answered,
    apply_approval_asked,
    apply_call_reviewed,
    apply_forked,
    apply_log_repaired,
    apply_tool_finished,
    apply_tool_probed,
    apply_tool_started,
    apply_tools_revealed,
    exclude_waiting_time,
    ignore_unknown_event,
    recheck_calls,
    record_call_in_doubt,
)
from bridle.core.compaction.plan import apply_compacted
from bridle.core.compaction.strategies import cap_estimate
from bridle.core.compaction.summary import (
    apply_summary_asked,
    apply_summary_replied,
    progress_after_reply,
    progress_after_resume,
    record_overflow,
    state_for_summarizer,
)
from bridle.core.context.token_estimate import (
    append_counted_message,
    append_message,
    append_prompt,
    estimate_after_reply,
    is_substantial,
    record_window,
)
from bridle.core.context.view import find_removable_parts, is_echo_refused, rebuild_view
from bridle.core.recovery.failure_policy import (
    FAILURE_POLICY,
    has_endpoint_answered,
    record_refused_parameter,
)
from bridle.core.recovery.fallback import apply_model_switched
from bridle.values import events as e
from bridle.values.budget import SubrunCharged, SubrunStarted
from bridle.values.errors import MisuseError
from bridle.values.message import Message, Stop, Text
from bridle.values.settings import Settings

from .effects import Effect, EndRun
from .evaluate_reply import count_rejected_answer, evaluate_reply, extract_output_json, final_text
from .memory import MEMORY_TRANSITIONS, begin_prompt, clear_retrieval_error
from .next_request import choose_next_effect
from .state import OutputProgress, Phase, Run, State

CONTINUE_NOTICE = "Continue where you stopped."


def apply_event(state: State, event: e.Event, at: float = 0.0, proof: str = "") -> State:
    """State after an event; `at` and `proof` are the time and the hash of its record."""
    handle = TRANSITIONS.get((state.phase, type(event)))
    if handle is None:
        raise MisuseError(f"{type(event).__name__} cannot happen while the session is {state.phase}")
    after = handle(state, event, at, proof)
    return replace(after, now=max(at, state.now))


def next_effects(state: State) -> tuple[Effect, ...]:
    if state.phase is Phase.CALLING_MODEL:
        return (choose_next_effect(state),)
    if state.run.suspected_truncation and state.phase in (Phase.EVALUATING_REPLY, Phase.RUNNING_TOOLS):
        return (EndRun(stop="failed", reason=state.run.suspected_truncation),)
    if state.phase is Phase.EVALUATING_REPLY:
        return (evaluate_reply(state) or choose_next_effect(state),)
    if state.phase is Phase.RUNNING_TOOLS:
        return choose_call_effects(state)
    return ()


def _apply_configured(state: State, event: e.Configured, at: float, proof: str) -> State:
    phase = Phase.IDLE if state.phase is Phase.NEW else state.phase
    session = state.session or event.session
    # Only a driver that takes over brings other settings; before that, no driver was active.
    after = replace(
        exclude_waiting_time(state, at),
        phase=phase,
        settings=event.settings,
        session=session,
        tools_started=False,
    )
    if event.settings.all_tools != state.settings.all_tools:
        after = replace(after, pending_calls=recheck_calls(after))
    if event.settings.chain is True and state.settings.chain is not True:
        after = replace(after, chained_from=len(state.transcript.messages))
    if _prompt_head(event.settings) != _prompt_head(state.settings):
        after = mark_all_stale(after)
    return rebuild_view(after)


def _prompt_head(settings: Settings) -> tuple[object, ...]:
    """Settings that form the prompt before the conversation."""
    return settings.instructions, settings.tools, settings.output, settings.memory is None


def _apply_imported(state: State, event: e.Imported, at: float, proof: str) -> State:
    after = replace(state, imported_instructions=event.instructions)
    for message in (replace(message, provenance="import") for message in event.messages):
        after = append_prompt(after, message) if message.role == "user" else append_message(after, message)
    return after


def _apply_view_changed(state: State, event: e.ViewChanged, at: float, proof: str) -> State:
    run = state.run
    if run.rejected_parts and not state.unsupported_parts:
        run = replace(run, rejected_parts=(), part_removals=run.part_removals + 1, failure=None)
    elif run.reply_echo and not state.unsupported_parts:
        run = replace(run, reply_echo="", part_removals=run.part_removals + 1, failure=None)
    elif (run.reasoning_status == "refused" or stale_reasoning(state)) and not state.unsupported_parts:
        run = replace(run, reasoning_status="left out")
    return cap_estimate(
        rebuild_view(
            mark_stale_after(replace(state, run=run, view_changes=(*state.view_changes, event)), event)
        )
    )


def _apply_prompted(state: State, event: e.Prompted, at: float, proof: str) -> State:
    message = Message(role="user", parts=event.parts, at=at, provenance="person")
    prompt, notice = begin_prompt(state, event.parts), compensation_notices(state)
    run = Run(budget=event.budget, started_at=at, caller=event.caller, tenant=event.tenant, prompt=prompt)
    earlier = state.earlier_seconds + state.run.seconds
    conversation = allow_new_conversation(state)
    owner = event.tenant if state.owner is None else state.owner
    prepared = replace(
        state,
        phase=Phase.CALLING_MODEL,
        run=run,
        owner=owner,
        earlier_seconds=earlier,
        server_conversation=conversation,
    )
    return append_prompt(_append_notice(prepared, notice, at) if notice else prepared, message)


def _append_notice(state: State, parts: tuple[Text, ...], at: float) -> State:
    """Append a notice of the harness, which is sent in the user role."""
    return append_message(state, Message(role="user", parts=parts, at=at, provenance="harness"))


def _apply_resumed(state: State, event: e.Resumed, at: float, proof: str) -> State:
    """Continue a run: time without a driver does not count, and calls in progress are in doubt."""
    run = replace(
        state.run,
        budget=event.budget or state.run.budget,
        wrap_up_reason="" if event.budget else state.run.wrap_up_reason,
        tool_call_limit="own" if state.run.tool_call_limit == "own" else "",
        started_at=at - max(0.0, state.now - state.run.started_at),
        attempt=0,
        model_attempts=0,
        breaker_waits=0,
        abandoned_models=(),
        failure=None,
        repair_failures=(),
        partial_text="",
        batch_signatures=(),
        reprompts=0,
        output_progress=OutputProgress(),
        pauses=0,
        suspected_truncation="",
        prefix_change=None,
        refused_adjustments=(),
        compaction=progress_after_resume(state),
        prompt=clear_retrieval_error(state.run.prompt),
        stop=None,
        reason="",
    )
    calls = tuple(
        replace(item, in_doubt=item.result is None and (item.running or item.in_doubt), running=False)
        for item in state.pending_calls
    )
    resumed = replace(
        state,
        run=run,
        pending_calls=calls,
        tools_started=False,
        server_conversation=allow_new_conversation(state),
    )
    if state.phase is Phase.AWAITING_APPROVAL:
        return replace(resumed, phase=Phase.RUNNING_TOOLS)
    if state.phase is not Phase.IDLE:
        return resumed
    prepared = mark_compensations_reported(replace(resumed, phase=Phase.CALLING_MODEL))
    to_continue = state.transcript.messages[-1].role == "assistant"
    notices = (*compensation_notices(state), *((Text(text=CONTINUE_NOTICE),) if to_continue else ()))
    return _append_notice(prepared, notices, at) if notices else prepared


def _apply_model_asked(state: State, event: e.ModelAsked, at: float, proof: str) -> State:
    if event.summarizes_until:
        return apply_summary_asked(state, event, at)
    # A paused reply is continued from EVALUATING_REPLY.
    continued = final_text(state) if state.run.reply is not None else state.run.continued_text
    run = replace(
        state.run,
        attempt=event.attempt,
        model_attempts=state.run.model_attempts + 1,
        failure=None,
        partial_text="",
        reply=None,
        continued_text=continued,
        tools_forbidden=event.tool_choice.mode == "none",
        recorded_notes=(
            *state.run.recorded_notes,
            *(note for note in event.notes if note not in state.run.recorded_notes),
        ),
        prefix_change=None,
        compaction=replace(state.run.compaction, summary_until="", summarizer_key=""),
        budget_warning=event.reservation.budget_warning if event.reservation else "",
    )
    cache = record_call_sent(state, event, at)
    return replace(
        state,
        phase=Phase.CALLING_MODEL,
        run=run,
        request_hash=proof,
        last_request=snapshot_request(state, event.tool_choice),
        cache=cache,
        server_conversation=mark_conversation_sent(state, event),
    )


def _apply_model_replied(state: State, event: e.ModelReplied, at: float, proof: str) -> State:
    if event.summarizes_until:
        return apply_summary_replied(state, event)
    reply = event.reply
    refused = reply.stop in (Stop.REFUSED, Stop.FILTERED)
    calls = () if refused else reply.calls
    acting, usage = bool(calls), billable_usage(state, reply)
    run = replace(
        state.run,
        spent=add_spending(state.run.spent, usage, event.usd, steps=1),
        attempt=0,
        model_attempts=0,
        breaker_waits=0,
        failure=None,
        repair_failures=(),
        partial_text="",
        needs_full_output=reply.stop is Stop.LENGTH,
        server_state_lost=False,
        compaction=progress_after_reply(state, reply.stop),
        pauses=state.run.pauses + 1 if reply.stop is Stop.PAUSED else 0,
        reply=None if acting else reply,
        output_error=event.output_error,
        tool_call_limit="",
        suspected_truncation=event.truncation_hint if state.settings.on_truncation == "error" else "",
    )
    after = replace(
        state,
        phase=Phase.RUNNING_TOOLS if acting else Phase.EVALUATING_REPLY,
        tools_started=False,
        pending_calls=open_calls(
            reply, state, event.output_error, event.resource_claims, forbidden=run.tools_forbidden
        )
        if acting
        else (),
        run=replace(run, reprompts=0, continued_text="") if acting else run,
        total_spent=add_spending(state.total_spent, usage, event.usd, steps=1),
        reply_count=state.reply_count + 1,
        cache=record_call_answered(state, reply),
        server_conversation=mark_conversation_answered(state, reply),
        **estimate_after_reply(state, reply, doubted=bool(event.usage_doubt)),
    )
    # A refused reply may be shown, but its calls and reasoning are not sent on.
    parts = tuple(part for part in reply.parts if isinstance(part, Text)) if refused else reply.parts
    if not any(is_substantial(part) for part in parts):
        return after
    message = Message(
        role="assistant",
        parts=parts,
        at=at,
        origin=reply.origin,
        usage=reply.usage,
        stop=reply.stop,
        reply_id=reply.id,
        provenance="model",
    )
    return append_counted_message(after, message)


def _apply_model_failed(state: State, event: e.ModelFailed, at: float, proof: str) -> State:
    run = state.run
    refused_parameters, failure = record_refused_parameter(run.refused_parameters, event.failure)
    failure = classify_failure(state, failure)
    kind = failure.kind
    rejected = () if kind == "forgotten" else find_removable_parts(state, event.rejected_parts)
    run = replace(
        run,
        failure=failure,
        refused_parameters=refused_parameters,
        reply_echo="refused" if not rejected and is_echo_refused(state, failure) else "",
        endpoint_reached=run.endpoint_reached or has_endpoint_answered(event),
        rejected_parts=rejected,
        compaction=run.compaction if rejected else record_overflow(state, failure),
        random_draw=event.random_draw,
        # Nothing was sent while the breaker was open, so the earlier partial text remains.
        partial_text=run.partial_text if kind == "unavailable" else event.partial_text,
        breaker_waits=run.breaker_waits + (kind == "unavailable"),
        repair_failures=(*run.repair_failures, kind)
        if FAILURE_POLICY[kind].action == "repair"
        else run.repair_failures,
        server_state_lost=kind == "forgotten" or run.server_state_lost,
        reasoning_status="refused" if kind == "reasoning_refused" else run.reasoning_status,
    )
    charged = charge_partial_reply(
        state_for_summarizer(state, run.compaction.summarizer_key), event.usage, event.usd
    )
    run = replace(run, spent=charged.run.spent)
    windows = record_window(state_for_summarizer(state, state.run.compaction.summarizer_key), failure)
    conversation = mark_conversation_failed(state, event, kind)
    return replace(
        state,
        run=run,
        total_spent=charged.total_spent,
        server_conversation=conversation,
        reported_windows=windows,
    )


def _apply_reprompted(state: State, event: e.Reprompted, at: float, proof: str) -> State:
    run = state.run
    run = replace(
        run,
        reprompts=run.reprompts + (event.why not in ("output", "repeating", WRAP_UP_WHY)),
        wrap_up_reason=event.message.partition(". ")[0] if event.why == WRAP_UP_WHY else run.wrap_up_reason,
        output_progress=count_rejected_answer(run.output_progress)
        if event.why == "output"
        else run.output_progress,
        continued_text=final_text(state) if run.reply is not None and run.reply.stop is Stop.LENGTH else "",
        reply=None,
    )
    return _append_notice(replace(state, phase=Phase.CALLING_MODEL, run=run), (Text(text=event.message),), at)


def _apply_run_ended(state: State, event: e.RunEnded, at: float, proof: str) -> State:
    """End the run with a transcript that any later request can continue."""
    after = charge_partial_reply(state, event.usage, event.usd)
    after = replace(after, run=replace(after.run, seconds=at - after.run.started_at))
    if event.stop == "waiting":
        run = replace(after.run, stop=event.stop, reason=event.reason)
        return replace(after, phase=Phase.AWAITING_APPROVAL, run=run)
    if state.pending_calls:
        closed = abandon_calls(state.pending_calls)
        for before, item in zip(state.pending_calls, closed, strict=True):
            if before.result is None:
                after = record_compensation(after, item, None)
                if item.result is not None and item.result.outcome == "unknown":
                    after = record_call_in_doubt(after, item, at)
        after = append_results(after, closed, at)
    partial = event.partial_text.strip()
    if partial:
        parts = (Text(text=partial),)
        message = Message(role="assistant", parts=parts, at=at, stop=Stop.OTHER, provenance="model")
        after = append_message(after, message)
    output = state.run.output
    answer = (
        final_text(state) if state.run.reply is not None else output or state.run.continued_text + partial
    )
    if event.stop == "done" and output is None and state.settings.output is not None:
        output = extract_output_json(answer)
    run = replace(
        after.run,
        stop=event.stop,
        reason=event.reason,
        answer=answer,
        output=output,
        reply=None,
        continued_text="",
    )
    return replace(after, phase=Phase.IDLE, run=run)


EventHandler = Callable[[State, Any, float, str], State]

TRANSITIONS: dict[tuple[Phase, type], EventHandler] = {
    (Phase.NEW, e.Configured): _apply_configured,
    (Phase.IDLE, e.Configured): _apply_configured,
    (Phase.IDLE, e.Imported): _apply_imported,
    (Phase.IDLE, e.Prompted): _apply_prompted,
    (Phase.IDLE, e.Resumed): _apply_resumed,
    (Phase.IDLE, e.CompensationStarted): apply_compensation_started,
    (Phase.IDLE, e.CompensationFinished): apply_compensation_finished,
    (Phase.CALLING_MODEL, e.Configured): _apply_configured,
    (Phase.CALLING_MODEL, e.Resumed): _apply_resumed,
    (Phase.CALLING_MODEL, e.ModelAsked): _apply_model_asked,
    (Phase.CALLING_MODEL, e.ModelReplied): _apply_model_replied,
    (Phase.CALLING_MODEL, e.ModelFailed): _apply_model_failed,
    (Phase.CALLING_MODEL, e.ModelSwitched): apply_model_switched,
    (Phase.CALLING_MODEL, e.ViewChanged): _apply_view_changed,
    (Phase.CALLING_MODEL, e.Compacted): apply_compacted,
    (Phase.CALLING_MODEL, e.ToolsRevealed): apply_tools_revealed,
    (Phase.CALLING_MODEL, e.PrefixMoved): apply_prefix_moved,
    (Phase.CALLING_MODEL, e.RequestAdjusted): apply_request_adjusted,
    (Phase.CALLING_MODEL, e.Reprompted): _apply_reprompted,
    (Phase.CALLING_MODEL, e.RunEnded): _apply_run_ended,
    (Phase.EVALUATING_REPLY, e.Configured): _apply_configured,
    (Phase.EVALUATING_REPLY, e.Resumed): _apply_resumed,
    (Phase.EVALUATING_REPLY, e.ModelAsked): _apply_model_asked,
    (Phase.EVALUATING_REPLY, e.ModelFailed): _apply_model_failed,
    (Phase.EVALUATING_REPLY, e.ModelSwitched): apply_model_switched,
    (Phase.EVALUATING_REPLY, e.ViewChanged): _apply_view_changed,
    (Phase.EVALUATING_REPLY, e.Compacted): apply_compacted,
    (Phase.EVALUATING_REPLY, e.ToolsRevealed): apply_tools_revealed,
    (Phase.EVALUATING_REPLY, e.PrefixMoved): apply_prefix_moved,
    (Phase.EVALUATING_REPLY, e.RequestAdjusted): apply_request_adjusted,
    (Phase.EVALUATING_REPLY, e.Reprompted): _apply_reprompted,
    (Phase.EVALUATING_REPLY, e.RunEnded): _apply_run_ended,
    (Phase.RUNNING_TOOLS, e.Configured): _apply_configured,
    (Phase.RUNNING_TOOLS, e.Resumed): _apply_resumed,
    (Phase.RUNNING_TOOLS, e.ToolsRevealed): apply_tools_revealed,
    (Phase.RUNNING_TOOLS, e.ToolStarted): apply_tool_started,
    (Phase.RUNNING_TOOLS, e.ToolProbed): apply_tool_probed,
    (Phase.RUNNING_TOOLS, e.ToolFinished): apply_tool_finished,
    (Phase.RUNNING_TOOLS, e.ApprovalAsked): apply_approval_asked,
    (Phase.RUNNING_TOOLS, e.ApprovalAnswered): apply_approval_answered,
    (Phase.RUNNING_TOOLS, e.CallReviewed): apply_call_reviewed,
    (Phase.RUNNING_TOOLS, e.RunEnded): _apply_run_ended,
    (Phase.AWAITING_APPROVAL, e.Configured): _apply_configured,
    (Phase.AWAITING_APPROVAL, e.Resumed): _apply_resumed,
    (Phase.AWAITING_APPROVAL, e.ApprovalAnswered): apply_approval_answered,
    (Phase.AWAITING_APPROVAL, e.RunEnded): _apply_run_ended,
    **MEMORY_TRANSITIONS,
    **CACHE_TRANSITIONS,
    **CONVERSATION_TRANSITIONS,
    **{(phase, SubrunStarted): apply_subrun_started for phase in Phase if phase is not Phase.NEW},
    **{(phase, SubrunCharged): apply_subrun_charged for phase in Phase if phase is not Phase.NEW},
    **{(phase, e.Forked): apply_forked for phase in Phase},
    **{(phase, e.LogRepaired): apply_log_repaired for phase in Phase},
    **{(phase, e.UnknownEvent): ignore_unknown_event for phase in Phase},
}
