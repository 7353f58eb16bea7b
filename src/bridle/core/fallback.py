"""A chain of models: who goes on when one is of no more use.

Rule 1: a run stays with the model it is with, which holds its cache and its reasoning, until the verdict
        on a failure of it is used up (retry.py).  It never goes back within a run.
Rule 2: it goes on with the first model of the chain that it has not done with.  What the conversation must
        lose on the way is decided as for any other change of models (handoff.py), in the log.
Rule 3: the next prompt begins with the first model of the chain whose endpoint is well (`begun_with`).
        A model without a key or an address is skipped, and the settings in the log say so.
Rule 4: a failure that would follow the request anywhere is not carried round (`elsewhere` in verdicts.py).

Prices, limits, room and the way to ask for a shape are facts of a model and change with it.
"""

from collections.abc import Callable

from msgspec.structs import replace

from ..values.errors import Failure
from ..values.event import ModelSwitched
from ..values.model import Model
from ..values.settings import Settings
from .handoff import viewed
from .squeeze import Squeeze
from .state import State
from .verdicts import FAILURES
from .window import window_tokens_of


def next_model(state: State) -> Model | None:
    """Who goes on after the failure of the current model; None when nobody does."""
    failure, current = state.run.failure, state.settings.model
    if failure is None or not FAILURES[failure.kind].elsewhere:
        return None
    done = {current.seat, *(seat for seat, _ in (*state.run.left, *state.settings.skipped))}
    fresh = (model for model in state.settings.models if model.seat not in done)
    return next((model for model in fresh if _may_help(state, model, failure)), None)


def switched(state: State, event: ModelSwitched, at: float, proof: str) -> State:
    run = replace(
        state.run,
        left=(*state.run.left, (state.settings.model.seat, event.why)),
        tries=0,
        rests=0,
        failure=None,
        refusals=(),
        blamed=(),
        unchained=False,
        reasoning="",
        left_out=(),
        squeeze=Squeeze(own=state.run.squeeze.own),
    )
    return viewed(replace(state, settings=with_model(state.settings, event.model), run=run))


def with_model(settings: Settings, model: Model) -> Settings:
    output = settings.output
    if output is not None:
        output = replace(output, mode=output.mode_for(model))
    return replace(settings, model=model, output=output)


def begun_with(settings: Settings, healthy: Callable[[Model], bool]) -> Settings:
    """The settings a prompt begins with; where nobody is well, the one that is wanted most is tried."""
    without_key = {seat for seat, _ in settings.skipped}
    askable = [model for model in settings.models if model.seat not in without_key] or [settings.model]
    model = next((model for model in askable if healthy(model)), askable[0])
    return settings if model == settings.model else with_model(settings, model)


def story(state: State, why: str) -> str:
    """Why the run failed, with those it tried before the last."""
    before = [f"{seat}: {reason}" for seat, reason in (*state.settings.skipped, *state.run.left)]
    return "; ".join([*before, f"{state.settings.model.seat}: {why}"]) if before else why


def _may_help(state: State, model: Model, failure: Failure) -> bool:
    if failure.kind == "context":
        return window_tokens_of(state, model) > window_tokens_of(state, state.settings.model)
    return True
