"""Reads a session's log, even if it is damaged.

Three things can be wrong with a log, and only the last one stops a session:

    an event is invalid or unknown     read by the rules of core/recovery/log_repair.py, and recorded
    the end is missing                 read up to there; the next record replaces what was lost
    a record was changed               `Corrupt`; `fork_session` (lineage.py) can continue from the last
                                       intact record
"""

import asyncio
import concurrent.futures
import os
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import NamedTuple, TypeVar

from bridle.core.calls.orphaned import list_doubts
from bridle.core.recovery.log_repair import FoldedLog, apply_records, fold_log
from bridle.core.state import Phase, State
from bridle.ports.store import RepairableStore, SnapshotStore, Store, supports
from bridle.stores.chain import list_redactions
from bridle.values.calls import ContentRedacted, redaction_key
from bridle.values.errors import Corrupt, MissingBlob, SessionNotFound
from bridle.values.events import Event, LogRepaired, Prompted, Resumed
from bridle.values.record import GENESIS, Record

from .snapshots import SNAPSHOT_RECORDS, LoadedRecords

T = TypeVar("T")


class SessionLog(NamedTuple):
    state: State = State()
    length: int = 0
    head: str = GENESIS
    repairs: tuple[str, ...] = ()
    """Repairs that the log does not record yet."""
    is_torn: bool = False
    redactions: tuple[ContentRedacted, ...] = ()
    """Redactions of shared records that the log does not record yet."""

    def list_repairs(self) -> list[Event]:
        """The events that the log lacks, to be recorded before anything else."""
        repaired = LogRepaired(items=self.repairs, records_lost=self.is_torn)
        return [*([repaired] if self.repairs else []), *self.redactions]


SESSIONS_MAX = 1_000_000
FOLDS_MAX = 4
"""Long logs that are folded at the same time."""
LONG_LOG_RECORDS = 2_000
"""A longer log is folded in a thread, so that the event loop serves other sessions meanwhile."""

EMPTY_LOG = SessionLog()


async def fold_records(
    records: Sequence[Record], observe: Callable[[Record, State, State], None] | None = None
) -> FoldedLog:
    """Fold a log that is in memory; `observe` may be called in a thread."""
    if len(records) <= LONG_LOG_RECORDS:
        return fold_log(records, observe)
    return await _run_in_fold_thread(partial(fold_log, records, observe))


async def _run_in_fold_thread(work: Callable[[], T]) -> T:
    """Run pure work in threads of its own: tools that hang can occupy every thread of a pool that they share."""
    return await asyncio.get_running_loop().run_in_executor(_fold_threads(os.getpid()), work)


@cache
def _fold_threads(process: int) -> concurrent.futures.ThreadPoolExecutor:
    """The threads of this process; a fork has none of its parent's."""
    return concurrent.futures.ThreadPoolExecutor(FOLDS_MAX, "bridle-fold")


async def load_log(
    store: Store,
    session: str,
    observe: Callable[[Record, State, State], None] | None = None,
    *,
    keeps_snapshot: bool = False,
) -> SessionLog:
    """Read and fold a log; raises `Corrupt` if a record was changed.

    `observe` is shown every record; without it, a long log is read from its snapshot. `keeps_snapshot` writes the next
    one after many records.
    """
    loaded, torn = LoadedRecords(), ""
    try:
        await loaded.read(store, session, uses_snapshot=observe is None)
    except Corrupt as error:
        if not error.torn or not supports(store, RepairableStore):
            raise
        loaded.records, torn = await store.read_intact(session), str(error)
    reader, records = loaded.reader, loaded.records
    if observe is None and len(records) > LONG_LOG_RECORDS:
        await _run_in_fold_thread(partial(apply_records, reader, records))
    else:
        apply_records(reader, records, observe)
    redactions = tuple(await find_inherited_redactions(store, session, records))
    is_whole = not torn and not redactions
    if keeps_snapshot and is_whole and len(records) >= SNAPSHOT_RECORDS and supports(store, SnapshotStore):
        snapshot = loaded.make_snapshot()
        if snapshot is not None:
            await store.write_snapshot(session, snapshot)
    reader.continue_numbering()
    head = records[-1].hash if records else loaded.head
    repairs = (*reader.repairs, torn) if torn else tuple(reader.repairs)
    return SessionLog(reader.state, loaded.covered + len(records), head, repairs, bool(torn), redactions)


async def find_inherited_redactions(
    store: Store, session: str, records: Sequence[Record]
) -> list[ContentRedacted]:
    """Redactions of records that a fork shares, which only the logs that it was forked from record.

    `fork_session` repeats them in the fork; `Store.fork` alone does not.
    """
    unproved = list_unproved_records(records)
    own = list_redactions(records) if unproved else {}
    found = list_redactions(reversed(await find_inherited_evidence(store, session, unproved)))
    return [event for key, event in found.items() if isinstance(event, ContentRedacted) and key not in own]


