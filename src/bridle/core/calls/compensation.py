"""Compensation: which completed actions can be undone after a failed run, and which were.

A completed call whose tool names a compensation is recorded until the next prompt. Compensations run in
reverse order. Each is a call like any other: intent before the action, receipt after it, one idempotency key
for all attempts.
"""

from collections.abc import Mapping
from hashlib import sha256

from msgspec.structs import replace

from bridle.core.state import State
from bridle.values import events as e
from bridle.values.calls import Compensation, StoredResult
from bridle.values.message import Text

from .pending import PendingCall, drop_doubt, drop_receipt

UNCERTAIN_OUTCOMES = ("unknown", "timeout")
"""Outcomes that leave it unknown whether the call took effect."""
UNDONE_NOTICE = "Since then these completed actions of yours were undone: {names}. They no longer hold."
NOT_UNDONE_NOTICE = "Undoing these actions of yours was tried and failed, so they may still hold: {names}."
UNCERTAIN_NOTICE = (
    "Undoing these actions of yours was tried, and whether that took effect is unknown: {names}."
    " Find out before you rely on it."
)


def record_compensation(state: State, item: PendingCall, whole: StoredResult | None) -> State:
    """State after a call has its result, with its compensation added if it has one."""
    result = item.result
    spec = state.settings.find_tool(item.call.name)
    if (
        result is None
        or spec is None
        or not spec.compensation
        or result.outcome not in ("ok", *UNCERTAIN_OUTCOMES)
    ):
        return state
    if item.attempt == 0:
        return state  # answered without having run, for example a duplicate call
    compensation = Compensation(
        call_id=item.call.id,
        tool=spec.name,
        arguments=item.arguments,
        receipt=result.text,
        stored_result=whole,
        compensating_tool=spec.compensation,
        key=sha256(f"{item.key}:undo".encode()).hexdigest()[:32],
        state="in_doubt" if result.outcome in UNCERTAIN_OUTCOMES else "open",
    )
    # An action in doubt that was repeated under the same key is undone once.
    identity = (compensation.key, compensation.tool, compensation.arguments)
    others = [
        other for other in state.run.compensations if (other.key, other.tool, other.arguments) != identity
    ]
    return replace(state, run=replace(state.run, compensations=(*others, compensation)))


def list_compensations(state: State) -> tuple[Compensation, ...]:
    """Compensations in the order to run them."""
    return tuple(reversed(state.run.compensations))


def merge_compensations(
    state: State, nested: Mapping[str, tuple[Compensation, ...]]
) -> tuple[Compensation, ...]:
    """Compensations of a run and of the runs inside its calls, in the order to run them.

    `nested` are those of each inner session, in that order. A call ends after the runs inside it, so its own
    compensation comes before theirs.
    """
    calls = [call.id for message in state.conversation.transcript.messages for call in message.calls]
    places = {call: place for place, call in enumerate(calls)}
    inner = [
        (places[each.call_id], nested[each.session])
        for each in reversed(state.run.budget.subruns)
        if each.session in nested and each.call_id in places
    ]
    starts = {place for place, _ in inner}

    def count_starts(until: int) -> int:
        return sum(start <= until for start in starts)

    found = [(2 * count_starts(places[item.call_id]), item) for item in list_compensations(state)]
    for place, items in inner:
        found += [(2 * count_starts(place) - 1, item) for item in items]
    return tuple(item for _, item in sorted(found, key=lambda each: each[0], reverse=True))


def apply_compensation_started(state: State, event: e.CompensationStarted, at: float, proof: str) -> State:
    after = replace(
        state, calls=replace(state.calls, receipts=drop_receipt(state.calls.receipts, event.call_id))
    )
    return _update_compensation(after, event.call_id, state="in_doubt", attempt=event.attempt, reported=False)


def apply_compensation_finished(state: State, event: e.CompensationFinished, at: float, proof: str) -> State:
    result = event.result
    outcome_state = (
        "done" if not result.is_error else "in_doubt" if result.outcome in UNCERTAIN_OUTCOMES else "failed"
    )
    after = (
        replace(state, calls=replace(state.calls, in_doubt=drop_doubt(state.calls.in_doubt, event.call_id)))
        if outcome_state == "done"
        else state
    )
    return _update_compensation(after, event.call_id, state=outcome_state, result=result.text, reported=False)


def compensation_notices(state: State) -> tuple[Text, ...]:
    """Notices about compensations that the model has not been informed of."""
    new = [item for item in state.run.compensations if item.attempt or item.state == "done"]
    groups = (("done", UNDONE_NOTICE), ("failed", NOT_UNDONE_NOTICE), ("in_doubt", UNCERTAIN_NOTICE))
    return tuple(
        Text(text=words.format(names="; ".join(map(_describe_compensation, found))))
        for group, words in groups
        if (found := [item for item in new if item.state == group and not item.reported])
    )


def mark_compensations_reported(state: State) -> State:
    """Mark all attempted compensations as reported to the model."""
    compensations = tuple(
        replace(item, reported=True) if item.attempt or item.state == "done" else item
        for item in state.run.compensations
    )
    return replace(state, run=replace(state.run, compensations=compensations))


def _describe_compensation(item: Compensation) -> str:
    failed = f" ({item.result.strip()})" if item.state == "failed" and item.result.strip() else ""
    return f"{item.tool}({item.arguments}){failed}"


def _update_compensation(whole: State, call_id: str, **changes: object) -> State:
    compensations = tuple(
        replace(item, **changes) if item.call_id == call_id else item for item in whole.run.compensations
    )
    return replace(whole, run=replace(whole.run, compensations=compensations))
