"""A session's log, read whatever became of it, and a way round the part that cannot be trusted.

Three things can be wrong with a log, and only the last one stops a session:

    it says what we do not understand     read by the rules of core/mending.py, and written down
    its end is missing                    read up to there; the next record gives up what was lost
    a record is not what was written      `Corrupt`: nothing is built on it unasked; `fork_session` goes on
                                          from the last record that is proved
"""

from typing import NamedTuple

from ..core.mending import fold
from ..core.state import State
from ..ports.clock import Clock
from ..ports.store import Mending, Store
from ..values.errors import Corrupt, SessionNotFound
from ..values.event import Repaired
from ..values.record import GENESIS, Record, seal
from .clock import SystemClock
from .identity import new_session


class Log(NamedTuple):
    state: State = State()
    length: int = 0
    head: str = GENESIS
    repairs: tuple[str, ...] = ()
    """What nobody has written down yet of what had to be put right."""
    torn: bool = False


WHOLE = Log()


class Fork(NamedTuple):
    session: str
    at: int
    """How many records it shares with the session it was forked from."""
    lost: str = ""
    """Why no more of them; empty when that was asked for."""


async def load(store: Store, session: str) -> Log:
    """Raises `Corrupt` when the log cannot be trusted."""
    torn = ""
    try:
        records = await store.read(session)
    except Corrupt as error:
        if not error.torn or not isinstance(store, Mending):
            raise
        records, torn = await store.whole(session), str(error)
    state, repairs = fold(records)
    head = records[-1].hash if records else GENESIS
    return Log(state, len(records), head, (*repairs, torn) if torn else repairs, bool(torn))


async def keep(store: Store, session: str, record: Record, *, torn: bool) -> None:
    if torn and isinstance(store, Mending):
        await store.mend(session, record)
    else:
        await store.append(session, record.seq - 1, (record,))


async def fork_session(
    store: Store, session: str, at: int | None = None, new: str | None = None, *, clock: Clock | None = None
) -> Fork:
    """A new session that shares the first `at` records; without a number, all that can be trusted.

    Where that is not all there is, the new one begins by saying so.
    """
    now = (clock or SystemClock()).now()
    lost = ""
    try:
        length = len(await store.read(session))
    except Corrupt as error:
        if error.last_good is None:
            raise
        length, lost = error.last_good, str(error)
    if not length and not lost:
        raise SessionNotFound(f"there is no session {session!r} to fork")
    place = length if at is None else at
    name = new or new_session(now)
    await store.fork(session, place, name)
    if not lost or (at is not None and at < length):
        return Fork(name, place)
    shared = await store.read(name)
    head = shared[-1].hash if shared else GENESIS
    told = f"forked from {session} at record {place}, the last that can be trusted: {lost}"
    await store.append(name, place, (seal(place + 1, now, Repaired(items=(told,), lost=True), head),))
    return Fork(name, place, lost)
