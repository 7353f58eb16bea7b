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

from ..values import event as e
from ..values.errors import MisuseError
from ..values.lineage import Act, Place
from ..values.parts import ToolResult
from ..values.record import Record
from ..values.request import ToolSpec
from .forking import cuts_calls, spec_of
from .mending import states
from .opencall import OpenCall
from .state import State

MESSAGE = re.compile(r"m([1-9]\d*)")


class Cut(NamedTuple):
    at: int
    wanted: int
    state: State
    """What the records before it add up to."""
    kept: tuple[Act, ...] = ()
    """What was done behind it."""

    @property
    def message(self) -> str:
        """The last message before it."""
        return self.state.transcript.messages[-1].id if self.state.transcript.messages else ""


def cut(session: str, records: Sequence[Record], at: Place) -> Cut:
    """Where to leave that line; raises `MisuseError` when it has no such place."""
    wanted = _number(session, len(records), at)
    message = _message(session, at)
    found = Cut(0, 0, State()) if wanted == 0 else None
    done: dict[str, Act] = {}
    before = State()
    for record, state in states(records):
        if wanted is None and message is not None:
            wanted = _behind_message(records, record, state, message)
        if found is not None:
            _note_done(done, record.event, before)
        elif wanted is not None and record.seq >= wanted and not cuts_calls(state):
            found = Cut(record.seq, wanted, state)
        before = state
    if found is None and wanted is not None:
        found = Cut(len(records), wanted, before)
    if found is None:
        told = len(before.transcript.messages)
        raise MisuseError(
            f"session {session!r} has {told} messages and no {at}; `bridle log {session}` lists them"
        )
    return found._replace(kept=tuple(done.values()))


def _number(session: str, length: int, at: Place) -> int | None:
    """The record, when it is named by its number; None when a message is named."""
    if at is None:
        return length
    if isinstance(at, str) and not at.strip().isdecimal():
        return None
    number = int(at)
    if not 0 <= number <= length:
        raise MisuseError(f"session {session!r} has {length} records: it cannot be forked at {number}")
    return number


def _message(session: str, at: Place) -> int | None:
    if not isinstance(at, str) or at.strip().isdecimal():
        return None
    found = MESSAGE.fullmatch(at.strip())
    if found is None:
        raise MisuseError(
            f"{at!r} is no place in a session: name a message (m4) or a record (12);"
            f" `bridle log {session}` lists them"
        )
    return int(found[1])


def _behind_message(records: Sequence[Record], record: Record, state: State, message: int) -> int | None:
    """The place behind that message, once it has been said."""
    count = len(state.transcript.messages)
    if count < message:
        return None
    if count > message and isinstance(record.event, e.Imported):
        raise MisuseError(
            f"m{message} came with others, as a history from elsewhere; fork at m{count} or before m1"
        )
    following = records[record.seq].event if record.seq < len(records) else None
    ends = isinstance(following, e.RunEnded) and not state.calls and not following.partial.strip()
    return record.seq + 1 if ends else record.seq


def _note_done(done: dict[str, Act], event: e.Event, before: State) -> None:
    """What was done to the world, until it is undone."""
    if isinstance(event, e.ToolFinished):
        item = next((item for item in before.calls if item.call.id == event.result.call_id), None)
        act = _act(item, spec_of(before, item), event.result) if item is not None else None
        if act is not None:
            done[act.call_id] = act
    elif isinstance(event, e.CompensationFinished) and not event.result.is_error:
        done.pop(event.call_id, None)


def _act(item: OpenCall, spec: ToolSpec | None, result: ToolResult) -> Act | None:
    harmless = item.attempt == 0 or spec is None or spec.effect == "read"
    if harmless or result.outcome not in ("ok", "error", "timeout", "unknown"):
        return None
    return Act(call_id=item.call.id, tool=item.call.name, arguments=item.arguments, outcome=result.outcome)
