"""Store that keeps all logs in one SQLite file, with the standard library alone.

An append is acknowledged when it is on disk: write-ahead log with full synchronisation. One writer thread
commits all waiting appends in one transaction, so a hundred sessions share one fsync.

  - A job that is refused before it wrote anything does not affect the others of its group. If one is refused
    later, or the transaction of the group fails, each job is retried alone.
  - Transactions begin IMMEDIATE. A transaction that reads first and then writes is refused at once if
    another process wrote in between, whatever the timeout.
  - A fork is one row. Its records are read by walking up its parents.
  - Reads have their own thread and connection, never wait for a writer, and verify every record's hash
    and its position in the chain. Those that wait together share a transaction.

The store does not interpret events; it only enforces their unique keys.
"""

import asyncio
import os
import sqlite3
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import TypeVar

from bridle.ports.store import Lease, RestoreSnapshot, SessionInfo, StoredSnapshot, UnusedBlob
from bridle.stores.anchors import Anchor, AnchorFile, find_anchor_file
from bridle.stores.conflicts import check_batch, check_restart, check_session_name, explain_snapshot_removal
from bridle.stores.live_text import remove_live_text
from bridle.stores.locks import HeldLease, LockFileCheck, is_lease_held, lock_all_sessions
from bridle.values.errors import BridleError
from bridle.values.record import Record

from . import maintenance, rows, snapshots
from .connection import DatabaseConnection, DatabaseFiles
from .database_file import LOCK_MILLISECONDS, POLL_MILLISECONDS, find_file, prepare_file
from .leftovers import note_closed_store, note_open_store
from .live import LiveFiles
from .redaction import redact_record, truncate_write_ahead_log
from .servers import ServerFiles
from .watching import RecordWaiters
from .worker import Job, Worker

T = TypeVar("T")


