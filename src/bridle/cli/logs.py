"""Logs as the commands read them: a session's records, folded into what they add up to."""

from collections.abc import Sequence
from datetime import UTC, datetime

from ..core.loop import apply
from ..core.state import State
from ..ports.store import Store
from ..values.errors import SessionNotFound
from ..values.event import Prompted
from ..values.parts import Text
from ..values.record import Record


async def read_session(store: Store, session: str) -> Sequence[Record]:
    records = await store.read(session)
    if not records:
        raise SessionNotFound(f"there is no session {session!r} here; `bridle sessions` lists them")
    return records


def fold(records: Sequence[Record]) -> State:
    state = State()
    for record in records:
        state = apply(state, record.event, record.at, record.hash)
    return state


def first_words(records: Sequence[Record]) -> str:
    for record in records:
        if isinstance(record.event, Prompted):
            return " ".join(part.text for part in record.event.parts if isinstance(part, Text))
    return ""


def local_time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def ending(state: State) -> str:
    """How the last run ended, or that it did not."""
    return state.run.stop or ("new" if not state.transcript.messages else "unfinished")
