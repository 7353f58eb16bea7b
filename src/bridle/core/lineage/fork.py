"""Where a session may be left for another one.

Rule 1: a message is a place, and so is a record.  Behind a message means: with all that belongs to it,
        the end of the run included when it was the answer.
Rule 2: a batch of calls that may change something is not cut in two.  What a call did is known in one line
        only, so a place inside such a batch means the place behind it.

What the new session makes of its beginning is in forking.py.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from bridle.core.calls.pending import PendingCall
from bridle.core.calls.transitions import find_tool_spec, has_calls_to_keep
from bridle.core.recovery.log_repair import iterate_states
from bridle.core.state import State
from bridle.values import events as e
from bridle.values.errors import MisuseError
from bridle.values.lineage import CompletedAction, ForkPlace
from bridle.values.message import ToolResult
from bridle.values.record import Record
from bridle.values.request import ToolSpec

MESSAGE_ID = re.compile(r"m([1-9]\d*)")


class ForkPoint(NamedTuple):
    at: int
    requested_at: int
    state: State
    """What the records before it add up to."""
    completed_actions: tuple[CompletedAction, ...] = ()
    """What was done behind it."""

    @property
    def message(self) -> str:
        """The last message before it."""
        return self.state.transcript.messages[-1].id if self.state.transcript.messages else ""


def find_fork_point(session: str, records: Sequence[Record], at: ForkPlace) -> ForkPoint:
    """Where to leave that line; raises `MisuseError` when it has no such place."""
    wanted = _record_number(session, len(records), at)
    message = _message_number(session, at)
    found = ForkPoint(0, 0, State()) if wanted == 0 else None
    done: dict[str, CompletedAction] = {}
    before = State()
    for record, state in iterate_states(records):
        if wanted is None and message is not None:
            wanted = _record_after_message(records, record, state, message)
        if found is not None:
            _track_action(done, record.event, before)
        elif wanted is not None and record.seq >= wanted and not has_calls_to_keep(state):
            found = ForkPoint(record.seq, wanted, state)
        before = state
    if found is None and wanted is not None:
        found = ForkPoint(len(records), wanted, before)
    if found is None:
        told = len(before.transcript.messages)
        raise MisuseError(
            f"session {session!r} has {told} messages and no {at}; `bridle log {session}` lists them"
        )
    return found._replace(completed_actions=tuple(done.values()))


def _record_number(session: str, length: int, at: ForkPlace) -> int | None:
    """The record, when it is named by its number; None when a message is named."""
    if at is None:
        return length
    if isinstance(at, str) and not at.strip().isdecimal():
        return None
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
            f"{at!r} is no place in a session: name a message (m4) or a record (12);"
            f" `bridle log {session}` lists them"
        )
    return int(found[1])


def _record_after_message(
    records: Sequence[Record], record: Record, state: State, message: int
) -> int | None:
    """The place behind that message, once it has been said."""
    count = len(state.transcript.messages)
    if count < message:
        return None
    if count > message and isinstance(record.event, e.Imported):
        raise MisuseError(
            f"m{message} came with others, as a history from elsewhere; fork at m{count} or before m1"
        )
    following = records[record.seq].event if record.seq < len(records) else None
    ends = (
        isinstance(following, e.RunEnded) and not state.pending_calls and not following.partial_text.strip()
    )
    return record.seq + 1 if ends else record.seq


def _track_action(done: dict[str, CompletedAction], event: e.Event, before: State) -> None:
    """What was done to the world, until it is undone."""
    if isinstance(event, e.ToolFinished):
        item = next((item for item in before.pending_calls if item.call.id == event.result.call_id), None)
        act = _make_action(item, find_tool_spec(before, item), event.result) if item is not None else None
        if act is not None:
            done[act.call_id] = act
    elif isinstance(event, e.CompensationFinished) and not event.result.is_error:
        done.pop(event.call_id, None)


def _make_action(item: PendingCall, spec: ToolSpec | None, result: ToolResult) -> CompletedAction | None:
    harmless = item.attempt == 0 or spec is None or spec.effect == "read"
    if harmless or result.outcome not in ("ok", "error", "timeout", "unknown"):
        return None
    return CompletedAction(
        call_id=item.call.id, tool=item.call.name, arguments=item.arguments, outcome=result.outcome
    )
