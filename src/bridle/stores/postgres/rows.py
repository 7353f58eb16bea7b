"""Queries of the PostgreSQL store: records as rows, verified when read.

The history of a session consists of segments: its own records, and for a fork those of its parent up to the fork
point, and so on up. A parent's segment ends at the lower of the two fork points below it; otherwise forking a fork
before its own fork point would show later records.

The seal of a session is a hash over its id, its parent and the record that its own part begins with. Rows that were
renamed or exchanged do not match it.

A text of PostgreSQL cannot hold the character NUL, which ids and unique keys may contain: it is escaped in both.
"""

from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING

from bridle.ports.store import SessionInfo
from bridle.stores.chain import RecordRow, check_timestamp, hash_content, locate_corruption, verify_rows
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
from bridle.values.errors import Corrupt, SessionNotFound
from bridle.values.record import GENESIS, Record

if TYPE_CHECKING:
    from asyncpg import Connection


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
        _APPEND,
        list(places),
        [escape_nul(job.session) for job in jobs],
        [job.after for job in jobs],
        [job.records[-1].seq for job in jobs],
        [job.epoch for job in jobs],
        [job.records[0].prev for job in jobs],
        [job.records[-1].hash for job in jobs],
        [job.records[0].at for job in jobs],
        [job.records[-1].at for job in jobs],
        [hash_identity(job.session, "", 0, job.records[0].hash) for job in jobs],
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
    row = await connection.fetchrow("SELECT seq, head, epoch FROM sessions WHERE uid = $1", escape_nul(session))
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
        if await connection.fetchval(_SELECT_NAME, escape_nul(session), escape_key(name)):
            raise repeated_name(session, name)


async def insert_fork(connection: "Connection", session: str, at: int, new: str) -> None:
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
            row = await connection.fetchrow(_SELECT_FORK_POINT, escape_nul(session), at)
            if row is None:
                raise Corrupt(f"record {at} is missing")
            head, time = row
        seal = hash_identity(new, session, at, head)
        made = await connection.fetchval(_INSERT_FORK, escape_nul(new), sid, at, head, time, seal)
        if made is None:
            raise session_exists(new)


async def select_records(connection: "Connection", session: str, after: int, store: str) -> tuple[Record, ...]:
    """Return the verified records above `after`; `store` is the name for messages."""
    rows = await connection.fetch(_SELECT_RECORDS, escape_nul(session), after)
    if not rows:
        return ()
    _, created, seal, head, _, length, updated, parent, forked_at = rows[0]
    if after >= length:
        return ()
    try:
        records = tuple(verify_rows(_iterate_records(rows), after, length, head))
        if after == 0:
            _check_identity(session, unescape_nul(parent or ""), forked_at, seal, records)
            first = records[forked_at] if length > forked_at else records[-1]
            if (created, updated) != (first.at, records[-1].at):
                raise Corrupt("its times differ from those of its records: another program changed them")
    except Corrupt as error:
        raise locate_corruption(store, session, error) from error
    return records


def _iterate_records(rows: Sequence[tuple[object, ...]]) -> Iterator[RecordRow]:
    for row in rows[1:]:
        seq, at, once, hash_, data = row[0], row[1], row[2], row[3], row[4]
        yield seq, at, None if once is None else unescape_nul(once), hash_, data  # type: ignore[arg-type, misc]


def _check_identity(session: str, parent: str, forked_at: int, seal: str, records: Sequence[Record]) -> None:
    anchored = forked_at if parent else 1
    anchor = records[anchored - 1].hash if anchored else GENESIS
    if hash_identity(session, parent, forked_at, anchor) != seal:
        raise Corrupt("its records belong to another session")


async def restart_log(connection: "Connection", session: str, head: str, record: Record) -> None:
    """Replace all records of a log with this one."""
    check_timestamp(record)
    async with connection.transaction():
        row = await connection.fetchrow(
            "SELECT sid, parent, seq, head FROM sessions WHERE uid = $1 FOR UPDATE", escape_nul(session)
        )
        if row is None or row["head"] != head:
            raise diverged_append(session, row["seq"] if row else 0)
        sid = row["sid"]
        if row["parent"] is not None or await connection.fetchval(_SELECT_FORK, sid):
            raise restarted_fork(session)
        await connection.execute("DELETE FROM events WHERE sid = $1", sid)
        await connection.execute(
            "INSERT INTO events (sid, seq, at, once, hash, data) VALUES ($1, $2, $3, $4, $5, $6)",
            sid, record.seq, record.at, escape_key(record.event.unique_key), record.hash, record.data.decode(),
        )  # fmt: skip
        seal = hash_identity(session, "", 0, record.hash)
        await connection.execute(_UPDATE_RESTARTED, sid, record.seq, record.hash, record.at, seal)


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
        for uid, seq, created, updated, parent, fork_seq in await connection.fetch(_SELECT_SESSIONS, limit)
    )


async def insert_blob(connection: "Connection", data: bytes) -> str:
    key = hash_content(data)
    await connection.execute(_INSERT_BLOB, key, data)
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


_LINE = """
    SELECT sid, parent, fork_seq, 9223372036854775807 FROM sessions WHERE uid = $1
    UNION ALL
    SELECT above.sid, above.parent, above.fork_seq, least(line.lo, line.hi)
    FROM line JOIN sessions AS above ON above.sid = line.parent
"""

