"""Queries of the PostgreSQL store: records as rows, verified when read.

The history of a session consists of segments: its own records, and for a fork those of its parent up to the fork
point, and so on up. A parent's segment ends at the lower of the two fork points below it; otherwise forking a fork
before its own fork point would show later records.

The seal of a session is a hash over its id, its parent and the record that its own part begins with. Rows that were
renamed or exchanged do not match it.

A text of PostgreSQL cannot hold the character NUL, which ids and unique keys may contain: it is escaped in both.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from asyncpg import exceptions as pg

from bridle.ports.store import RawRecord, SessionInfo, StoredSnapshot
from bridle.stores.chain import check_timestamp, find_page_end, hash_content, list_redactions, verify_rows
from bridle.stores.conflicts import (
    diverged_append,
    fork_beyond_end,
    missing_blob,
    repeated_name,
    restarted_fork,
    session_exists,
    stale_append,
    taken_over,
)
from bridle.values.errors import Conflict, Corrupt, SessionNotFound
from bridle.values.events import Event
from bridle.values.record import GENESIS, Record, decode_event

from . import queries

if TYPE_CHECKING:
    from asyncpg import Connection


NO_SNAPSHOTS = (pg.InsufficientPrivilegeError, pg.UndefinedTableError)
"""The role may not use snapshots, or another program removed their table: logs are read without them."""


class AppendJob:
    """An append that waits to be written: its records, and the columns of its session's row afterwards."""

    __slots__ = ("after", "epoch", "names", "records", "session", "size")

    def __init__(
        self, session: str, after: int, records: Sequence[Record], names: Sequence[str], epoch: int | None
    ) -> None:
        for record in records:
            check_timestamp(record)
        self.session = session
        self.after = after
        self.records = records
        self.names = names
        self.epoch = epoch
        self.size = sum(len(record.data) for record in records)


async def insert_records(connection: "Connection", jobs: Sequence[AppendJob]) -> set[int]:
    """Write jobs of different sessions in one statement, which is one transaction; return the places of those written.

    A job that is not written changed nothing: `explain_refusal` says why.
    """
    places = range(len(jobs))
    events = [(place, record) for place in places for record in jobs[place].records]
    needed = [(place, hash_) for place, record in events for hash_ in record.event.required_blobs]
    written = await connection.fetch(
        queries.APPEND,
        list(places),
        [escape_nul(job.session) for job in jobs],
        [job.after for job in jobs],
        [job.records[-1].seq for job in jobs],
        [job.epoch for job in jobs],
        [job.records[0].prev for job in jobs],
        [job.records[-1].hash for job in jobs],
        [job.records[0].at for job in jobs],
        [job.records[-1].at for job in jobs],
        ["" if job.after else hash_identity(job.session, "", 0, job.records[0].hash) for job in jobs],
        [place for place, _ in events],
        [record.seq for _, record in events],
        [record.at for _, record in events],
        [escape_key(record.event.unique_key) for _, record in events],
        [record.hash for _, record in events],
        [record.data.decode() for _, record in events],
        [place for place, _ in needed],
        [hash_ for _, hash_ in needed],
        GENESIS,
    )
    return {row[0] for row in written}


async def explain_refusal(connection: "Connection", job: AppendJob) -> None:
    """Raise the reason why a job cannot be written; return if there is none (any more)."""
    session, after, first = job.session, job.after, job.records[0]
    row = await connection.fetchrow(
        "SELECT seq, head, epoch FROM sessions WHERE uid = $1", escape_nul(session)
    )
    length, head, epoch = row or (0, GENESIS, 0)
    if job.epoch is not None and job.epoch != epoch:
        raise taken_over(session)
    if length != after:
        raise stale_append(session, length, after)
    if head != first.prev:
        raise diverged_append(session, after)
    for hash_ in (hash_ for record in job.records for hash_ in record.event.required_blobs):
        if not await connection.fetchval("SELECT 1 FROM blobs WHERE hash = $1", hash_):
            raise missing_blob(session, hash_)
    for name in job.names:
        if await connection.fetchval(queries.SELECT_NAME, escape_nul(session), escape_key(name)):
            raise repeated_name(session, name)


async def is_stored(connection: "Connection", job: AppendJob) -> bool:
    """Return True if the session has exactly these records: hashes cover all before them."""
    last = job.records[-1]
    return bool(
        await connection.fetchval(queries.SELECT_HASH, escape_nul(job.session), last.seq) == last.hash
    )


