"""The model's turn: chooses the next effect, and applies the request, its reply or its failure.

`choose_next_effect` checks in this order: limits, steering, forbidden prefix changes, repetition, wrap-up, failures
that waiting cannot fix (switch models or end), notes and retrieval, due view changes, tools to reveal, compaction;
then the model call itself.
"""

from msgspec.structs import replace

from bridle.core.budget.limits import (
    billable_usage,
    charge_partial_reply,
    deadline,
    find_reached_limit,
    model_call_spending,
    wrap_up_reprompt,
)
from bridle.core.cache.diagnosis import record_call_answered, record_call_sent
from bridle.core.cache.prefix import (
    end_if_prefix_moved,
    find_prefix_change,
    snapshot_request,
    stale_reasoning,
)
from bridle.core.cache.server_state import (
    classify_failure,
    mark_conversation_answered,
    mark_conversation_failed,
    mark_conversation_sent,
    plan_conversation,
    plan_stored_prompt,
    stored_prompt_name,
)
from bridle.core.calls.catalogue import (
    adjustments_after_request,
    end_if_adjusted,
    plan_tool_reveal,
    reveal_forced_tool,
)
from bridle.core.calls.dispatch import number_calls, open_calls
from bridle.core.calls.pending import PendingCall, list_calls, repetition_notice
from bridle.core.compaction.plan import SummaryRequest, plan_compaction
from bridle.core.compaction.summary import (
    apply_summary_asked,
    apply_summary_replied,
    progress_after_reply,
    progress_after_request,
    record_overflow,
    state_for_summarizer,
)
from bridle.core.context.assemble import (
    assemble_request,
    find_step_options,
    list_unsent_options,
    use_step_options,
)
from bridle.core.context.token_estimate import (
    doubt_usage,
    estimate_after_reply,
    extend_conversation,
    is_substantial,
    record_window,
    truncation_hint,
)
from bridle.core.context.view import (
    find_due_view_change,
    find_removable_parts,
    is_echo_refused,
    list_omitted_media,
)
from bridle.core.recovery.failure_policy import (
    FAILURE_POLICY,
    GiveUp,
    RetryWait,
    has_endpoint_answered,
    record_refused_parameter,
)
from bridle.core.recovery.fallback import decide_wait, next_model, switch_or_end
from bridle.values import events as e
from bridle.values.message import Message, Part, Reply, Stop, Text, ToolCall
from bridle.values.request import Request, ToolChoice

from .effects import (
    AskModel,
    ChangeView,
    ChooseOptions,
    Effect,
    EndRun,
    RecordFinding,
    Reprompt,
    SwitchModel,
)
from .evaluate_reply import (
    CYCLE_LENGTH_MAX,
    NOTICE_BEFORE_END,
    REJECTED_ANSWERS_MAX,
    end_output_rejected,
    final_text,
    find_cycle,
    find_last_output_problem,
    find_last_retry_reason,
    report_other_calls,
    report_several_calls,
)
from .memory import plan_instruction, plan_memory_load, plan_retrieval
from .state import Attempt, CallBatch, EndpointRefusals, Phase, State
from .steering import plan_steering

REFUSED_STOPS, LENGTH_STOP, PAUSED_STOP = (Stop.REFUSED, Stop.FILTERED), Stop.LENGTH, Stop.PAUSED
TOOL_RETRIES_MAX = 3
"""Replies in a row that one tool may answer with `ModelRetry` alone; the next one ends the run."""


