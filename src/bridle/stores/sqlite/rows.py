"""Queries of the SQLite store: records as rows, verified when read.

Every function runs inside a transaction that the caller begins and ends. Functions that write check first and
write afterwards: a `BridleError` means nothing was written.

The history of a session consists of segments: its own records, and for a fork those of its parent up to the
fork point, and so on up. A parent's segment ends at the lower of the two fork points below it; otherwise
forking a fork before its own fork point would show later records.

The hash of the previous record is not a column: it is the hash of the row before. A record that does not
match it was altered.
"""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256

import msgspec

from bridle.ports.store import SessionInfo
from bridle.stores.chain import (
    check_end,
    check_timestamp,
    decode_record,
    find_page_end,
    list_redactions,
    locate_corruption,
)
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

from .origins import SessionRow, check_origin, check_times, find_row, move_origin, seal_origin

BLOB_BYTES = 64 * 1024
"""Longer events are stored in `blobs` by their hash, so that listing `events` never reads them."""

Segment = tuple[int, int, int]
"""Session id (sid) that owns the records, and the range of their numbers: above the first, up to the second.
"""


def insert_records(
    session: str,
    after: int,
    records: Sequence[Record],
    names: Mapping[str, int],
    epoch: int | None,
    db: sqlite3.Connection,
) -> None:
    for record in records:
        check_timestamp(record)
    if len(records) == 1 and after > 0 and _insert_next(session, after, records[0], epoch, db):
        return
    found = db.execute(_SELECT_HEAD, (session,)).fetchone()
    if found is None:
        _find_row(session, db)
    sid, parent, length, head, stored_epoch = found or (None, None, 0, GENESIS, 0)
    # guard: sqlite-append-epoch
    if epoch is not None and epoch != stored_epoch:
        raise taken_over(session)
    if length != after:
        raise stale_append(session, length, after)
    if head != records[0].prev:
        raise diverged_append(session, after)
    if names and sid is not None:
        segments = select_segments(session, db) if parent is not None else [(sid, 0, length)]
        _check_unique_names(session, names, segments, db)
    for hash_ in (hash_ for record in records for hash_ in record.event.required_blobs):
        if not db.execute("SELECT 1 FROM blobs WHERE hash = ?", (hash_,)).fetchone():
            raise missing_blob(session, hash_)
    first, last = records[0], records[-1]
    if sid is None:
        sid = db.execute(_INSERT_SESSION, (session, None, 0, 0, GENESIS, first.at, first.at, 0)).lastrowid
        seal_origin(session, sid, None, 0, first.hash, db)
    for record in records:
        gseq = db.execute(_INSERT_EVENT, _event_row(sid, record, db))
    db.execute(_UPDATE_HEAD, (last.seq, last.hash, last.at, gseq.lastrowid, first.at, sid))


def _insert_next(session: str, after: int, record: Record, epoch: int | None, db: sqlite3.Connection) -> bool:
    """Append one record, as nearly every append does, in two statements; False if nothing was written.

    The first statement contains the checks, and writes nothing if one of them fails. It does not check what a fork
    shares and what a record refers to.
    """
    if len(record.data) > BLOB_BYTES or record.event.required_blobs:
        return False
    marks = record.seq, record.at, record.event.unique_key, bytes.fromhex(record.hash), record.data
    try:
        inserted = db.execute(_INSERT_NEXT, (*marks, session, after, record.prev, epoch))
    except sqlite3.IntegrityError:
        return False  # the unique key was used before, or another program changed the rows
    if inserted.rowcount != 1:
        return False
    db.execute(_UPDATE_NEXT, (record.seq, record.hash, record.at, inserted.lastrowid, session))
    return True


def insert_fork(session: str, at: int, new: str, db: sqlite3.Connection) -> None:
    parent = db.execute("SELECT sid, seq FROM sessions WHERE uid = ?", (session,)).fetchone()
    if parent is None:
        _find_row(session, db)
        raise SessionNotFound(f"there is no session {session!r} to fork")
    sid, length = parent
    if not 0 <= at <= length:
        raise fork_beyond_end(session, length, at)
    if _find_row(new, db) is not None:
        raise session_exists(new)
    head, time = GENESIS, 0.0
    if at:
        owner = next((sid for sid, lo, hi in select_segments(session, db) if lo < at <= hi), None)
        row = db.execute("SELECT hash, at FROM events WHERE sid = ? AND seq = ?", (owner, at)).fetchone()
        if row is None:
            raise _locate_corruption(session, Corrupt(f"record {at} is missing"), db)
        head, time = row[0].hex(), row[1]
    touched = db.execute("SELECT coalesce(max(gseq), 0) FROM events").fetchone()[0]
    made = db.execute(_INSERT_SESSION, (new, sid, at, at, head, time, time, touched)).lastrowid
    seal_origin(new, made, sid, at, head, db)


