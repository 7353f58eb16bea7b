"""Reads a session's log, even if it is damaged.

Three things can be wrong with a log, and only the last one stops a session:

    an event is invalid or unknown     read by the rules of core/recovery/log_repair.py, and recorded
    the end is missing                 read up to there; the next record replaces what was lost
    a record was changed               `Corrupt`; `fork_session` (lineage.py) can continue from the last
                                       intact record
"""

from collections.abc import Callable
from typing import NamedTuple

from bridle.core.recovery.log_repair import fold_log
from bridle.core.state import State
from bridle.ports.store import RepairableStore, Store
from bridle.values.errors import Corrupt, SessionNotFound
from bridle.values.record import GENESIS, Record


class SessionLog(NamedTuple):
    state: State = State()
    length: int = 0
    head: str = GENESIS
    repairs: tuple[str, ...] = ()
    """Repairs that the log does not record yet."""
    is_torn: bool = False


EMPTY_LOG = SessionLog()


async def load_log(
    store: Store, session: str, observe: Callable[[Record, State, State], None] | None = None
) -> SessionLog:
    """Read and fold a log, shown to `observe`; raises `Corrupt` if a record was changed."""
    torn = ""
    try:
        records = await store.read(session)
    except Corrupt as error:
        if not error.torn or not isinstance(store, RepairableStore):
            raise
        records, torn = await store.read_intact(session), str(error)
    state, repairs = fold_log(records, observe)
    head = records[-1].hash if records else GENESIS
    return SessionLog(state, len(records), head, (*repairs, torn) if torn else repairs, bool(torn))


class WriteEpoch:
    """Epoch of the lease that an operation on a session holds. All its drivers share it and write under it."""

    __slots__ = ("epoch", "taken_subruns", "took_over")

    def __init__(self) -> None:
        self.epoch: int | None = None
        self.took_over = False
        self.taken_subruns: set[str] = set()
        """Sessions of runs inside its tools that were taken over with it."""


async def take_over_subruns(store: Store, state: State, taken: set[str]) -> None:
    """Raise the epochs of all runs inside the tools of a run, at any depth, so that their old process is refused.

    Those that are not in this store are left out: they are taken over when their call runs again.
    """
    for session in (subrun.session for subrun in state.run.budget.subruns):
        if session in taken:
            continue
        try:
            async with store.lease(session, take_over=True):
                taken.add(session)
            inner = (await load_log(store, session)).state
        except (SessionNotFound, Corrupt):
            continue
        await take_over_subruns(store, inner, taken)


async def append_record(
    store: Store, session: str, record: Record, *, torn: bool, epoch: int | None = None
) -> None:
    if torn and isinstance(store, RepairableStore):
        await store.repair(session, record, epoch=epoch)
    else:
        await store.append(session, record.seq - 1, (record,), epoch=epoch)
