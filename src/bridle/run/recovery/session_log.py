"""A session's log, read whatever became of it.

Three things can be wrong with a log, and only the last one stops a session:

    it says what we do not understand     read by the rules of core/recovery/log_repair.py, and written down
    its end is missing                    read up to there; the next record gives up what was lost
    a record is not what was written      `Corrupt`: nothing is built on it unasked; `fork_session`
                                          (lineage.py) goes on from the last record that is proved
"""

from typing import NamedTuple

from bridle.core.recovery.log_repair import fold_log
from bridle.core.state import State
from bridle.ports.store import RepairableStore, Store
from bridle.values.errors import Corrupt
from bridle.values.record import GENESIS, Record


class SessionLog(NamedTuple):
    state: State = State()
    length: int = 0
    head: str = GENESIS
    repairs: tuple[str, ...] = ()
    """What nobody has written down yet of what had to be put right."""
    is_torn: bool = False


EMPTY_LOG = SessionLog()


async def load_log(store: Store, session: str) -> SessionLog:
    """Raises `Corrupt` when the log cannot be trusted."""
    torn = ""
    try:
        records = await store.read(session)
    except Corrupt as error:
        if not error.torn or not isinstance(store, RepairableStore):
            raise
        records, torn = await store.read_intact(session), str(error)
    state, repairs = fold_log(records)
    head = records[-1].hash if records else GENESIS
    return SessionLog(state, len(records), head, (*repairs, torn) if torn else repairs, bool(torn))


async def append_record(store: Store, session: str, record: Record, *, torn: bool) -> None:
    if torn and isinstance(store, RepairableStore):
        await store.repair(session, record)
    else:
        await store.append(session, record.seq - 1, (record,))
