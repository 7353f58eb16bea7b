"""Store that keeps all logs in one schema of a PostgreSQL database, for processes on several machines.

An append is acknowledged when the server has committed it; a server that acknowledges earlier is refused
(connections.py). All appends that wait are one statement and one transaction (writer.py). The statement moves the head
of a session's row from the record before to the last new one, and only if the writer's epoch is that of the row: a
late writer, one that was taken over, and one of two rivals write nothing (rows.py).

  - A fork is one row. Its records are read by walking up its parents.
  - A driver holds an advisory lock (leases.py), which the server releases when the connection ends.
  - Readers in other processes are notified (notifications.py).
  - Reads are repeated once if their connection was lost. Writes are not: their outcome is unknown.

Connections live in an event loop of their own (store_loop.py), so the store works from several loops and threads.
"""

import asyncio
import logging
import os
import shlex
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from bridle.ports.store import Lease, RestoreSnapshot, SessionInfo, StoredSnapshot, UnusedBlob
from bridle.stores.anchors import Anchor, AnchorFile, find_anchor_file
from bridle.stores.chain import locate_corruption
from bridle.stores.conflicts import check_batch, check_restart, check_session_name, explain_snapshot_removal
from bridle.stores.live_text import remove_live_text
from bridle.values.errors import BridleError, Corrupt, MisuseError
from bridle.values.record import Record

from . import maintenance, rows
from .address import parse_address
from .connections import Connections
from .leases import LeaseKey, Leases
from .notifications import Notifications, publish_live, read_live
from .servers import ServerLocks
from .store_loop import StoreLoop
from .tables import PostgresState, quote_name
from .writer import GroupWriter

if TYPE_CHECKING:
    from asyncpg import Connection

T = TypeVar("T")

LOG = logging.getLogger("bridle")
REMNANTS_WARNING = (
    "store %s: the content was removed from the tables%s. It stays in the server's write-ahead log until its "
    "segments are overwritten, and in standbys, archived logs and backups"
)
NO_VACUUM = (
    ", and stays in their files until the server's next VACUUM that is not prevented (%s); the owner can type: "
    "VACUUM %s.events, %s.blobs"
)