def select_records(
    session: str, after: int, db: sqlite3.Connection, *, limit: int | None = None
) -> tuple[Record, ...]:
    row = _find_row(session, db)
    if row is None or after >= row.length:
        return ()
    until, head = find_page_end(after, limit, row.length, row.head)
    try:
        records = tuple(_verify_records(select_segments(session, db), after, until, head, db))
        if after == 0:
            check_origin(session, row, len(records), lambda place: records[place].hash)
        if after == 0 and head:
            check_times(row, len(records), lambda place: records[place].at)
    except Corrupt as error:
        raise _locate_corruption(session, error, db) from error
    return records


def select_intact_records(session: str, db: sqlite3.Connection) -> tuple[Record, ...]:
    """Return the records before the first damaged one."""
    records: list[Record] = []
    row = None
    try:
        row = find_row(session, db)
        if row is not None:
            records.extend(_verify_records(select_segments(session, db), 0, row.length, row.head, db))
    except Corrupt:
        # extend() has added the records before the damage; reading the session reports it.
        pass
    try:
        if row is not None:
            check_origin(session, row, len(records), lambda place: records[place].hash)
    except Corrupt:
        return ()  # the records belong to another session
    return tuple(records)


def repair_tail(session: str, record: Record, epoch: int | None, db: sqlite3.Connection) -> None:
    """Replace the torn end of a session with this record."""
    check_timestamp(record)
    if epoch is not None and epoch != select_epoch(session, db):
        raise taken_over(session)
    try:
        select_records(session, 0, db)
    except Corrupt as error:
        if not error.torn:
            raise
        at = error.last_good or 0
    else:
        raise Conflict(f"session {session!r} is already repaired: another process wrote to it; read it again")
    good = select_intact_records(session, db)
    if at + 1 != record.seq or record.prev != (good[-1].hash if good else GENESIS):
        raise diverged_append(session, at)
    row = _find_row(session, db)
    assert row is not None
    _replace_tail(session, row, at, record, db)


def restart_log(session: str, head: str, record: Record, db: sqlite3.Connection) -> None:
    """Replace all records of a log with this one."""
    check_timestamp(record)
    row = _find_row(session, db)
    if row is None or row.head != head:
        raise diverged_append(session, row.length if row else 0)
    if row.parent is not None or db.execute("SELECT 1 FROM sessions WHERE parent = ?", (row.sid,)).fetchone():
        raise restarted_fork(session)
    _replace_tail(session, row, 0, record, db)


def _replace_tail(session: str, row: SessionRow, at: int, record: Record, db: sqlite3.Connection) -> None:
    """Replace the records after `at` with this one."""
    db.execute("DELETE FROM events WHERE sid = ? AND seq > ?", (row.sid, at))
    db.execute("DELETE FROM snapshots WHERE sid = ? AND seq > ?", (row.sid, at))
    gseq = db.execute(_INSERT_EVENT, _event_row(row.sid, record, db))
    db.execute(_UPDATE_HEAD, (record.seq, record.hash, record.at, gseq.lastrowid, record.at, row.sid))
    if at <= row.forked_at:
        move_origin(session, row, record, db)


def select_epoch(session: str, db: sqlite3.Connection) -> int:
    row = db.execute("SELECT epoch FROM sessions WHERE uid = ?", (session,)).fetchone()
    return row[0] if row else 0


def raise_epoch(session: str, epoch: int, db: sqlite3.Connection) -> None:
    """Add one to the epoch of a session; `Conflict` if another process did so since it was read."""
    changed = db.execute(
        "UPDATE sessions SET epoch = epoch + 1 WHERE uid = ? AND epoch = ?", (session, epoch)
    )
    if not changed.rowcount:
        if _find_row(session, db) is None:
            raise SessionNotFound(f"there is no session {session!r} to take over")
        raise taken_over(session)


