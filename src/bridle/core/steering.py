"""Steering: messages that a person adds to a running run, and the request to pause it.

`Steered` is durable at once and only waits. `SteeringTaken` appends the waiting messages at the next safe point:
before a request, after all results of the last reply, and never between the halves of a paused reply. Both are
events, so a resumed run takes up what still waits and nothing else.
"""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from bridle.core.budget.limits import find_reached_limit
from bridle.core.context.token_estimate import append_message
from bridle.values import events as e
from bridle.values.message import Message, Stop, Text

from .effects import CheckOutput, Effect, EndRun, TakeSteering
from .evaluate_reply import restart_output_progress
from .state import Phase, State, Steering

REPLACED_STOPS = ("done", "refused")
"""Ends that a waiting message replaces; a run that ends otherwise takes it up when it is resumed."""


def plan_steering(state: State, *, prepared: bool = False) -> Effect | None:
    """Effect before the next request: pause, or take up the waiting messages.

    Before the first request of a prompt, retrieval and instructions extend the newest message, so that messages
    are taken up only once these are `prepared`.
    """
    steering, last = state.run.prompt.steering, state.conversation.transcript.messages[-1]
    if last.role == "assistant" and last.stop is Stop.PAUSED:
        return None
    if steering.pause_reason:
        return EndRun(stop="paused", reason=steering.pause_reason)
    hooks = state.run.evaluation.hooks
    if hooks.decided or hooks.asked_step == state.run.budget.spent.steps + 1:
        return None  # hooks have reviewed this request without the messages
    is_unsent = state.calls.request_hash == state.run.prompt.request_hash
    if state.run.compaction.summary.until or not steering.waiting or (is_unsent and not prepared):
        return None
    return TakeSteering(count=len(steering.waiting))


def continue_instead(state: State, effect: Effect) -> Effect:
    """The effect, unless it accepts an answer while a message waits: the message continues the run.

    At a limit the answer stands, because no further request can be made.
    """
    ends = isinstance(effect, CheckOutput) or (isinstance(effect, EndRun) and effect.stop in REPLACED_STOPS)
    if not ends or find_reached_limit(state):
        return effect
    steering = state.run.prompt.steering
    if steering.pause_reason:
        return EndRun(stop="paused", reason=steering.pause_reason)
    return TakeSteering(count=len(steering.waiting))


def _replace_steering(state: State, steering: Steering) -> State:
    run = state.run
    return replace(state, run=replace(run, prompt=replace(run.prompt, steering=steering)))


def apply_steered(state: State, event: e.Steered, at: float, proof: str) -> State:
    steering = state.run.prompt.steering
    return _replace_steering(state, replace(steering, waiting=(*steering.waiting, event.message)))


def apply_pause_requested(state: State, event: e.PauseRequested, at: float, proof: str) -> State:
    return _replace_steering(state, replace(state.run.prompt.steering, pause_reason=event.reason))


def apply_steering_taken(state: State, event: e.SteeringTaken, at: float, proof: str) -> State:
    """Append the messages; repetition and rejected answers are counted from here on."""
    waiting, evaluation = state.run.prompt.steering.waiting, state.run.evaluation
    after = append_waiting(state, event.count, at)
    after = _replace_steering(after, replace(after.run.prompt.steering, waiting=waiting[event.count :]))
    evaluation = replace(
        evaluation,
        reply=None,
        output=None,
        continued_text="",
        reprompts=0,
        batch_signatures=(),
        output_progress=restart_output_progress(evaluation.output_progress),
    )
    return replace(after, phase=Phase.CALLING_MODEL, run=replace(after.run, evaluation=evaluation))


def append_waiting(state: State, count: int, at: float) -> State:
    """State with the first `count` waiting messages appended to the conversation."""
    for text in state.run.prompt.steering.waiting[:count]:
        parts = (Text(text=text),)
        state = append_message(state, Message(role="user", parts=parts, at=at, provenance="person"))
    return state


PHASES_OF_A_RUN = (
    Phase.CALLING_MODEL,
    Phase.REVIEWING_REPLY,
    Phase.EVALUATING_REPLY,
    Phase.RUNNING_TOOLS,
)
STEERING_TRANSITIONS: dict[tuple[Phase, type], Callable[[State, Any, float, str], State]] = {
    **{(phase, e.Steered): apply_steered for phase in PHASES_OF_A_RUN},
    **{(phase, e.PauseRequested): apply_pause_requested for phase in PHASES_OF_A_RUN},
    (Phase.CALLING_MODEL, e.SteeringTaken): apply_steering_taken,
    (Phase.EVALUATING_REPLY, e.SteeringTaken): apply_steering_taken,
}