class SqliteStore:
    """Store in one SQLite file, created if absent. Safe to use from several event loops and threads."""

    def __init__(
        self, path: str | os.PathLike[str], *, anchors: str | os.PathLike[str] | None = None
    ) -> None:
        """`anchors` is the file, or the folder of files, that heads are written to: see stores/anchors.py."""
        # Symbolic links are resolved once, here: the lock file is beside the database itself.
        self.path = find_file(Path(path))
        prepare_file(self.path)
        note_open_store(self.path, self)
        anchor_file = find_anchor_file(self.path, anchors)
        self._anchors = AnchorFile(anchor_file) if anchor_file is not None else None
        if self._anchors is not None:
            weakref.finalize(self, self._anchors.close).atexit = False
        files = DatabaseFiles(self.path)
        writing = DatabaseConnection(files, POLL_MILLISECONDS)
        reading = DatabaseConnection(files, LOCK_MILLISECONDS)
        self._live = LiveFiles(self.path)
        self._servers = ServerFiles(self.path)
        self._lock_file = self.path.with_name(self.path.name + "-held")
        self._lock_check = LockFileCheck(str(self.path), self._lock_file)
        self._writer = Worker(
            "bridle-store-writer", partial(_write_group, writing, self._lock_check), writing.drop
        )
        self._waiters = RecordWaiters(reading)
        self._reader = Worker(
            "bridle-store-reader", partial(_read_group, reading), self._waiters.close, self._waiters.poll
        )
        for worker in (self._writer, self._reader):
            weakref.finalize(self, worker.stop).atexit = False

    async def append(
        self, session: str, after: int, records: Sequence[Record], *, epoch: int | None = None
    ) -> None:
        """Append records. After a cancellation, only reading tells if they were stored."""
        if not records:
            return
        check_session_name(session)
        names = check_batch(session, after, records)
        write = partial(rows.insert_records, session, after, records, names, epoch)
        await self._writer.write(write if epoch is None else self._check_lease(session, epoch, write))
        if self._anchors is not None:
            self._anchors.write_heads(session, records)

    def _check_lease(
        self, session: str, epoch: int, write: Callable[[sqlite3.Connection], None]
    ) -> Callable[[sqlite3.Connection], None]:
        """Return the job that writes under a lease, in the transaction that no other process can write beside."""
        return partial(_write_leased, self._lock_check, Lease(session=session, epoch=epoch), write)

    async def read(self, session: str, after: int = 0, limit: int | None = None) -> Sequence[Record]:
        check_session_name(session)
        return await self._reader.run(partial(rows.select_records, session, max(after, 0), limit=limit))

    async def read_with_snapshot(
        self, session: str, restore: RestoreSnapshot[T]
    ) -> tuple[T | None, Sequence[Record]]:
        check_session_name(session)
        return await self._reader.run(partial(snapshots.select_with_snapshot, session, restore))

    async def write_snapshot(self, session: str, snapshot: StoredSnapshot) -> None:
        check_session_name(session)
        await self._writer.write(partial(snapshots.insert_snapshot, session, snapshot))

    def explain_snapshot_removal(self, session: str) -> str:
        return explain_snapshot_removal("", session)

    async def read_intact(self, session: str) -> Sequence[Record]:
        check_session_name(session)
        return await self._reader.run(partial(rows.select_intact_records, session))

    async def repair(self, session: str, record: Record, *, epoch: int | None = None) -> None:
        check_session_name(session)
        write = partial(rows.repair_tail, session, record, epoch)
        await self._writer.write(write if epoch is None else self._check_lease(session, epoch, write))

    async def restart(self, session: str, head: str, record: Record) -> None:
        check_restart(session, record)
        await self._writer.write(partial(rows.restart_log, session, head, record))

    async def redact(
        self, session: str, seq: int, data: bytes, evidence: Mapping[str, Record], blobs: Sequence[str] = ()
    ) -> None:
        check_session_name(session)
        await self._writer.write(partial(redact_record, session, seq, data, evidence, blobs))
        if self._anchors is not None:
            for name, record in evidence.items():
                self._anchors.write_heads(name, (record,))
        await asyncio.to_thread(truncate_write_ahead_log, self.path)
        await remove_live_text(self, session)

    async def fork(self, session: str, at: int, new: str) -> None:
        check_session_name(session)
        check_session_name(new)
        await self._writer.write(partial(rows.insert_fork, session, at, new))

    async def put_blob(self, data: bytes) -> str:
        return await self._writer.write(partial(rows.insert_blob, bytes(data)))

    async def get_blob(self, hash_: str) -> bytes | None:
        return await self._reader.run(partial(rows.select_blob, hash_))

    @property
    def anchor_file(self) -> Path | None:
        return self._anchors.path if self._anchors is not None else None

    def lease(self, session: str, *, take_over: bool = False) -> AbstractAsyncContextManager[Lease]:
        check_session_name(session)
        return HeldLease(self, str(self.path), session, self._lock_file, take_over=take_over)

    async def is_leased(self, session: str) -> bool:
        lease = Lease(session=session, epoch=await self.read_epoch(session))
        return is_lease_held(str(self.path), lease, self._lock_file)

    async def announce_server(self, server: str) -> Collection[str]:
        return self._servers.announce(server)

    async def withdraw_server(self, server: str) -> None:
        self._servers.withdraw(server)

    async def read_epoch(self, session: str) -> int:
        return await self._reader.run(partial(rows.select_epoch, session))

    async def raise_epoch(self, session: str, epoch: int) -> None:
        await self._writer.write(partial(rows.raise_epoch, session, epoch))

    async def wait_for_records(self, session: str, after: int) -> None:
        check_session_name(session)
        future = asyncio.get_running_loop().create_future()
        try:
            await self._reader.run(partial(self._waiters.add, session, after, future))
            await future
        finally:
            future.cancel()  # a waiter that was given up is removed at the next look

    async def publish_live(self, session: str, data: bytes) -> bool:
        return self._live.publish(session, data)

    async def read_live(self, session: str) -> bytes:
        return self._live.read(session)

    async def sessions(self, limit: int = 50) -> Sequence[SessionInfo]:
        return await self._reader.run(partial(rows.select_sessions, max(limit, 0)))

    async def check_file(self) -> Sequence[str]:
        """List what is wrong with the file as a whole; reading a session verifies its records."""
        return await self._reader.run(maintenance.check_file)

    async def remove_session(self, session: str, head: str, *, at: float, reason: str) -> None:
        """Remove a session, in one atomic step, and record that in the file and in the anchors."""
        check_session_name(session)
        await self._writer.write(partial(maintenance.delete_session, session, head, at, reason))
        if self._anchors is not None:
            self._anchors.write(Anchor(session=session, seq=0, head=head, at=at, removed=True))
        await remove_live_text(self, session)

    async def remove_unused_blobs(self, *, dry_run: bool) -> Sequence[UnusedBlob]:
        """Remove the blobs that no record mentions; a dry run only lists them. `Conflict` while a run works."""
        if dry_run:
            return await self._reader.run(maintenance.find_unused_blobs)
        # A run puts a blob before the record that refers to it.
        with lock_all_sessions(str(self.path), self._lock_file):
            return await self._writer.write(maintenance.delete_unused_blobs)

    async def shrink_file(self) -> None:
        """Give unused space back to the disk."""
        await asyncio.to_thread(maintenance.shrink_file, self.path)

    async def back_up(self, target: Path) -> None:
        """Copy the store to a new file while it is in use."""
        await asyncio.to_thread(maintenance.copy_file, self.path, target)

    async def close(self) -> None:
        """Finish pending jobs, then close. After the last close the store is a single file again."""
        # One after the other: if both connections close together, each sees the other as open, and neither
        # merges the write-ahead log into the database.
        for worker in (self._reader, self._writer):
            worker.stop()
            await asyncio.to_thread(worker.join)
        self._servers.close()
        note_closed_store(self.path, self)
        if self._anchors is not None:
            self._anchors.close()