class PostgresStore:
    """Store in a PostgreSQL database; connects with its first use. Safe to use from several loops and threads."""

    def __init__(self, url: str, *, anchors: str | os.PathLike[str] | None = None) -> None:
        """`anchors` is the file, or the folder of files, that heads are written to: see stores/anchors.py."""
        address = parse_address(url)
        anchor_file = find_anchor_file(Path(address.schema), anchors)
        self._anchors = AnchorFile(anchor_file) if anchor_file is not None else None
        self.name = address.name
        """Host, port, database and schema: the URL without user and password."""
        self._connections = connections = Connections(address)
        self._notifications = notifications = Notifications(connections)
        self._leases = leases = Leases(connections)
        self._servers = ServerLocks(leases, address.name, address.schema)
        self._writer = GroupWriter(connections, notifications.announce)
        self._last_redaction = ""
        """Id of the transaction of the last redaction that this store made."""

        def drain() -> None:
            leases.stop_retaking()
            notifications.end_waits()

        self._loop = StoreLoop(
            "bridle-postgres",
            drain=drain,
            close=connections.close,
            sockets=connections.list_sockets,
        )
        weakref.finalize(self, self._loop.stop).atexit = False

    def __repr__(self) -> str:
        return f"PostgresStore({self.name!r})"

    async def append(
        self, session: str, after: int, records: Sequence[Record], *, epoch: int | None = None
    ) -> None:
        """Append records. After a lost connection, only reading tells if they were stored."""
        if not records:
            return
        check_session_name(session)
        names = check_batch(session, after, records)
        job = rows.AppendJob(session, after, records, tuple(names), epoch)
        await self._loop.write(self._append(job))
        if self._anchors is not None:
            self._anchors.write_heads(session, records)

    async def _append(self, job: rows.AppendJob) -> None:
        if job.epoch is not None:
            await self._leases.confirm((job.session, job.epoch))
        await self._writer.append(job)

    async def read(self, session: str, after: int = 0, limit: int | None = None) -> Sequence[Record]:
        found = await self._select(session, max(after, 0), limit)
        with self._locate(session):
            return found.verify(max(after, 0), limit)

    async def read_with_snapshot(
        self, session: str, restore: RestoreSnapshot[T]
    ) -> tuple[T | None, Sequence[Record]]:
        check_session_name(session)
        snapshot, found = await self._use(lambda db: rows.select_with_snapshot(db, session))
        tail = found.verify_after(snapshot) if snapshot is not None else None
        if snapshot is not None and tail is not None:
            restored = restore(snapshot, found.iterate_raw(snapshot.seq))
            if restored is not None:
                return restored, tail
        with self._locate(session):
            return None, found.verify(0)

    async def write_snapshot(self, session: str, snapshot: StoredSnapshot) -> None:
        check_session_name(session)
        await self._use(lambda db: rows.insert_snapshot(db, session, snapshot))

    def explain_snapshot_removal(self, session: str) -> str:
        schema = quote_name(self._connections.address.schema)
        return explain_snapshot_removal(f"{schema}.", rows.escape_nul(session))

    async def read_intact(self, session: str) -> Sequence[Record]:
        return (await self._select(session)).list_intact()

    async def _select(self, session: str, after: int = 0, limit: int | None = None) -> rows.SessionRows:
        check_session_name(session)
        return await self._use(lambda db: rows.select_rows(db, session, after, limit))

    async def repair(self, session: str, record: Record, *, epoch: int | None = None) -> None:
        check_session_name(session)
        with self._locate(session):
            repair = self._connections.use(
                lambda db: rows.repair_tail(db, session, record, epoch), retry=False
            )
            await self._loop.write(repair)

    async def restart(self, session: str, head: str, record: Record) -> None:
        check_restart(session, record)
        await self._use_again(lambda db, again: rows.restart_log(db, session, head, record, again=again))

    async def redact(
        self, session: str, seq: int, data: bytes, evidence: Mapping[str, Record], blobs: Sequence[str] = ()
    ) -> None:
        """Remove content from the tables; `erase_redacted` removes it from their files."""
        check_session_name(session)
        self._last_redaction = await self._use_again(
            lambda db, again: maintenance.redact_record(
                db, self.name, session, seq, data, evidence, blobs, again=again
            )
        )
        if self._anchors is not None:
            for name, record in evidence.items():
                self._anchors.write_heads(name, (record,))
        await remove_live_text(self, session)

    async def erase_redacted(self) -> None:
        """Remove redacted content from the files of the tables. Other files keep it: a warning says which."""
        schema, transaction = quote_name(self._connections.address.schema), self._last_redaction
        try:
            refusal = await self._use(lambda db: maintenance.vacuum_tables(db, transaction))
        except BridleError as error:  # the redaction itself is done
            refusal = str(error)
        LOG.warning(REMNANTS_WARNING, self.name, NO_VACUUM % (refusal, schema, schema) if refusal else "")

    async def fork(self, session: str, at: int, new: str) -> None:
        check_session_name(session)
        check_session_name(new)
        with self._locate(session):
            await self._use_again(lambda db, again: rows.insert_fork(db, session, at, new, again=again))

    async def put_blob(self, data: bytes) -> str:
        return await self._use(lambda db: rows.insert_blob(db, bytes(data)))

    async def get_blob(self, hash_: str) -> bytes | None:
        return await self._use(lambda db: rows.select_blob(db, hash_, self.name))

    def lease(self, session: str, *, take_over: bool = False) -> AbstractAsyncContextManager[Lease]:
        check_session_name(session)
        return self._hold_lease(session, take_over=take_over)

    @asynccontextmanager
    async def _hold_lease(self, session: str, *, take_over: bool) -> AsyncIterator[Lease]:
        taking = self._loop.submit(self._leases.take(session, take_over=take_over))
        try:
            key = await asyncio.shield(asyncio.wrap_future(taking))
        except asyncio.CancelledError:
            taking.add_done_callback(self._release_abandoned)
            raise
        try:
            yield Lease(session=session, epoch=key[1])
        finally:
            # A closed store has released its leases; those in a child made by fork() belong to the parent.
            if self._loop.is_usable:
                await asyncio.shield(asyncio.wrap_future(self._loop.submit(self._leases.release(key))))

    def _release_abandoned(self, taking: "Future[LeaseKey]") -> None:
        if taking.exception() is None and self._loop.is_usable:
            self._loop.submit(self._leases.release(taking.result()))

    async def is_leased(self, session: str) -> bool:
        check_session_name(session)
        return await self._loop.run(self._leases.is_held(session))

    async def announce_server(self, server: str) -> Collection[str]:
        return await self._loop.run(self._servers.announce(server))

    async def withdraw_server(self, server: str) -> None:
        await self._loop.run(self._servers.withdraw(server))

    @property
    def anchor_file(self) -> Path | None:
        return self._anchors.path if self._anchors is not None else None

    async def wait_for_records(self, session: str, after: int) -> None:
        check_session_name(session)
        await self._loop.run(self._notifications.wait_for_records(session, after))

    async def publish_live(self, session: str, data: bytes) -> bool:
        async def publish(db: "Connection") -> bool:
            return self._connections.has_live and await publish_live(db, session, data)

        return await self._use(publish)

    async def read_live(self, session: str) -> bytes:
        async def read(db: "Connection") -> bytes:
            return await read_live(db, session) if self._connections.has_live else b""

        return await self._use(read)

    async def sessions(self, limit: int = 50) -> Sequence[SessionInfo]:
        return await self._use(lambda db: rows.select_sessions(db, max(limit, 0)))

    async def check_file(self) -> Sequence[str]:
        """List what is wrong with the tables as a whole; reading a session verifies its records."""
        return await self._use(maintenance.check_tables)

    async def remove_session(self, session: str, head: str, *, at: float, reason: str) -> None:
        """Remove a session, in one transaction, and record that in the tables and in the anchors."""
        check_session_name(session)
        await self._use_again(
            lambda db, again: maintenance.delete_session(
                db, self.name, session, head, at, reason, again=again
            )
        )
        if self._anchors is not None:
            self._anchors.write(Anchor(session=session, seq=0, head=head, at=at, removed=True))
        await remove_live_text(self, session)

    async def remove_unused_blobs(self, *, dry_run: bool) -> Sequence[UnusedBlob]:
        """Remove the blobs that no record mentions; a dry run only lists them. `Conflict` while a run works."""
        if dry_run:
            return await self._use(maintenance.select_unused_blobs)
        key = self._leases.shared_key
        return await self._use(lambda db: maintenance.delete_unused_blobs(db, key, self.name))

    async def shrink_file(self) -> None:
        """Let the server use the space of deleted rows again."""
        if refusal := await self._use(maintenance.vacuum_tables):
            LOG.warning(
                "store %s: the space stays taken until the server's next VACUUM (%s)", self.name, refusal
            )

    async def back_up(self, target: Path) -> None:
        """Raise `MisuseError` with the command that does it: a copy of a database is made by its own tools."""
        options = ("--format=custom", f"--schema={quote_name(self._connections.address.schema)}")
        database = self.name.partition("?")[0]
        user = self._connections.address.user
        login = (f"--username={user}",) if user else ()
        command = shlex.join(["pg_dump", *options, *login, f"--file={target}", f"--dbname={database}"])
        raise MisuseError(f"store {self.name} is a database, which its own tools copy: {command}")

    async def _use(self, act: "Callable[[Connection], Awaitable[T]]", *, retry: bool = True) -> T:
        return await self._loop.run(self._connections.use(act, retry=retry))

    async def _use_again(self, act: "Callable[[Connection, bool], Awaitable[T]]") -> T:
        """Run a write that is told if it may have succeeded before, on a connection that was lost."""
        attempts = iter((False, True))
        return await self._use(lambda db: act(db, next(attempts)))

    @contextmanager
    def _locate(self, session: str) -> Iterator[None]:
        try:
            yield
        except Corrupt as error:
            raise locate_corruption(self.name, session, error) from error

    async def read_state(self) -> PostgresState:
        return await self._loop.run(self._connections.read_state())

    async def close(self) -> None:
        """Write what waits, then close the connections, which releases the leases."""
        self._loop.stop()
        await asyncio.to_thread(self._loop.join)
        if self._anchors is not None:
            self._anchors.close()
