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
from .receipts import drop_receipt
from .state import State

MAYBE = ("unknown", "timeout")
"""Outcomes after which nobody knows whether the call took effect."""
TOLD = "Since then these completed actions of yours were undone: {names}. They no longer hold."


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
    return replace(state, run=replace(state.run, done=(*state.run.done, done)))


def compensations(state: State) -> tuple[Compensation, ...]:
    """What can be undone, in the order to do it."""
    return tuple(reversed(state.run.done))


def compensation_started(state: State, event: e.CompensationStarted, at: float, proof: str) -> State:
    after = replace(state, receipts=drop_receipt(state.receipts, event.call_id))
    return _with(after, event.call_id, state="in_doubt", attempt=event.attempt)


def compensation_finished(state: State, event: e.CompensationFinished, at: float, proof: str) -> State:
    result = event.result
    ended = "done" if not result.is_error else "in_doubt" if result.outcome in MAYBE else "failed"
    return _with(state, event.call_id, state=ended, result=result.text)


def undone_note(state: State) -> tuple[Text, ...]:
    """What the model must hear before anything else: its world is not as it left it."""
    undone = [item for item in state.run.done if item.state == "done"]
    if not undone:
        return ()
    return (Text(text=TOLD.format(names="; ".join(f"{item.tool}({item.arguments})" for item in undone))),)


def _with(whole: State, call_id: str, **changes: object) -> State:
    done = tuple(replace(item, **changes) if item.call_id == call_id else item for item in whole.run.done)
    return replace(whole, run=replace(whole.run, done=done))