def _write_leased(
    lock_check: LockFileCheck,
    lease: Lease,
    write: Callable[[sqlite3.Connection], None],
    db: sqlite3.Connection,
) -> None:
    lock_check.check(lease)
    write(db)


def _write_group(connection: DatabaseConnection, lock_check: LockFileCheck, jobs: Sequence[Job]) -> None:
    """Commit all jobs in one transaction; if that fails, one transaction each."""
    connection.begin("BEGIN IMMEDIATE")
    lock_check.look()
    try:
        _commit_group(connection, jobs)
    except Exception as error:  # noqa: BLE001 - not swallowed: the caller it belongs to gets it
        if len(jobs) == 1:
            jobs[0].error = error
        else:
            _write_each(connection, lock_check, jobs)


def _write_each(connection: DatabaseConnection, lock_check: LockFileCheck, jobs: Sequence[Job]) -> None:
    for place, job in enumerate(jobs):
        job.value = job.error = None
        try:
            _write_group(connection, lock_check, [job])
        except BridleError as error:
            # The transaction could not begin, perhaps after a long wait; the other jobs would fail as well.
            for waiting in jobs[place:]:
                waiting.error = error
            return


def _commit_group(connection: DatabaseConnection, jobs: Sequence[Job]) -> None:
    with connection.transaction() as db:
        for job in jobs:
            changes = db.total_changes
            try:
                job.value = job.ask(db)
            except BridleError as error:
                if db.total_changes != changes:
                    raise  # after a part of it was written: rolled back with the group, and each job is tried alone
                job.error = error


def _read_group(connection: DatabaseConnection, jobs: Sequence[Job]) -> None:
    """Run all jobs in one transaction; if one of them fails, in one transaction each."""
    try:
        connection.begin("BEGIN")
        with connection.transaction() as db:
            for job in jobs:
                job.value = job.ask(db)
    except Exception as error:  # noqa: BLE001 - not swallowed: the caller it belongs to gets it
        if len(jobs) == 1:
            jobs[0].error = error
            return
        for job in jobs:
            _read_group(connection, [job])