# The first row describes the session; one statement sees one state of the database.
_SELECT_RECORDS = f"""
WITH RECURSIVE line (sid, parent, lo, hi) AS ({_LINE})
(SELECT 0::bigint, s.created, s.seal, s.head, NULL::bytea, s.seq, s.updated, p.uid, s.fork_seq
 FROM sessions AS s LEFT JOIN sessions AS p ON p.sid = s.parent WHERE s.uid = $1)
UNION ALL
(SELECT e.seq, e.at, e.once, e.hash, convert_to(e.data, 'UTF8'), NULL, NULL, NULL, NULL
 FROM line JOIN events AS e ON e.sid = line.sid AND e.seq > greatest(line.lo, $2 - 1) AND e.seq <= line.hi
 ORDER BY e.seq)
"""

_SELECT_NAME = f"""
WITH RECURSIVE line (sid, parent, lo, hi) AS ({_LINE})
SELECT 1 FROM line JOIN events AS e ON e.sid = line.sid AND e.once = $2 AND e.seq <= line.hi LIMIT 1
"""

_SELECT_FORK_POINT = f"""
WITH RECURSIVE line (sid, parent, lo, hi) AS ({_LINE})
SELECT e.hash, e.at FROM line JOIN events AS e ON e.sid = line.sid AND e.seq = $2
WHERE line.lo < $2 AND $2 <= line.hi
"""

_SELECT_FORK = "SELECT 1 FROM sessions WHERE parent = $1 LIMIT 1"

_SELECT_SESSIONS = """
SELECT s.uid, s.seq, s.created, s.updated, coalesce(p.uid, ''), s.fork_seq
FROM (SELECT * FROM sessions ORDER BY touched DESC LIMIT $1) AS s LEFT JOIN sessions AS p ON p.sid = s.parent
ORDER BY s.touched DESC
"""

_INSERT_FORK = """
INSERT INTO sessions (uid, parent, fork_seq, seq, head, created, updated, seal)
VALUES ($1, $2, $3, $3, $4, $5, $5, $6)
ON CONFLICT (uid) DO NOTHING RETURNING sid
"""

_UPDATE_RESTARTED = """
UPDATE sessions SET seq = $2, head = $3, created = $4, updated = $4, seal = $5, touched = nextval('touches')
WHERE sid = $1
"""

# Existing content is left alone unless it is damaged; then this restores it.
_INSERT_BLOB = """
INSERT INTO blobs (hash, bytes) VALUES ($1, $2)
ON CONFLICT (hash) DO UPDATE SET bytes = excluded.bytes WHERE blobs.bytes <> excluded.bytes
"""

# An append moves the head of its session's row from the record before to its last one. The update waits for other
# writers of the row and then compares again, so a late, diverged or fenced writer moves nothing and inserts nothing.
# Inserted rows are not visible to the update and updated ones exist before, so a job is in `moved` or in `made`.
# Own unique keys are enforced by an index, inherited ones here.
_APPEND = """
WITH RECURSIVE job AS (
    SELECT * FROM unnest($1::int[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[], $7::text[],
        $8::float8[], $9::float8[], $10::text[])
        AS j (place, uid, after, seq, epoch, prev, head, first_at, last_at, seal)
), record AS (
    SELECT * FROM unnest($11::int[], $12::bigint[], $13::float8[], $14::text[], $15::text[], $16::text[])
        AS r (place, seq, at, once, hash, data)
), line (place, sid, parent, lo, hi) AS (
    SELECT job.place, above.sid, above.parent, above.fork_seq, s.fork_seq
    FROM job JOIN sessions AS s ON s.uid = job.uid JOIN sessions AS above ON above.sid = s.parent
    UNION ALL
    SELECT line.place, above.sid, above.parent, above.fork_seq, least(line.lo, line.hi)
    FROM line JOIN sessions AS above ON above.sid = line.parent
), refused AS (
    SELECT need.place FROM unnest($17::int[], $18::text[]) AS need (place, hash)
    WHERE NOT EXISTS (SELECT 1 FROM blobs WHERE blobs.hash = need.hash)
    UNION ALL
    SELECT record.place FROM line JOIN record ON record.place = line.place
    JOIN events AS e ON e.sid = line.sid AND e.once = record.once AND e.seq <= line.hi
), moved AS (
    UPDATE sessions AS s SET
        seq = job.seq, head = job.head, updated = job.last_at, touched = nextval('touches'),
        created = CASE WHEN s.seq = s.fork_seq THEN job.first_at ELSE s.created END
    FROM job
    WHERE s.uid = job.uid AND s.seq = job.after AND s.head = job.prev AND s.epoch = coalesce(job.epoch, s.epoch)
        AND NOT EXISTS (SELECT 1 FROM refused WHERE refused.place = job.place)
    RETURNING s.sid, job.place
), made AS (
    INSERT INTO sessions (uid, seq, head, created, updated, seal)
    SELECT job.uid, job.seq, job.head, job.first_at, job.last_at, job.seal
    FROM job
    WHERE job.after = 0 AND job.prev = $19 AND coalesce(job.epoch, 0) = 0
        AND NOT EXISTS (SELECT 1 FROM refused WHERE refused.place = job.place)
        AND NOT EXISTS (SELECT 1 FROM sessions AS s WHERE s.uid = job.uid)
    ORDER BY job.uid
    ON CONFLICT (uid) DO NOTHING
    RETURNING sid, uid
), kept AS (
    SELECT sid, place FROM moved
    UNION ALL
    SELECT made.sid, job.place FROM made JOIN job ON job.uid = made.uid
), written AS (
    INSERT INTO events (sid, seq, at, once, hash, data)
    SELECT kept.sid, record.seq, record.at, record.once, record.hash, record.data
    FROM kept JOIN record ON record.place = kept.place
)
SELECT place FROM kept
"""
