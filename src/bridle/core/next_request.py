"""Chooses the next effect when it is the model's turn.

Checked in this order: limits, forbidden prefix changes, repetition, wrap-up, failures that waiting cannot fix
(switch models or end), notes and retrieval, due view changes, tools to reveal, compaction; then the model
call itself.
"""

from msgspec.structs import replace

from bridle.core.budget.limits import deadline, find_reached_limit, wrap_up_reprompt
from bridle.core.cache.prefix import end_if_prefix_moved, stale_reasoning
from bridle.core.cache.server_state import plan_conversation, plan_stored_prompt, stored_prompt_name
from bridle.core.calls.catalogue import end_if_adjusted, plan_tool_reveal
from bridle.core.compaction.plan import SummaryRequest, plan_compaction
from bridle.core.context.assemble import assemble_request
from bridle.core.context.view import find_due_view_change
from bridle.core.recovery.failure_policy import GiveUp, RetryWait, next_attempt
from bridle.core.recovery.fallback import explain_failure, next_model
from bridle.values.message import ToolCall
from bridle.values.result import AttemptRestarted

from .effects import AskModel, ChangeView, Effect, EndRun, Reprompt, SwitchModel
from .evaluate_reply import (
    NOTICE_BEFORE_END,
    REJECTED_ANSWERS_MAX,
    end_output_rejected,
    find_cycle,
    find_last_output_problem,
    list_calls,
    repetition_notice,
)
from .memory import plan_memory_load, plan_retrieval
from .state import State

TOOL_RETRIES_MAX = 3
"""Replies in a row that one tool may answer with `ModelRetry` alone; the next one ends the run."""


def choose_next_effect(state: State) -> Effect:
    reached = find_reached_limit(state)
    if reached:
        return EndRun(stop=reached[0], reason=reached[1])
    refused = end_if_prefix_moved(state) or end_if_adjusted(state)
    if refused is not None:
        return refused
    repetition = _check_repetition(state)
    if repetition is not None:
        return repetition
    if state.run.output_progress.tool_retries and (exhausted := _end_after_retries(state)):
        return exhausted
    wrap_up = wrap_up_reprompt(state)
    if wrap_up is not None:
        return wrap_up
    if state.run.output_progress.rejected_answers > REJECTED_ANSWERS_MAX:
        return end_output_rejected(find_last_output_problem(state))
    wait = _decide_wait(state)
    if isinstance(wait, GiveUp):
        fallback_state = _use_own_summarizer(state)
        if fallback_state is None:
            return _switch_or_end(state, wait.why)
        state, wait = fallback_state, RetryWait(seconds=0.0, source="repair")
    preparation = plan_memory_load(state) or plan_retrieval(state, deadline(state))
    if preparation is not None:
        return preparation
    change = find_due_view_change(state) or stale_reasoning(state)
    if change:
        return ChangeView(changes=change.changes, why=change.why, model_key=change.model_key)
    tools = plan_tool_reveal(state, deadline(state))
    if tools is not None:
        return tools
    compaction = plan_compaction(state)
    if isinstance(compaction, EndRun) and (model := next_model(state)):
        return SwitchModel(model=model, why=compaction.reason)
    if compaction is not None and not isinstance(compaction, SummaryRequest):
        return compaction
    request, notes = (compaction.request, ()) if compaction else assemble_request(state)
    if compaction is None:
        conversation = plan_conversation(state)
        if conversation is not None:
            return conversation
        storage = plan_stored_prompt(state, request)
        if storage is not None:
            return storage
        request = replace(request, stored_prompt=stored_prompt_name(state, request))
    failure = state.run.failure
    return AskModel(
        request=request,
        step=state.run.spent.steps + 1,
        attempt=state.run.attempt + 1,
        after_failure=failure.kind if failure else None,
        wait_seconds=wait.seconds,
        wait_source=wait.source,
        deadline=deadline(state),
        notes=notes,
        summarizes_until=compaction.summarized_until if compaction else "",
    )