async def insert_fork(connection: "Connection", session: str, at: int, new: str, *, again: bool) -> None:
    """Insert the row of a fork; `again` accepts one that is there already."""
    async with connection.transaction():
        # The lock keeps the parent from being started again (`restart_log`) before the fork is there.
        parent = await connection.fetchrow(
            "SELECT sid, seq FROM sessions WHERE uid = $1 FOR KEY SHARE", escape_nul(session)
        )
        if parent is None:
            raise SessionNotFound(f"there is no session {session!r} to fork")
        sid, length = parent
        if not 0 <= at <= length:
            raise fork_beyond_end(session, length, at)
        head, time = GENESIS, 0.0
        if at:
            row = await connection.fetchrow(queries.SELECT_FORK_POINT, escape_nul(session), at)
            if row is None:
                raise Corrupt(f"record {at} is missing")
            head, time = row
        seal = hash_identity(new, session, at, head)
        made = await connection.fetchval(queries.INSERT_FORK, escape_nul(new), sid, at, head, time, seal)
        if made is None:
            stored = await connection.fetchval("SELECT seal FROM sessions WHERE uid = $1", escape_nul(new))
            if not again or stored != seal:
                raise session_exists(new)


LAST_SEQ = (1 << 63) - 1


class SessionRows:
    """A session's row and those of its records, as one statement found them."""

    def __init__(self, session: str, rows: Sequence[Sequence[Any]]) -> None:
        self.session = session
        self.exists = bool(rows)
        self.length = 0
        self.parent = ""
        self.other_redactions: dict[str, Event] = {}
        """Redactions that are not among the rows: after a page, or of a log that it was forked from."""
        if rows:
            _, self.created, self.seal, self.head, _, self.length, self.updated, parent, self.forked_at = (
                rows[0]
            )
            self.parent = unescape_nul(parent or "")
        self._records = rows[1:]

    def verify(self, after: int, limit: int | None = None) -> tuple[Record, ...]:
        """Return the records above `after`; raises `Corrupt` if they are not those that were appended."""
        if after >= self.length:
            return ()
        records = tuple(self.iterate(after, limit=limit))
        if after == 0 and len(records) == self.length:
            self.check_row()
        elif after == 0:
            self.check_identity(self._records)
        return records

    def check_row(self) -> None:
        """Compare the identity and the times of the session with those of its records, all of which were read."""
        self.check_identity(self._records)
        last = self._records[-1]
        first = self._records[self.forked_at] if self.length > self.forked_at else last
        if (self.created, self.updated) != (first[1], last[1]):
            raise Corrupt("its times differ from those of its records: another program changed them")

    def verify_after(self, snapshot: StoredSnapshot) -> tuple[Record, ...] | None:
        """Return the records after a snapshot; None if there is damage, which verifying all records names."""
        if not len(self._records) == self.length >= snapshot.seq > 0:
            return None
        if self._records[snapshot.seq - 1][3] != snapshot.head or self._records[-1][3] != self.head:
            return None
        try:
            self.check_row()
            return tuple(self.iterate(snapshot.seq, self._records[snapshot.seq - 1 :]))
        except Corrupt:
            return None

    def iterate_raw(self, until: int) -> Iterator[RawRecord]:
        return ((row[1], bytes.fromhex(row[3]), row[4]) for row in self._records[:until])

    def list_intact(self) -> tuple[Record, ...]:
        """Return the records before the first damaged one; none if they belong to another session."""
        records: list[Record] = []
        try:
            if self.exists:
                records.extend(self.iterate(0))
        except Corrupt:
            pass  # the records before the damage were added; reading the session reports it
        try:
            self.check_identity(self._records[: len(records)])
        except Corrupt:
            return ()
        return tuple(records)

    def iterate(
        self, after: int, records: Sequence[Any] | None = None, limit: int | None = None
    ) -> Iterator[Record]:
        until, head = find_page_end(after, limit, self.length, self.head)
        rows = (
            (seq, at, None if once is None else unescape_nul(once), hash_, data)
            for seq, at, once, hash_, data, *_ in (self._records if records is None else records)
        )
        return verify_rows(rows, after, until, head, self.forked_at, self.find_redaction)

    def find_redaction(self, key: str) -> Event | None:
        """Return the event with this unique key; it comes after what it redacts."""
        # guard: postgres-redaction-key
        data = self._data_by_key.get(escape_nul(key))
        return decode_event(data) if data is not None else self.other_redactions.get(key)

    @cached_property
    def _data_by_key(self) -> dict[str, bytes]:
        return {row[2]: row[4] for row in self._records if row[2] is not None}

    def check_identity(self, rows: Sequence[Any]) -> None:
        """Compare the records, from the first one on, with the seal of the session."""
        anchored = (self.forked_at if self.parent else 1) if self.exists else 0
        if anchored and len(rows) >= anchored:
            anchor = rows[anchored - 1][3]
            # guard: postgres-identity-hash
            if hash_identity(self.session, self.parent, self.forked_at, anchor) != self.seal:
                raise Corrupt("its records belong to another session")


async def select_rows(
    connection: "Connection", session: str, after: int = 0, limit: int | None = None
) -> SessionRows:
    until = LAST_SEQ if limit is None else min(after + max(limit, 0), LAST_SEQ)
    uid = escape_nul(session)
    found = SessionRows(session, await connection.fetch(queries.SELECT_RECORDS, uid, after, until))
    if until < found.length:
        for key, data in await connection.fetch(queries.SELECT_REDACTIONS, uid, until):
            if (event := decode_event(data)) is not None:
                found.other_redactions[unescape_nul(key)] = event
    if found.parent:
        for (parent,) in await connection.fetch(queries.SELECT_REDACTED_LATER, uid):
            above = await select_rows(connection, unescape_nul(parent))
            found.other_redactions.update(list_redactions(above.list_intact()))
    return found


