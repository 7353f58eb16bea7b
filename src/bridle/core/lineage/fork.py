"""Finds the record at which a session can be forked.

Rule 1: a fork point is a message or a record. After a message means with everything that belongs to it,
        including the end of the run if it was the answer.
Rule 2: a batch of calls with effects is not split. The effect of a call is known in one log only, so a
        point inside such a batch means the point after it.

core/calls/transitions.py decides what the fork does with pending calls.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from bridle.core.calls.orphaned import has_calls_to_keep
from bridle.core.calls.pending import PendingCall
from bridle.core.recovery.growing import settle_conversation
from bridle.core.recovery.log_repair import iterate_states
from bridle.core.state import State
from bridle.values import events as e
from bridle.values.errors import MisuseError
from bridle.values.lineage import CompletedAction, ForkPlace
from bridle.values.message import ToolResult
from bridle.values.record import Record
from bridle.values.request import ToolSpec

MESSAGE_ID = re.compile(r"m([1-9]\d{0,17})")
# not from outside: an argument of the user's program
DIGITS_MAX = 18
"""Longer numbers are no record of any log, and Python refuses to read very long ones."""


class ForkPoint(NamedTuple):
    at: int
    requested_at: int
    state: State
    """State after the records before the point."""
    completed_actions: tuple[CompletedAction, ...] = ()
    """Actions completed after the point."""

    @property
    def message(self) -> str:
        """Id of the last message before the point."""
        messages = self.state.conversation.transcript.messages
        return messages[-1].id if messages else ""


def find_fork_point(session: str, records: Sequence[Record], at: ForkPlace) -> ForkPoint:
    """Fork point for a requested place; raises `MisuseError` if there is no such place."""
    requested = _record_number(session, len(records), at)
    message = _message_number(session, at)
    found = ForkPoint(0, 0, State()) if requested == 0 else None
    actions: dict[str, CompletedAction] = {}
    before = State()
    for record, state in iterate_states(records):
        if requested is None and message is not None:
            requested = _record_after_message(records, record, state, message)
        if found is not None:
            _track_action(actions, record.event, before)
        elif requested is not None and record.seq >= requested and not has_calls_to_keep(state):
            found = ForkPoint(record.seq, requested, state)
        before = state
    if found is None and requested is not None:
        found = ForkPoint(len(records), requested, before)
    if found is None:
        count = len(before.conversation.transcript.messages)
        raise MisuseError(
            f"session {session!r} has {count} messages and no {at}; `bridle show {session} --as log` lists them"
        )
    return found._replace(state=settle_conversation(found.state), completed_actions=tuple(actions.values()))


def _record_number(session: str, length: int, at: ForkPlace) -> int | None:
    """Record number, if the place is one; None if it is a message."""
    if at is None:
        return length
    if isinstance(at, str) and not at.strip().isdecimal():
        return None
    if isinstance(at, str) and len(at.strip()) > DIGITS_MAX:
        raise MisuseError(f"session {session!r} has {length} records and none of a number so long")
    number = int(at)
    if not 0 <= number <= length:
        raise MisuseError(f"session {session!r} has {length} records: it cannot be forked at {number}")
    return number


def _message_number(session: str, at: ForkPlace) -> int | None:
    if not isinstance(at, str) or at.strip().isdecimal():
        return None
    found = MESSAGE_ID.fullmatch(at.strip())
    if found is None:
        raise MisuseError(
            f"{at!r} is not a position in a session: give a message (m4) or a record (12);"
            f" `bridle show {session} --as log` lists them"
        )
    return int(found[1])


def _record_after_message(
    records: Sequence[Record], record: Record, state: State, message: int
) -> int | None:
    """Record after that message; None if it is not part of the state yet."""
    count = len(state.conversation.transcript.messages)
    if count < message:
        return None
    if count > message and isinstance(record.event, e.Imported):
        raise MisuseError(f"m{message} is part of an imported history; fork at m{count} or before m1")
    following = records[record.seq].event if record.seq < len(records) else None
    ends = (
        isinstance(following, e.RunEnded)
        and not state.calls.batch.pending
        and not following.partial_text.strip()
    )
    return record.seq + 1 if ends else record.seq


def _track_action(actions: dict[str, CompletedAction], event: e.Event, before: State) -> None:
    """Update the completed actions with an event; an undone action is removed."""
    if isinstance(event, e.ToolFinished):
        item = next(
            (item for item in before.calls.batch.pending if item.call.id == event.result.call_id), None
        )
        action = (
            _make_action(item, before.settings.find_tool(item.call.name), event.result)
            if item is not None
            else None
        )
        if action is not None:
            actions[action.call_id] = action
    elif isinstance(event, e.CompensationFinished) and not event.result.is_error:
        actions.pop(event.call_id, None)


def _make_action(item: PendingCall, spec: ToolSpec | None, result: ToolResult) -> CompletedAction | None:
    has_no_effect = item.attempt == 0 or spec is None or spec.effect == "read"
    if has_no_effect or result.outcome not in ("ok", "error", "retry", "timeout", "unknown"):
        return None
    return CompletedAction(
        call_id=item.call.id, tool=item.call.name, arguments=item.arguments, outcome=result.outcome
    )
