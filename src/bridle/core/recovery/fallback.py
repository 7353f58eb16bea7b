"""Model chain: selects the model that continues after a failure.

Rule 1: a run stays with its model, which has the cache and the reasoning, until the failure policy gives up
        on it. It never returns to an abandoned model within a run.
Rule 2: it continues with the first model of the chain that it has not tried. What the conversation loses
        in the change is decided as for any other change of models (core/context), and recorded.
Rule 3: the next prompt starts with the first healthy model in the chain (`choose_first_model`). A model
        without a key or URL is skipped, and the recorded settings say so.
Rule 4: a failure that would recur with every model does not switch models (`can_switch_model`).

Price, limits, window and output mode are facts of a model and change with it.
"""

from collections.abc import Callable

from msgspec.structs import replace

from bridle.core.budget.limits import deadline
from bridle.core.context.token_estimate import model_window_tokens
from bridle.core.context.view import has_next_repair, rebuild_view
from bridle.core.effects import EndRun, SwitchModel
from bridle.core.state import Attempt, CompactionProgress, EndpointRefusals, Phase, State
from bridle.values.errors import Failure
from bridle.values.events import ModelSwitched
from bridle.values.model import Model
from bridle.values.settings import Settings

from .failure_policy import FAILURE_POLICY, GiveUp, RetryWait, next_attempt


def next_model(state: State) -> Model | None:
    """Model that continues after the failure of the current one; None if there is none."""
    failure, current = state.run.attempt.failure, state.settings.model
    if failure is None or not FAILURE_POLICY[failure.kind].can_switch_model:
        return None
    done = {
        current.model_key,
        *(model_key for model_key, _ in (*state.run.route.abandoned_models, *state.settings.skipped_models)),
    }
    fresh = (model for model in state.settings.models if model.model_key not in done)
    return next((model for model in fresh if _can_help(state, model, failure)), None)


NO_WAIT = RetryWait(seconds=0.0, source="")
NO_REFUSALS = EndpointRefusals()


def decide_wait(state: State) -> RetryWait | GiveUp:
    """Wait before the next request to the current model, or the reason to give up on it."""
    run, attempt, failure = state.run, state.run.attempt, state.run.attempt.failure
    if failure is None and run.refusals == NO_REFUSALS and not run.compaction.overflow.kind:
        return NO_WAIT
    refusals, refused = run.refusals, failure is not None and bool(failure.refused_parameter)
    repaired = bool(refusals.rejected_parts or refusals.reply_echo or run.compaction.overflow.kind or refused)
    if failure is None or repaired:
        return RetryWait(seconds=0.0, source="repair" if repaired else "")
    if failure.kind == "unavailable" and next_model(state) is not None:
        return GiveUp(why=failure.message)  # another model is available, so do not wait for this one
    until = deadline(state)
    return next_attempt(
        failure,
        attempt.model_attempts,
        random_draw=run.random_draw,
        answered=state.totals.reply_count > 0 or run.route.endpoint_reached,
        repair_failed=attempt.repair_failures.count(failure.kind) > 1 and not has_next_repair(state, failure),
        breaker_waits=attempt.breaker_waits,
        left_seconds=None if until is None else until - state.now,
        attempts_max=state.settings.attempts_max,
    )


def switch_or_end(state: State, why: str) -> SwitchModel | EndRun:
    model = next_model(state)
    if model is not None:
        return SwitchModel(model=model, why=why)
    return EndRun(stop="failed", reason=explain_failure(state, why))


def apply_model_switched(state: State, event: ModelSwitched, at: float, proof: str) -> State:
    run, abandoned = state.run, (state.settings.model.model_key, event.why)
    run = replace(
        run,
        route=replace(run.route, abandoned_models=(*run.route.abandoned_models, abandoned)),
        attempt=Attempt(number=run.attempt.number, partial_text=run.attempt.partial_text),
        refusals=EndpointRefusals(
            part_removals=run.refusals.part_removals, reply_echo=run.refusals.reply_echo
        ),
        compaction=CompactionProgress(use_own_model=run.compaction.use_own_model),
    )
    return rebuild_view(replace(state, settings=set_model(state.settings, event.model), run=run))


def set_model(settings: Settings, model: Model) -> Settings:
    output = settings.output
    if output is not None:
        output = replace(output, mode=output.mode_for(model))
    return replace(settings, model=model, output=output)


def keep_model(settings: Settings, state: State) -> Settings:
    """Settings for a run that is resumed: it continues with the model of the chain that it was using."""
    model = state.settings.model
    usable = model in settings.models and model.model_key not in dict(settings.skipped_models)
    return set_model(settings, model) if usable and state.phase is not Phase.IDLE else settings


def choose_first_model(settings: Settings, healthy: Callable[[Model], bool]) -> Settings:
    """Settings for a new prompt; if no model is healthy, the preferred one is tried."""
    without_key = {model_key for model_key, _ in settings.skipped_models}
    askable = [model for model in settings.models if model.model_key not in without_key] or [settings.model]
    model = next((model for model in askable if healthy(model)), askable[0])
    return settings if model == settings.model else set_model(settings, model)


def explain_failure(state: State, why: str) -> str:
    """Reason of a failed run, including the models tried before the last one."""
    before = [
        f"{model_key}: {reason}"
        for model_key, reason in (*state.settings.skipped_models, *state.run.route.abandoned_models)
    ]
    return "; ".join([*before, f"{state.settings.model.model_key}: {why}"]) if before else why


def _can_help(state: State, model: Model, failure: Failure) -> bool:
    if failure.kind == "context":
        return model_window_tokens(state, model) > model_window_tokens(state, state.settings.model)
    return True
