"""What can be undone after a run that did not end well, and what has been.

A call that completed and whose tool names a compensation is remembered until the next prompt.
Undoing goes backwards: what was built last is taken down first.  An undoing is a call like any
other: intent before action, a receipt after it, one key for all attempts.
"""

from hashlib import sha256

from msgspec.structs import replace

from ..values import event as e
from ..values.compensation import Compensation
from ..values.parts import Text
from ..values.whole import Whole
from .opencall import OpenCall
from .receipts import drop_doubt, drop_receipt
from .state import State

MAYBE = ("unknown", "timeout")
"""Outcomes after which nobody knows whether the call took effect."""
UNDONE = "Since then these completed actions of yours were undone: {names}. They no longer hold."
NOT_UNDONE = "Undoing these actions of yours was tried and failed, so they may still hold: {names}."
MAYBE_UNDONE = (
    "Undoing these actions of yours was tried, and whether that took effect is unknown: {names}."
    " Find out before you rely on it."
)


def remembered(state: State, item: OpenCall, whole: Whole | None) -> State:
    """The state after a call has its result: what can be undone is written down."""
    result = item.result
    spec = next((spec for spec in state.settings.every_tool if spec.name == item.call.name), None)
    if result is None or spec is None or not spec.compensation or result.outcome not in ("ok", *MAYBE):
        return state
    if item.attempt == 0:
        return state  # answered without having been run, as a call that came twice is
    done = Compensation(
        call_id=item.call.id,
        tool=spec.name,
        arguments=item.arguments,
        receipt=result.text,
        whole=whole,
        by=spec.compensation,
        key=sha256(f"{item.key}:undo".encode()).hexdigest()[:32],
        state="in_doubt" if result.outcome in MAYBE else "open",
    )
    # An action in doubt that was done again, under the same key, is undone once.
    same = (done.key, done.tool, done.arguments)
    others = [other for other in state.run.done if (other.key, other.tool, other.arguments) != same]
    return replace(state, run=replace(state.run, done=(*others, done)))


def compensations(state: State) -> tuple[Compensation, ...]:
    """What can be undone, in the order to do it."""
    return tuple(reversed(state.run.done))


def compensation_started(state: State, event: e.CompensationStarted, at: float, proof: str) -> State:
    after = replace(state, receipts=drop_receipt(state.receipts, event.call_id))
    return _with(after, event.call_id, state="in_doubt", attempt=event.attempt, reported=False)


def compensation_finished(state: State, event: e.CompensationFinished, at: float, proof: str) -> State:
    result = event.result
    ended = "done" if not result.is_error else "in_doubt" if result.outcome in MAYBE else "failed"
    after = replace(state, doubts=drop_doubt(state.doubts, event.call_id)) if ended == "done" else state
    return _with(after, event.call_id, state=ended, result=result.text, reported=False)


def undone_notice(state: State) -> tuple[Text, ...]:
    """Notice that names every call that was undone, or was to be, since the model spoke last."""
    new = [item for item in state.run.done if item.attempt or item.state == "done"]
    groups = (("done", UNDONE), ("failed", NOT_UNDONE), ("in_doubt", MAYBE_UNDONE))
    return tuple(
        Text(text=words.format(names="; ".join(map(_named, found))))
        for group, words in groups
        if (found := [item for item in new if item.state == group and not item.reported])
    )


def undone_reported(state: State) -> State:
    """The state after the model was told: the same is not said twice."""
    done = tuple(
        replace(item, reported=True) if item.attempt or item.state == "done" else item
        for item in state.run.done
    )
    return replace(state, run=replace(state.run, done=done))


def _named(item: Compensation) -> str:
    failed = f" ({item.result.strip()})" if item.state == "failed" and item.result.strip() else ""
    return f"{item.tool}({item.arguments}){failed}"


def _with(whole: State, call_id: str, **changes: object) -> State:
    done = tuple(replace(item, **changes) if item.call_id == call_id else item for item in whole.run.done)
    return replace(whole, run=replace(whole.run, done=done))
