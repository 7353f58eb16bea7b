"""What can be undone after a run that did not end well, and what has been.

A call that completed and whose tool names a compensation is remembered until the next prompt.
Undoing goes backwards: what was built last is taken down first.  An undoing is a call like any
other: intent before action, a receipt after it, one key for all attempts.
"""

from hashlib import sha256

from msgspec.structs import replace

from bridle.core.state import State
from bridle.values import events as e
from bridle.values.calls import Compensation, StoredResult
from bridle.values.message import Text

from .pending import PendingCall, drop_doubt, drop_receipt

UNCERTAIN_OUTCOMES = ("unknown", "timeout")
"""Outcomes after which nobody knows whether the call took effect."""
UNDONE_NOTICE = "Since then these completed actions of yours were undone: {names}. They no longer hold."
NOT_UNDONE_NOTICE = "Undoing these actions of yours was tried and failed, so they may still hold: {names}."
UNCERTAIN_NOTICE = (
    "Undoing these actions of yours was tried, and whether that took effect is unknown: {names}."
    " Find out before you rely on it."
)


def record_compensation(state: State, item: PendingCall, whole: StoredResult | None) -> State:
    """The state after a call has its result: what can be undone is written down."""
    result = item.result
    spec = next((spec for spec in state.settings.all_tools if spec.name == item.call.name), None)
    if (
        result is None
        or spec is None
        or not spec.compensation
        or result.outcome not in ("ok", *UNCERTAIN_OUTCOMES)
    ):
        return state
    if item.attempt == 0:
        return state  # answered without having been run, as a call that came twice is
    done = Compensation(
        call_id=item.call.id,
        tool=spec.name,
        arguments=item.arguments,
        receipt=result.text,
        stored_result=whole,
        compensating_tool=spec.compensation,
        key=sha256(f"{item.key}:undo".encode()).hexdigest()[:32],
        state="in_doubt" if result.outcome in UNCERTAIN_OUTCOMES else "open",
    )
    # An action in doubt that was done again, under the same key, is undone once.
    same = (done.key, done.tool, done.arguments)
    others = [other for other in state.run.compensations if (other.key, other.tool, other.arguments) != same]
    return replace(state, run=replace(state.run, compensations=(*others, done)))


def list_compensations(state: State) -> tuple[Compensation, ...]:
    """What can be undone, in the order to do it."""
    return tuple(reversed(state.run.compensations))


def apply_compensation_started(state: State, event: e.CompensationStarted, at: float, proof: str) -> State:
    after = replace(state, receipts=drop_receipt(state.receipts, event.call_id))
    return _update_compensation(after, event.call_id, state="in_doubt", attempt=event.attempt, reported=False)


def apply_compensation_finished(state: State, event: e.CompensationFinished, at: float, proof: str) -> State:
    result = event.result
    ended = (
        "done" if not result.is_error else "in_doubt" if result.outcome in UNCERTAIN_OUTCOMES else "failed"
    )
    after = (
        replace(state, calls_in_doubt=drop_doubt(state.calls_in_doubt, event.call_id))
        if ended == "done"
        else state
    )
    return _update_compensation(after, event.call_id, state=ended, result=result.text, reported=False)


def compensation_notices(state: State) -> tuple[Text, ...]:
    """Notice that names every call that was undone, or was to be, since the model spoke last."""
    new = [item for item in state.run.compensations if item.attempt or item.state == "done"]
    groups = (("done", UNDONE_NOTICE), ("failed", NOT_UNDONE_NOTICE), ("in_doubt", UNCERTAIN_NOTICE))
    return tuple(
        Text(text=words.format(names="; ".join(map(_describe_compensation, found))))
        for group, words in groups
        if (found := [item for item in new if item.state == group and not item.reported])
    )


def mark_compensations_reported(state: State) -> State:
    """The state after the model was told: the same is not said twice."""
    done = tuple(
        replace(item, reported=True) if item.attempt or item.state == "done" else item
        for item in state.run.compensations
    )
    return replace(state, run=replace(state.run, compensations=done))


def _describe_compensation(item: Compensation) -> str:
    failed = f" ({item.result.strip()})" if item.state == "failed" and item.result.strip() else ""
    return f"{item.tool}({item.arguments}){failed}"


def _update_compensation(whole: State, call_id: str, **changes: object) -> State:
    done = tuple(
        replace(item, **changes) if item.call_id == call_id else item for item in whole.run.compensations
    )
    return replace(whole, run=replace(whole.run, compensations=done))