def choose_next_effect(state: State) -> Effect:
    reached = find_reached_limit(state)
    if reached:
        return EndRun(stop=reached[0], reason=reached[1])
    steering = state.run.prompt.steering
    if (steering.waiting or steering.pause_reason) and (steered := plan_steering(state)):
        return steered
    adjustments = state.run.adjustments
    if adjustments.prefix_change is not None or adjustments.refused_adjustments:
        refused = end_if_prefix_moved(state) or end_if_adjusted(state)
        if refused is not None:
            return refused
    repetition = _check_repetition(state)
    if repetition is not None:
        return repetition
    retries = state.run.evaluation.output_progress.tool_retries
    if retries and not state.settings.model.endpoint.is_program and (exhausted := _end_after_retries(state)):
        return exhausted
    wrap_up = wrap_up_reprompt(state)
    if wrap_up is not None:
        return wrap_up
    if state.run.evaluation.output_progress.validator_error:
        return EndRun(stop="failed", reason=state.run.evaluation.output_progress.validator_error)
    if state.run.evaluation.output_progress.rejected_answers > REJECTED_ANSWERS_MAX:
        return end_output_rejected(state, find_last_output_problem(state))
    wait = decide_wait(state)
    if isinstance(wait, GiveUp):
        fallback_state = _use_own_summarizer(state)
        if fallback_state is None:
            return switch_or_end(state, wait.why)
        state, wait = fallback_state, RetryWait(seconds=0.0, source="repair")
    until = deadline(state)
    preparation: Effect | None = plan_memory_load(state) or plan_retrieval(state, until)
    if preparation is None and state.settings.instruction_functions:
        preparation = plan_instruction(state, until)
    if preparation is not None:
        return preparation
    if steering.waiting and (steered := plan_steering(state, prepared=True)):
        return steered
    if state.conversation.unsupported_parts and (omitted := list_omitted_media(state)):
        return RecordFinding(event=e.RequestAdjusted(adjustments=omitted))
    change = find_due_view_change(state) or stale_reasoning(state)
    if change:
        return ChangeView(changes=change.changes, why=change.why, model_key=change.model_key)
    tools = plan_tool_reveal(state, until)
    if tools is not None:
        return tools
    return _plan_request(state, wait, until)


def _plan_request(state: State, wait: RetryWait, until: float | None) -> Effect:
    """Compaction, options of the step, a conversation or prompt at the provider; then the model call."""
    compaction = plan_compaction(state)
    if compaction is not None:
        if isinstance(compaction, EndRun) and (model := next_model(state)):
            return SwitchModel(model=model, why=compaction.reason)
        if not isinstance(compaction, SummaryRequest):
            return compaction
    choice: ToolChoice | None = None
    step = state.run.budget.spent.steps + 1
    if compaction is None and state.settings.step_functions:
        chosen = find_step_options(state, step)
        if chosen is None:
            return ChooseOptions(step=step)
        choice, state = chosen.tool_choice, use_step_options(state, step)
        if choice is not None and (forced := reveal_forced_tool(state, choice)):
            return forced
    request, notes = (compaction.request, ()) if compaction else assemble_request(state, choice)
    if compaction is None:
        settings, cache = state.settings, state.cache
        if (settings.chain or cache.server_conversation is not None) and (moved := plan_conversation(state)):
            return moved
        if settings.cache_by_name or cache.stored_prompt is not None:
            storage = plan_stored_prompt(state, request)
            if storage is not None:
                return storage
            if name := stored_prompt_name(state, request):
                request = replace(request, stored_prompt=name)
        if lost := list_unsent_options(state, choice, notes):
            return RecordFinding(event=e.RequestAdjusted(adjustments=lost))
    change = find_prefix_change(state, request, aside=compaction is not None, chosen=choice is not None)
    if change is not None:
        return RecordFinding(event=change)
    failure = state.run.attempt.failure
    return AskModel(
        request=request,
        step=step,
        attempt=state.run.attempt.number + 1,
        after_failure=failure.kind if failure else None,
        wait_seconds=wait.seconds,
        wait_source=wait.source,
        deadline=until,
        notes=notes,
        summarizes_until=compaction.summarized_until if compaction else "",
    )


def _use_own_summarizer(state: State) -> State | None:
    """State in which the run's own model summarizes, if another model or the provider cannot."""
    progress = state.run.compaction
    summary_request = plan_compaction(state)
    if not isinstance(summary_request, SummaryRequest):
        return None
    if summary_request.request.asks_native_summary:
        return replace(state, run=replace(state.run, compaction=replace(progress, native_disabled=True)))
    if summary_request.request.model.model_key == state.settings.model.model_key:
        return None
    return replace(state, run=replace(state.run, compaction=replace(progress, use_own_model=True)))


def _check_repetition(state: State) -> Effect | None:
    batches, limit = state.run.evaluation.batch_signatures, state.settings.repeats_max
    if limit is None or not batches or batches[-1] not in batches[-1 - CYCLE_LENGTH_MAX : -1]:
        return None
    cycle = find_cycle(batches)
    if cycle.repeats <= 1:
        return None
    calls = _latest_calls(state, cycle.period)
    if cycle.repeats >= limit:
        reason = f"{list_calls(calls)} called {cycle.repeats} times with the same arguments and result"
        return EndRun(stop="no_progress", reason=reason)
    due = cycle.complete and cycle.repeats == max(2, limit - NOTICE_BEFORE_END)
    if due and state.conversation.transcript.messages[-1].role == "tool":
        return Reprompt(why="repeating", message=repetition_notice(cycle.repeats, calls))
    return None