def list_unproved_records(records: Sequence[Record]) -> list[Record]:
    """Redacted records whose redaction the same log does not record."""
    redacted = [record for record in records if record.is_redacted]
    own = list_redactions(records) if redacted else {}
    return [each for each in redacted if redaction_key(each.seq, each.data) not in own]


async def find_inherited_evidence(store: Store, session: str, unproved: Sequence[Record]) -> list[Record]:
    """Records of the logs that a session was forked from, which record the redactions of these shared records.

    Those of the nearest log come first.
    """
    hashes = {record.hash for record in unproved}
    found: list[Record] = []
    if hashes:
        parents = {info.id: info.parent for info in await store.sessions(limit=SESSIONS_MAX)}
        while session := parents.pop(session, ""):
            found += [
                each
                for each in await store.read(session)
                if isinstance(each.event, ContentRedacted) and each.event.record_hash in hashes
            ]
    return found


async def has_engine(store: Store, session: str, state: State) -> bool:
    """True if an engine has the run: it began or resumed it, and no other process has taken it over since."""
    if state.run.end.stop != "paused" and state.phase in (Phase.NEW, Phase.IDLE):
        return False
    is_engines = False
    for record in await store.read(session):
        match record.event:
            case Prompted(engine=engine):
                is_engines = engine
            case Resumed(engine=engine, took_over=took_over):
                is_engines = engine or (is_engines and not took_over)
    return is_engines


class WriteEpoch:
    """Epoch of the lease that an operation on a session holds. All its drivers share it and write under it."""

    __slots__ = ("epoch", "taken_subruns", "took_over")

    def __init__(self) -> None:
        self.epoch: int | None = None
        self.took_over = False
        self.taken_subruns: set[str] = set()
        """Sessions of runs inside its tools that were taken over with it."""

    def revoke(self) -> None:
        """Refuse all further writes: another process has the run."""
        self.epoch = -1

    @property
    def was_taken_over(self) -> bool:
        """True if the session was ever taken over."""
        return bool(self.epoch)


async def take_over_subruns(store: Store, state: State, epoch: int, taken: set[str]) -> None:
    """Raise the epochs of all runs inside the open calls of a run, at any depth, so that their old process is refused.

    A call that was started under the given epoch, the present one, was started after all this.  A takeover that died
    before it came so far is completed.  Sessions that are not in this store are left out: they are taken over when
    their call runs again.
    """
    pending = state.calls.batch.pending
    left_calls = {item.call.id for item in pending if item.result is None and item.epoch not in (None, epoch)}
    known = set(taken)
    for session in (each.session for each in state.run.budget.subruns if each.call_id in left_calls):
        if session in known:
            continue
        try:
            async with store.lease(session, take_over=True) as lease:
                taken.add(session)
            inner = (await load_log(store, session)).state
        except (SessionNotFound, Corrupt):
            continue
        known.update(each.session for each in inner.run.budget.subruns)  # their spending is charged here too
        await take_over_subruns(store, inner, lease.epoch, taken)


async def find_doubts(store: Store, state: State) -> tuple[str, ...]:
    """The calls that the end of a run leaves in doubt; reads the logs of runs inside them, at any depth."""
    pending = state.calls.batch.pending
    started = {item.call.id for item in pending if item.result is None and item.attempt}
    nested: set[str] = set()
    for subrun in state.run.budget.subruns:
        if subrun.call_id not in started - nested:
            continue
        try:
            inner = (await load_log(store, subrun.session)).state
        except (SessionNotFound, Corrupt):
            continue
        if await find_doubts(store, inner):
            nested.add(subrun.call_id)
    return list_doubts(state, nested)


async def read_intact_records(store: Store, session: str) -> Sequence[Record]:
    """The records of a session, without a torn end; raises `Corrupt` if a record was changed."""
    try:
        return await store.read(session)
    except Corrupt as error:
        if not error.torn or not supports(store, RepairableStore):
            raise
        return await store.read_intact(session)


async def append_record(
    store: Store,
    session: str,
    record: Record,
    *,
    torn: bool,
    epoch: int | None = None,
    blobs: dict[str, bytes] | None = None,
) -> None:
    """Append a record. `blobs` were put for it: a redaction elsewhere may have removed an equal one since."""
    if torn and supports(store, RepairableStore):
        await store.repair(session, record, epoch=epoch)
        return
    blobs = blobs or {}
    put = [hash_ for hash_ in record.event.required_blobs if hash_ in blobs] if blobs else []
    try:
        await store.append(session, record.seq - 1, (record,), epoch=epoch)
    except MissingBlob:
        if not put:
            raise
        for hash_ in put:
            await store.put_blob(blobs[hash_])
        await store.append(session, record.seq - 1, (record,), epoch=epoch)
    for hash_ in put:
        blobs.pop(hash_, None)
