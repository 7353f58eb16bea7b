"""Logs as the commands read them: a session's records, folded into what they add up to."""

from collections.abc import Sequence
from datetime import UTC, datetime

from ..core import mending
from ..core.state import State
from ..ports.store import Mending, SessionInfo, Store
from ..run.given import check_session
from ..run.tenancy import check_tenant
from ..values.errors import Corrupt, SessionNotFound
from ..values.event import Prompted
from ..values.memory import NOTES_PREFIX
from ..values.parts import Text
from ..values.pooled import LINE
from ..values.record import Record


async def read_session(store: Store, session: str, tenant: str | None = None) -> Sequence[Record]:
    """Its records; of one whose end was torn off, those that are left.  For a `tenant`, only his."""
    check_session(session)
    try:
        records = await store.read(session)
    except Corrupt as error:
        if not error.torn or not isinstance(store, Mending):
            raise
        records = await store.whole(session)
    if not records:
        raise SessionNotFound(f"there is no session {session!r} here; `bridle sessions` lists them")
    if tenant is not None:
        check_tenant(session, fold(records), tenant)
    return records


def is_of_tenant(records: Sequence[Record], tenant: str | None) -> bool:
    """Whether a list for this tenant has the session in it; one that nobody prompted is nobody's."""
    return tenant is None or fold(records).owner == tenant


async def listed(store: Store, limit: int) -> list[SessionInfo]:
    """The sessions touched last; the lines of budgets and notes are none."""
    asked = limit
    while True:
        infos = await store.sessions(limit=asked)
        found = [info for info in infos if not info.id.startswith((LINE, NOTES_PREFIX))]
        if len(found) >= limit or len(infos) < asked:
            return found[: max(limit, 0)]
        asked *= 2


def fold(records: Sequence[Record]) -> State:
    return mending.fold(records).state


def first_words(records: Sequence[Record]) -> str:
    for record in records:
        if isinstance(record.event, Prompted):
            return " ".join(part.text for part in record.event.parts if isinstance(part, Text))
    return ""


def local_time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