def _end_after_retries(state: State) -> EndRun | None:
    """End of a run whose model could not satisfy a tool that raises `ModelRetry`."""
    for name, count in state.run.evaluation.output_progress.tool_retries:
        if count > TOOL_RETRIES_MAX:
            asked = f"`{name}` asked the model to try again {count} times in a row"
            return EndRun(
                stop="no_progress", reason=f"{asked}; last reason: {find_last_retry_reason(state, name)}"
            )
    return None


def _latest_calls(state: State, batches: int) -> tuple[ToolCall, ...]:
    with_calls = [message.calls for message in state.conversation.transcript.messages if message.calls]
    return tuple(call for calls in with_calls[-batches:] for call in calls)


def apply_model_asked(state: State, event: e.ModelAsked, at: float, proof: str) -> State:
    if event.summarizes_until:
        return apply_summary_asked(state, event, at)
    run, attempt, evaluation = state.run, state.run.attempt, state.run.evaluation
    budget_warning = event.reservation.budget_warning if event.reservation else ""
    run = replace(
        run,
        attempt=Attempt(
            number=event.attempt,
            model_attempts=attempt.model_attempts + 1,
            breaker_waits=attempt.breaker_waits,
            repair_failures=attempt.repair_failures,
        ),
        evaluation=replace(
            evaluation,
            reply=None,
            # A paused reply is continued from EVALUATING_REPLY.
            continued_text=evaluation.continued_text if evaluation.reply is None else final_text(state),
            tools_forbidden=event.tool_choice.mode == "none",
        ),
        adjustments=adjustments_after_request(run.adjustments, event),
        compaction=progress_after_request(run.compaction),
        budget=run.budget
        if run.budget.warning == budget_warning
        else replace(run.budget, warning=budget_warning),
    )
    sent = use_step_options(state, event.step) if run.adjustments.step_options else state
    return replace(
        state,
        phase=Phase.CALLING_MODEL,
        run=run,
        calls=replace(state.calls, request_hash=proof),
        cache=replace(
            state.cache,
            last_request=snapshot_request(sent, event.tool_choice),
            history=record_call_sent(state, event, at),
            server_conversation=mark_conversation_sent(state, event)
            if state.cache.server_conversation is not None
            else None,
        ),
    )


def apply_model_replied(state: State, event: e.ModelReplied, at: float, proof: str) -> State:
    if event.summarizes_until:
        return apply_summary_replied(state, event)
    reply = event.reply
    refused = reply.stop in REFUSED_STOPS
    calls = () if refused else reply.calls
    acting, usage = bool(calls), billable_usage(state, reply)
    run, evaluation = state.run, state.run.evaluation
    call, total = model_call_spending(usage, event.usd, steps=1), state.totals.spent
    spent = run.budget.spent + call
    total = spent if total == run.budget.spent else total + call  # equal in the first run of a session
    run = replace(
        run,
        budget=replace(run.budget, spent=spent, tool_call_limit=""),
        attempt=Attempt(),
        evaluation=replace(
            evaluation,
            reprompts=0 if acting else evaluation.reprompts,
            continued_text="" if acting else evaluation.continued_text,
            needs_full_output=reply.stop is LENGTH_STOP,
            pauses=evaluation.pauses + 1 if reply.stop is PAUSED_STOP else 0,
            reply=None if acting else reply,
            output_error=event.output_error,
            suspected_truncation=event.truncation_hint if state.settings.on_truncation == "error" else "",
        ),
        refusals=replace(run.refusals, server_state_lost=False)
        if run.refusals.server_state_lost
        else run.refusals,
        compaction=progress_after_reply(state, reply.stop),
    )
    if reply.input_changes:
        known = run.adjustments.recorded_notes
        changes = tuple(note for note in reply.input_changes if note not in known)
        run = replace(run, adjustments=replace(run.adjustments, reported_changes=changes))
    last = state.cache.last_request
    if acting and last is not None and last.tool_choice.mode == "tool":
        run = report_other_calls(state, run, last.tool_choice.name, calls)
    if acting and last is not None and not last.tool_choice.parallel:
        run = report_several_calls(run, calls)
    pending: tuple[PendingCall, ...] = ()
    if acting:
        error, claims = event.output_error, event.resource_claims
        pending = open_calls(reply, calls, state, error, claims, forbidden=evaluation.tools_forbidden)
    # A refused reply may be shown, but its calls and reasoning are not sent on.
    parts = tuple(part for part in reply.parts if isinstance(part, Text)) if refused else reply.parts
    conversation = state.conversation
    if pending or any(is_substantial(part) for part in parts):
        message = _make_reply_message(reply, parts, at)
        conversation = extend_conversation(conversation, state.settings.model, message)
    return replace(
        state,
        phase=Phase.RUNNING_TOOLS if acting else Phase.EVALUATING_REPLY,
        conversation=conversation,
        calls=replace(state.calls, batch=CallBatch(pending=pending)),
        run=run,
        totals=replace(state.totals, spent=total, reply_count=state.totals.reply_count + 1),
        cache=replace(
            state.cache,
            history=record_call_answered(state, reply),
            server_conversation=mark_conversation_answered(state, reply)
            if state.cache.server_conversation is not None
            else None,
        ),
        estimate=estimate_after_reply(state, reply, doubted=bool(event.usage_doubt)),
    )


