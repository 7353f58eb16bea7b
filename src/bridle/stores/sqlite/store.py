"""Logs kept in one SQLite file, with nothing but the standard library.

An append is acknowledged when it is on disk: write-ahead log, full synchronisation,
always.  What makes that affordable is one writer thread that commits everything
waiting for it in one transaction, so that a hundred sessions share one fsync.

  - The writer checks every job before it writes for it, so that a conflict in one
    session leaves the others of its group alone.  Should the group's transaction fail
    all the same, each job is tried alone and fails alone.
  - Transactions begin IMMEDIATE.  One that reads first and then wants to write is
    refused at once when another process wrote in between, whatever the timeout.
  - A fork is one row.  Its line is read by walking up its parents.
  - Reading has its own thread and connection, never waits for a writer, and checks
    every record's hash and its place in the chain.

It does not know what an event means, only what it is called if it may happen once.
"""

import asyncio
import os
import sqlite3
import weakref
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

from bridle.ports.store import SessionInfo
from bridle.stores.conflicts import check_batch, check_session_name
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
from .worker import Job, Worker


class SqliteStore:
    """May be used from any number of event loops and threads.  Opening makes the file if there is none."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        # Symbolic links are followed once, here: locks are kept beside the file itself.
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
        """When cancelled, the records may or may not be kept; reading tells."""
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
        """What was asked before is done first.  Closed everywhere, the store is one file again."""
        # One after the other: of two that leave together, each takes the other for still there,
        # and neither folds the write-ahead log back into the file.
        for worker in (self._reader, self._writer):
            worker.stop()
            await asyncio.to_thread(worker.join)


class _Connection:
    """A connection that is opened when needed, and anew after trouble.  Belongs to one thread."""

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
        """What happens between `begin` and here is kept when this ends well, and undone otherwise."""
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
            # Closing rolls back.  After trouble nothing about the old connection is worth trusting.
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
        # SQLite has opened all three by now, and keeps them until the last connection is closed.
        self._inodes = self._files.inodes()
        return self._db

    def _check_file_exists(self) -> None:
        """SQLite keeps writing to files that were removed: that must not be acknowledged."""
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
            # No other process has opened the store since, or there would be a new one: what only the
            # removed file holds can be saved.
            self._db.execute("PRAGMA wal_checkpoint(FULL)")
        raise self._files.mark_unusable()


class _DatabaseFiles:
    """The database and the two files beside it that all its connections share.

    When one of the two is removed, an open connection and a new one no longer see each other's
    writes.  So the store is given up in this process, and every connection is closed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._beside = tuple(path.with_name(path.name + ending) for ending in ("-wal", "-shm"))
        self._given_up = False

    def inodes(self) -> tuple[Inode | None, ...]:
        return tuple(find_inode(path) for path in (self.path, *self._beside))

    def check_usable(self) -> None:
        if self._given_up:
            raise self.mark_unusable()

    def mark_unusable(self) -> Unusable:
        self._given_up = True
        return Unusable(
            f"store {self.path}: its -wal or -shm file was removed or replaced while in use, and what was "
            "written last may be lost; end every process that uses the store, then open it again"
        )


def _write_group(link: _Connection, jobs: Sequence[Job]) -> None:
    """One commit for all; where that fails, one each, so that one session's trouble stays its own."""
    link.begin("BEGIN IMMEDIATE")
    try:
        _commit_group(link, jobs)
    except Exception as error:  # noqa: BLE001 - not swallowed: the caller it belongs to gets it
        if len(jobs) == 1:
            jobs[0].error = error
        else:
            _write_each(link, jobs)


def _write_each(link: _Connection, jobs: Sequence[Job]) -> None:
    for place, job in enumerate(jobs):
        job.value = job.error = None
        try:
            _write_group(link, [job])
        except BridleError as error:
            # It could not even begin, after a long wait perhaps: nor would the others.
            for waiting in jobs[place:]:
                waiting.error = error
            return


def _commit_group(link: _Connection, jobs: Sequence[Job]) -> None:
    with link.transaction() as db:
        for job in jobs:
            try:
                job.value = job.ask(db)
            except BridleError as error:
                # Raised before anything was written for this job; the others go on.
                job.error = error


def _read_group(link: _Connection, jobs: Sequence[Job]) -> None:
    for job in jobs:
        try:
            link.begin("BEGIN")
            with link.transaction() as db:
                job.value = job.ask(db)
        except Exception as error:  # noqa: BLE001 - not swallowed: its caller gets it
            job.error = error