def select_sessions(limit: int, db: sqlite3.Connection) -> tuple[SessionInfo, ...]:
    return tuple(
        SessionInfo(
            id=uid, length=seq, created_at=created, updated_at=updated, parent=parent, forked_at=fork_seq
        )
        for uid, seq, created, updated, parent, fork_seq in db.execute(_SELECT_SESSIONS, (limit,))
    )


def insert_blob(data: bytes, db: sqlite3.Connection) -> str:
    key = sha256(data).hexdigest()
    db.execute(_INSERT_BLOB, (key, data))
    return key


def select_blob(hash_: str, db: sqlite3.Connection) -> bytes | None:
    row = db.execute("SELECT bytes FROM blobs WHERE hash = ?", (hash_,)).fetchone()
    if row is None:
        return None
    data: bytes = row[0]
    if sha256(data).hexdigest() != hash_:
        file = db.execute("PRAGMA database_list").fetchone()[2]
        raise Corrupt(f"store {file}: blob {hash_} is not what was written; restore the file from a backup")
    return data


def _find_row(session: str, db: sqlite3.Connection) -> SessionRow | None:
    try:
        return find_row(session, db)
    except Corrupt as error:
        raise _locate_corruption(session, error, db) from error


def select_segments(session: str, db: sqlite3.Connection) -> list[Segment]:
    """Return the session's own segment, which has no upper end, then those of its ancestors."""
    return db.execute(_SELECT_SEGMENTS, (session,)).fetchall()


def _check_unique_names(
    session: str, names: Mapping[str, int], segments: Sequence[Segment], db: sqlite3.Connection
) -> None:
    for name in names:
        for sid, _, hi in segments:
            if db.execute(_SELECT_NAME, (sid, name, hi)).fetchone():
                raise repeated_name(session, name)


def _event_row(sid: int | None, record: Record, db: sqlite3.Connection) -> tuple[object, ...]:
    """Return the values of `_INSERT_EVENT`. One of the last two, `blob` and `data`, is null."""
    marks = sid, record.seq, record.at, record.event.unique_key, bytes.fromhex(record.hash)
    if len(record.data) <= BLOB_BYTES:
        return *marks, None, record.data
    return *marks, insert_blob(record.data, db), None


def _verify_records(
    segments: Sequence[Segment], after: int, length: int, head: str, db: sqlite3.Connection
) -> Iterator[Record]:
    """Yield the records above `after` up to `length`, each verified to be unaltered and to follow the one before.

    `head` is the hash of the last record; empty if the log goes on after it.
    """
    prev, expected = GENESIS, max(after, 1)
    own = segments[0][1] if segments else 0
    find_redaction = partial(_find_redaction, segments, {}, db)
    for sid, lo, hi in reversed(segments):
        # Starts one record early: the first record returned must follow its hash.
        bounds = max(lo, after - 1), hi if head else min(hi, length)
        for seq, at, once, digest, data in db.execute(_SELECT_RECORDS, (sid, *bounds)):
            hash_ = digest.hex()
            if seq != expected:
                raise Corrupt(f"record {expected} is missing", last_good=expected - 1)
            if seq > after:
                is_last = seq == length and head != ""
                if data is None or (is_last and _is_truncated(data)):
                    raise Corrupt(
                        f"the content of record {seq} is missing",
                        last_good=seq - 1,
                        torn=is_last and seq > own,
                    )
                yield decode_record(seq, at, once, hash_, data, prev, find_redaction)
            prev, expected = hash_, seq + 1
    check_end(expected, prev, length, head, own)


def _find_redaction(
    segments: Sequence[Segment], inherited: dict[str, Event], db: sqlite3.Connection, key: str
) -> Event | None:
    """Return the event with this unique key; its record is verified with the others.

    A record that was redacted after a fork began is proved by the log that it was forked from: `inherited` caches
    the redactions of those logs.
    """
    for sid, _, hi in segments:
        # guard: sqlite-redaction-key
        for (data,) in db.execute(_SELECT_BY_KEY, (sid, key, hi)):
            return decode_event(data)
    if not inherited:
        for sid, _, hi in segments[1:]:
            for (uid,) in db.execute(_SELECT_REDACTED_LATER, (sid, hi)):
                inherited.update(list_redactions(select_intact_records(uid, db)))
    return inherited.get(key)


