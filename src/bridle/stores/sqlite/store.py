"""Store that keeps all logs in one SQLite file, with the standard library alone.

An append is acknowledged when it is on disk: write-ahead log with full synchronisation. One writer thread
commits all waiting appends in one transaction, so a hundred sessions share one fsync.

  - The writer checks every job before it writes for it, so a conflict in one session does not affect
    the others of its group. If the transaction of a group fails anyway, each job is retried alone.
  - Transactions begin IMMEDIATE. A transaction that reads first and then writes is refused at once if
    another process wrote in between, whatever the timeout.
  - A fork is one row. Its records are read by walking up its parents.
  - Reads have their own thread and connection, never wait for a writer, and verify every record's hash
    and its position in the chain.

The store does not interpret events; it only enforces their unique keys.
"""

import asyncio
import os
import sqlite3
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

from bridle.ports.store import SessionInfo
from bridle.stores.conflicts import check_batch, check_restart, check_session_name
from bridle.stores.locks import Inode, find_inode, lease_session
from bridle.values.errors import BridleError, Unusable
from bridle.values.record import Record

from . import rows
from .database_file import (
    LOCK_MILLISECONDS,
    POLL_MILLISECONDS,
    explain_error,
    find_file,
    open_connection,
    prepare_file,
    retry_while_locked,
)
from .redaction import redact_record, truncate_write_ahead_log
from .worker import Job, Worker