def describe_restart(effect: AskModel, state: State) -> AttemptRestarted:
    """Notice shown before another attempt: its reason, its wait, and whether shown text is void."""
    failure, abandoned = state.run.failure, state.run.abandoned_models
    return AttemptRestarted(
        attempt=effect.attempt,
        reason=failure.message if failure else abandoned[-1][1] if abandoned else "",
        after_failure=effect.after_failure,
        wait_seconds=effect.wait_seconds,
        wait_source=effect.wait_source,
        is_text_void=bool(state.run.partial_text),
    )


def _decide_wait(state: State) -> RetryWait | GiveUp:
    run, until = state.run, deadline(state)
    refused = run.failure is not None and bool(run.failure.refused_parameter)
    repaired = bool(run.rejected_parts or run.reply_echo or run.compaction.overflow or refused)
    if run.failure is None or repaired:
        return RetryWait(seconds=0.0, source="repair" if repaired else "")
    if run.failure.kind == "unavailable" and next_model(state) is not None:
        return GiveUp(why=run.failure.message)  # another model is available, so do not wait for this one
    return next_attempt(
        run.failure,
        run.model_attempts,
        random_draw=run.random_draw,
        answered=state.reply_count > 0 or run.endpoint_reached,
        repair_failed=run.repair_failures.count(run.failure.kind) > 1,
        breaker_waits=run.breaker_waits,
        left_seconds=None if until is None else until - state.now,
        attempts_max=state.settings.attempts_max,
    )


def _use_own_summarizer(state: State) -> State | None:
    """State in which the run's own model summarizes, if another model or the provider cannot."""
    summary_request = plan_compaction(state)
    if not isinstance(summary_request, SummaryRequest):
        return None
    if summary_request.request.asks_native_summary:
        return replace(
            state, run=replace(state.run, compaction=replace(state.run.compaction, native_disabled=True))
        )
    if summary_request.request.model.model_key == state.settings.model.model_key:
        return None
    return replace(
        state, run=replace(state.run, compaction=replace(state.run.compaction, use_own_model=True))
    )


def _switch_or_end(state: State, why: str) -> Effect:
    model = next_model(state)
    if model is not None:
        return SwitchModel(model=model, why=why)
    return EndRun(stop="failed", reason=explain_failure(state, why))


def _check_repetition(state: State) -> Effect | None:
    run, limit = state.run, state.settings.repeats_max
    cycle = find_cycle(run.batch_signatures)
    if limit is None or cycle.repeats <= 1:
        return None
    calls = _latest_calls(state, cycle.period)
    if cycle.repeats >= limit:
        reason = f"{list_calls(calls)} called {cycle.repeats} times with the same arguments and result"
        return EndRun(stop="no_progress", reason=reason)
    due = cycle.complete and cycle.repeats == max(2, limit - NOTICE_BEFORE_END)
    if due and state.transcript.messages[-1].role == "tool":
        return Reprompt(why="repeating", message=repetition_notice(cycle.repeats, calls))
    return None


def _end_after_retries(state: State) -> EndRun | None:
    """End of a run whose model could not satisfy a tool that raises `ModelRetry`."""
    for name, count in state.run.output_progress.tool_retries:
        if count > TOOL_RETRIES_MAX:
            asked = f"`{name}` asked the model to try again {count} times in a row"
            return EndRun(
                stop="no_progress", reason=f"{asked}; last reason: {_last_retry_reason(state, name)}"
            )
    return None


def _last_retry_reason(state: State, name: str) -> str:
    results = dict[str, str]()
    for message in reversed(state.transcript.messages):
        results.update((result.call_id, result.text) for result in message.results)
        for call in reversed(message.calls):
            if call.name == name and call.id in results:
                return results[call.id]
    return ""


def _latest_calls(state: State, batches: int) -> tuple[ToolCall, ...]:
    with_calls = [message.calls for message in state.transcript.messages if message.calls]
    return tuple(call for calls in with_calls[-batches:] for call in calls)