def _is_truncated(data: bytes) -> bool:
    """Return True if the data is the beginning of an event: written in part, not edited."""
    try:
        msgspec.json.decode(data, type=msgspec.Raw)
    except msgspec.DecodeError as error:
        return "truncated" in str(error)
    return False


def _locate_corruption(session: str, error: Corrupt, db: sqlite3.Connection) -> Corrupt:
    return locate_corruption(db.execute("PRAGMA database_list").fetchone()[2], session, error)


_SELECT_SEGMENTS = """
WITH RECURSIVE line (sid, parent, lo, hi) AS (
    SELECT sid, parent, fork_seq, 9223372036854775807 FROM sessions WHERE uid = ?
    UNION ALL
    SELECT above.sid, above.parent, above.fork_seq, min(line.lo, line.hi)
    FROM line JOIN sessions AS above ON above.sid = line.parent AND above.sid < line.sid
)
SELECT sid, lo, hi FROM line WHERE lo < hi
"""

_SELECT_RECORDS = """
SELECT seq, at, once, events.hash, CAST(coalesce(data, bytes) AS BLOB)
FROM events LEFT JOIN blobs ON blobs.hash = events.blob
WHERE sid = ? AND seq > ? AND seq <= ?
ORDER BY seq
"""

_SELECT_BY_KEY = """
SELECT CAST(coalesce(data, bytes) AS BLOB) FROM events LEFT JOIN blobs ON blobs.hash = events.blob
WHERE sid = ? AND once = ? AND seq <= ?
"""

_SELECT_REDACTED_LATER = """
SELECT uid FROM sessions
WHERE sid = ?1 AND EXISTS (SELECT 1 FROM events WHERE sid = ?1 AND once GLOB 'redaction:*' AND seq > ?2)
"""

_SELECT_HEAD = "SELECT sid, parent, seq, head, epoch FROM sessions WHERE uid = ?"

_SELECT_NAME = "SELECT 1 FROM events WHERE sid = ? AND once = ? AND seq <= ?"

_SELECT_SESSIONS = """
SELECT s.uid, s.seq, s.created, s.updated, coalesce(p.uid, ''), s.fork_seq
FROM sessions AS s LEFT JOIN sessions AS p ON p.sid = s.parent
ORDER BY s.touched DESC, s.sid DESC
LIMIT ?
"""
# Equal `touched` means forks made since that record: the later fork has the higher sid.

_INSERT_SESSION = """
INSERT INTO sessions (sid, uid, parent, fork_seq, seq, head, created, updated, touched)
VALUES (
    1 + max(
        coalesce((SELECT max(sid) FROM sessions), 0),
        coalesce((SELECT max(sid) FROM origins), 0),
        coalesce((SELECT max(sid) FROM removals), 0)
    ),
    ?, ?, ?, ?, ?, ?, ?, ?
)
"""
# Above the sid of every session that ever existed: the sid of a deleted session is not reused.

_INSERT_EVENT = """
INSERT INTO events (sid, seq, at, once, hash, blob, data) VALUES (?, ?, ?, ?, ?, ?, CAST(? AS TEXT))
"""

_INSERT_NEXT = """
INSERT INTO events (sid, seq, at, once, hash, data)
SELECT sid, ?, ?, ?, ?, CAST(? AS TEXT) FROM sessions
WHERE uid = ? AND seq = ? AND head = ? AND epoch = ifnull(?, epoch) AND parent IS NULL
"""

_UPDATE_NEXT = "UPDATE sessions SET seq = ?, head = ?, updated = ?, touched = ? WHERE uid = ?"

# Existing content is left alone unless it is damaged; then this restores it.
_INSERT_BLOB = """
INSERT INTO blobs (hash, bytes) VALUES (?, ?)
ON CONFLICT (hash) DO UPDATE SET bytes = excluded.bytes WHERE bytes <> excluded.bytes
"""

_UPDATE_HEAD = """
UPDATE sessions SET seq = ?, head = ?, updated = ?, touched = ?,
    created = CASE WHEN seq = fork_seq THEN ? ELSE created END
WHERE sid = ?
"""