def describe_reply(state: State, request: Request, reply: Reply, summarizes_until: str) -> e.ModelReplied:
    """The event of a reply as core sees it: its calls numbered, and doubts about its counts."""
    return e.ModelReplied(
        reply=number_calls(reply, state.totals.reply_count + 1),
        truncation_hint=truncation_hint(request, reply.usage),
        usage_doubt=doubt_usage(state, reply),
        summarizes_until=summarizes_until,
    )


def _make_reply_message(reply: Reply, parts: tuple[Part, ...], at: float) -> Message:
    return Message(
        role="assistant",
        parts=parts,
        at=at,
        origin=reply.origin,
        usage=reply.usage,
        stop=reply.stop,
        reply_id=reply.id,
        provenance="model",
    )


def apply_model_failed(state: State, event: e.ModelFailed, at: float, proof: str) -> State:
    run, attempt, refusals = state.run, state.run.attempt, state.run.refusals
    refused_parameters, failure = record_refused_parameter(refusals.refused_parameters, event.failure)
    failure = classify_failure(state, failure)
    kind = failure.kind
    rejected = () if kind == "forgotten" else find_removable_parts(state, event.rejected_parts)
    run = replace(
        run,
        attempt=replace(
            attempt,
            failure=failure,
            # Nothing was sent while the breaker was open, so the earlier partial text remains.
            partial_text=attempt.partial_text if kind == "unavailable" else event.partial_text,
            breaker_waits=attempt.breaker_waits + (kind == "unavailable"),
            repair_failures=(*attempt.repair_failures, kind)
            if FAILURE_POLICY[kind].action == "repair"
            else attempt.repair_failures,
        ),
        refusals=EndpointRefusals(
            part_removals=refusals.part_removals,
            refused_parameters=refused_parameters,
            reply_echo="refused" if not rejected and is_echo_refused(state, failure) else "",
            rejected_parts=rejected,
            server_state_lost=kind == "forgotten" or refusals.server_state_lost,
            reasoning_status="refused" if kind == "reasoning_refused" else refusals.reasoning_status,
        ),
        route=run.route
        if run.route.endpoint_reached or not has_endpoint_answered(event)
        else replace(run.route, endpoint_reached=True),
        compaction=run.compaction if rejected else record_overflow(state, failure),
        random_draw=event.random_draw,
    )
    charged = charge_partial_reply(
        state_for_summarizer(state, run.compaction.summary.summarizer_key), event.usage, event.usd
    )
    run = replace(run, budget=replace(run.budget, spent=charged.run.budget.spent))
    windows = record_window(state_for_summarizer(state, state.run.compaction.summary.summarizer_key), failure)
    conversation = mark_conversation_failed(state, event, kind)
    return replace(
        state,
        run=run,
        totals=replace(state.totals, spent=charged.totals.spent),
        cache=replace(state.cache, server_conversation=conversation),
        estimate=replace(state.estimate, reported_windows=windows),
    )
