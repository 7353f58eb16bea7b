"""Logs as the commands read them: a session's records, folded into what they add up to."""

from collections.abc import Sequence
from datetime import UTC, datetime

from ..core import mending
from ..core.state import State
from ..ports.store import Mending, Store
from ..values.errors import Corrupt, SessionNotFound
from ..values.event import Prompted
from ..values.parts import Text
from ..values.record import Record


async def read_session(store: Store, session: str) -> Sequence[Record]:
    """Its records; of one whose end was torn off, those that are left."""
    try:
        records = await store.read(session)
    except Corrupt as error:
        if not error.torn or not isinstance(store, Mending):
            raise
        records = await store.whole(session)
    if not records:
        raise SessionNotFound(f"there is no session {session!r} here; `bridle sessions` lists them")
    return records


def fold(records: Sequence[Record]) -> State:
    return mending.fold(records).state


def first_words(records: Sequence[Record]) -> str:
    for record in records:
        if isinstance(record.event, Prompted):
            return " ".join(part.text for part in record.event.parts if isinstance(part, Text))
    return ""


def local_time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