class SqliteStore:
    """Store in one SQLite file, created if absent. Safe to use from several event loops and threads."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        # Symbolic links are resolved once, here: the lock file is beside the database itself.
        self.path = find_file(Path(path))
        prepare_file(self.path)
        files = _DatabaseFiles(self.path)
        writing = _Connection(files, POLL_MILLISECONDS)
        reading = _Connection(files, LOCK_MILLISECONDS)
        self._writer = Worker("bridle-store-writer", partial(_write_group, writing), writing.drop)
        self._reader = Worker("bridle-store-reader", partial(_read_group, reading), reading.drop)
        for worker in (self._writer, self._reader):
            weakref.finalize(self, worker.stop).atexit = False

    async def append(self, session: str, after: int, records: Sequence[Record]) -> None:
        """Append records. After a cancellation, only reading tells if they were stored."""
        if not records:
            return
        check_session_name(session)
        names = check_batch(session, after, records)
        await self._writer.run(partial(rows.insert_records, session, after, records, names))

    async def read(self, session: str, after: int = 0) -> Sequence[Record]:
        check_session_name(session)
        return await self._reader.run(partial(rows.select_records, session, max(after, 0)))

    async def read_intact(self, session: str) -> Sequence[Record]:
        check_session_name(session)
        return await self._reader.run(partial(rows.select_intact_records, session))

    async def repair(self, session: str, record: Record) -> None:
        check_session_name(session)
        await self._writer.run(partial(rows.repair_tail, session, record))

    async def restart(self, session: str, head: str, record: Record) -> None:
        check_restart(session, record)
        await self._writer.run(partial(rows.restart_log, session, head, record))

    async def redact(
        self, session: str, seq: int, data: bytes, evidence: Mapping[str, Record], blobs: Sequence[str] = ()
    ) -> None:
        check_session_name(session)
        await self._writer.run(partial(redact_record, session, seq, data, evidence, blobs))
        await asyncio.to_thread(truncate_write_ahead_log, self.path)

    async def fork(self, session: str, at: int, new: str) -> None:
        check_session_name(session)
        check_session_name(new)
        await self._writer.run(partial(rows.insert_fork, session, at, new))

    async def put_blob(self, data: bytes) -> str:
        return await self._writer.run(partial(rows.insert_blob, bytes(data)))

    async def get_blob(self, hash_: str) -> bytes | None:
        return await self._reader.run(partial(rows.select_blob, hash_))

    def lease(self, session: str) -> AbstractContextManager[None]:
        check_session_name(session)
        return lease_session(str(self.path), session, self.path.with_name(self.path.name + "-held"))

    async def sessions(self, limit: int = 50) -> Sequence[SessionInfo]:
        return await self._reader.run(partial(rows.select_sessions, max(limit, 0)))

    async def close(self) -> None:
        """Finish pending jobs, then close. After the last close the store is a single file again."""
        # One after the other: if both connections close together, each sees the other as open, and neither
        # merges the write-ahead log into the database.
        for worker in (self._reader, self._writer):
            worker.stop()
            await asyncio.to_thread(worker.join)


class _Connection:
    """A connection of one thread, opened on demand and reopened after an error."""

    def __init__(self, files: "_DatabaseFiles", busy_milliseconds: int) -> None:
        self.path = files.path
        self._files = files
        self._busy_milliseconds = busy_milliseconds
        self._db: sqlite3.Connection | None = None
        self._inodes: tuple[Inode | None, ...] | None = None

    def begin(self, statement: str) -> None:
        with self._translate_errors():
            self._files.check_usable()
            db = self._db or self._open()
            retry_while_locked(lambda: db.execute(statement))

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Commit what happens between `begin` and the end of this block; roll back on an exception."""
        with self._translate_errors():
            assert self._db is not None
            yield self._db
            self._db.execute("COMMIT")
            self._check_file_exists()

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            # Closing rolls back. After an error the old connection is not reused.
            self.drop()
            if isinstance(error, sqlite3.Error):
                raise explain_error(self.path, error) from error
            raise

    def drop(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = self._inodes = None

    def _open(self) -> sqlite3.Connection:
        self._db = open_connection(self.path, self._busy_milliseconds)
        # SQLite has opened all three files by now, and keeps them open until the last connection is closed.
        self._inodes = self._files.inodes()
        return self._db

    def _check_file_exists(self) -> None:
        """Raise `Unusable` if a file was removed: SQLite would keep writing to it."""
        found = self._files.inodes()
        if found == self._inodes and None not in found:
            return
        assert self._db is not None
        assert self._inodes is not None
        if found[0] != self._inodes[0]:
            raise Unusable(
                f"store {self.path}: the file was removed or replaced while in use; put it back and resume"
            )
        if found[1] is None:
            # No other process has opened the store since, or there would be a new -wal file. A checkpoint
            # saves the content that only the removed file holds.
            self._db.execute("PRAGMA wal_checkpoint(FULL)")
        raise self._files.mark_unusable()


class _DatabaseFiles:
    """The database and the -wal and -shm files that all its connections share.

    If one of the two is removed, open connections and new ones no longer see each other's writes. So this
    process stops using the store and closes every connection.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._beside = tuple(path.with_name(path.name + ending) for ending in ("-wal", "-shm"))
        self._unusable = False

    def inodes(self) -> tuple[Inode | None, ...]:
        return tuple(find_inode(path) for path in (self.path, *self._beside))

    def check_usable(self) -> None:
        if self._unusable:
            raise self.mark_unusable()

    def mark_unusable(self) -> Unusable:
        self._unusable = True
        return Unusable(
            f"store {self.path}: its -wal or -shm file was removed or replaced while in use, and what was "
            "written last may be lost; end every process that uses the store, then open it again"
        )


def _write_group(connection: _Connection, jobs: Sequence[Job]) -> None:
    """Commit all jobs in one transaction; if that fails, one transaction each."""
    connection.begin("BEGIN IMMEDIATE")
    try:
        _commit_group(connection, jobs)
    except Exception as error:  # noqa: BLE001 - not swallowed: the caller it belongs to gets it
        if len(jobs) == 1:
            jobs[0].error = error
        else:
            _write_each(connection, jobs)


def _write_each(connection: _Connection, jobs: Sequence[Job]) -> None:
    for place, job in enumerate(jobs):
        job.value = job.error = None
        try:
            _write_group(connection, [job])
        except BridleError as error:
            # The transaction could not begin, perhaps after a long wait; the other jobs would fail as well.
            for waiting in jobs[place:]:
                waiting.error = error
            return


def _commit_group(connection: _Connection, jobs: Sequence[Job]) -> None:
    with connection.transaction() as db:
        for job in jobs:
            try:
                job.value = job.ask(db)
            except BridleError as error:
                # Raised before anything was written for this job; the others continue.
                job.error = error


def _read_group(connection: _Connection, jobs: Sequence[Job]) -> None:
    for job in jobs:
        try:
            connection.begin("BEGIN")
            with connection.transaction() as db:
                job.value = job.ask(db)
        except Exception as error:  # noqa: BLE001 - not swallowed: its caller gets it
            job.error = error