async def select_with_snapshot(
    connection: "Connection", session: str
) -> tuple[StoredSnapshot | None, SessionRows]:
    """Return the snapshot and the records."""
    row = None
    with suppress(*NO_SNAPSHOTS):
        row = await connection.fetchrow(queries.SELECT_SNAPSHOT, escape_nul(session))
    return StoredSnapshot(**row) if row is not None else None, await select_rows(connection, session)


async def insert_snapshot(connection: "Connection", session: str, snapshot: StoredSnapshot) -> None:
    with suppress(*NO_SNAPSHOTS):
        await connection.execute(
            queries.INSERT_SNAPSHOT,
            escape_nul(session),
            snapshot.seq,
            snapshot.head,
            snapshot.fold_version,
            snapshot.data,
            snapshot.digest,
            snapshot.replaced,
        )


async def repair_tail(connection: "Connection", session: str, record: Record, epoch: int | None) -> None:
    """Replace the torn end of a session with this record."""
    check_timestamp(record)
    async with connection.transaction():
        row = await connection.fetchrow(queries.SELECT_FOR_UPDATE, escape_nul(session))
        if row is not None and epoch is not None and row["epoch"] != epoch:
            raise taken_over(session)
        found = await select_rows(connection, session)
        try:
            found.verify(0)
        except Corrupt as error:
            if not error.torn:
                raise
            at = error.last_good or 0
        else:
            raise Conflict(
                f"session {session!r} is already repaired: another process wrote to it; read it again"
            )
        good = found.list_intact()
        if at + 1 != record.seq or record.prev != (good[-1].hash if good else GENESIS):
            raise diverged_append(session, at)
        first = good[found.forked_at] if at > found.forked_at else record
        seal = hash_identity(session, "", 0, record.hash) if at == 0 and not found.parent else found.seal
        await _replace_tail(connection, row["sid"], at, record, first.at, seal)


async def restart_log(
    connection: "Connection", session: str, head: str, record: Record, *, again: bool
) -> None:
    """Replace all records of a log with this one; `again` accepts a log where that has happened."""
    check_timestamp(record)
    async with connection.transaction():
        row = await connection.fetchrow(queries.SELECT_FOR_UPDATE, escape_nul(session))
        if row is not None and again and row["head"] == record.hash:
            return
        if row is None or row["head"] != head:
            raise diverged_append(session, row["seq"] if row else 0)
        if row["parent"] is not None or await connection.fetchval(queries.SELECT_FORK, row["sid"]):
            raise restarted_fork(session)
        seal = hash_identity(session, "", 0, record.hash)
        await _replace_tail(connection, row["sid"], 0, record, record.at, seal)


async def _replace_tail(
    connection: "Connection", sid: int, at: int, record: Record, created: float, seal: str
) -> None:
    """Replace the records after `at` with this one. A snapshot of them stays, and does not fit any more."""
    key, data = escape_key(record.event.unique_key), record.data.decode()
    await connection.execute("DELETE FROM events WHERE sid = $1 AND seq > $2", sid, at)
    await connection.execute(queries.INSERT_EVENT, sid, record.seq, record.at, key, record.hash, data)
    await connection.execute(queries.REPLACE_HEAD, sid, record.seq, record.hash, created, record.at, seal)


async def select_sessions(connection: "Connection", limit: int) -> tuple[SessionInfo, ...]:
    return tuple(
        SessionInfo(
            id=unescape_nul(uid),
            length=seq,
            created_at=created,
            updated_at=updated,
            parent=unescape_nul(parent),
            forked_at=fork_seq,
        )
        for uid, seq, created, updated, parent, fork_seq in await connection.fetch(
            queries.SELECT_SESSIONS, limit
        )
    )


async def insert_blob(connection: "Connection", data: bytes) -> str:
    key = hash_content(data)
    await connection.execute(queries.INSERT_BLOB, key, data)
    return key


async def select_blob(connection: "Connection", hash_: str, store: str) -> bytes | None:
    if "\0" in hash_:
        return None
    data: bytes | None = await connection.fetchval("SELECT bytes FROM blobs WHERE hash = $1", hash_)
    if data is not None and hash_content(data) != hash_:
        raise Corrupt(f"store {store}: blob {hash_} is not what was written; restore it from a backup")
    return data


def escape_nul(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\0", "\\0") if "\0" in text or "\\" in text else text


def escape_key(key: str | None) -> str | None:
    return None if key is None else escape_nul(key)


def unescape_nul(text: str) -> str:
    return "\\".join(part.replace("\\0", "\0") for part in text.split("\\\\")) if "\\" in text else text


def hash_identity(session: str, parent: str, forked_at: int, anchor: str) -> str:
    return sha256(f"{forked_at} {anchor} {len(parent)} {parent} {session}".encode()).hexdigest()
