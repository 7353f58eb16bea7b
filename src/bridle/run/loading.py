"""A session's log, read whatever became of it.

Three things can be wrong with a log, and only the last one stops a session:

    it says what we do not understand     read by the rules of core/mending.py, and written down
    its end is missing                    read up to there; the next record gives up what was lost
    a record is not what was written      `Corrupt`: nothing is built on it unasked; `fork_session`
                                          (lineage.py) goes on from the last record that is proved
"""

from typing import NamedTuple

from ..core.mending import fold
from ..core.state import State
from ..ports.store import Mending, Store
from ..values.errors import Corrupt
from ..values.record import GENESIS, Record


class Log(NamedTuple):
    state: State = State()
    length: int = 0
    head: str = GENESIS
    repairs: tuple[str, ...] = ()
    """What nobody has written down yet of what had to be put right."""
    torn: bool = False


WHOLE = Log()


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
