"""Detects session rows that were renamed, exchanged or deleted by another program.

The hash chain proves the content and order of a session's records, but not which session they belong to. So a
row in `origins`, written with the session and never changed, holds the id it was created with and a hash over
that id, the parent and the record its own part begins with. A session that was renamed, exchanged or deleted
does not match it; neither do times in its row that differ from its records.

A session without such a row is refused: another program removed it. A program that changes `origins` as well
is not detected.
"""

import sqlite3
from collections.abc import Callable
from hashlib import sha256
from typing import NamedTuple

from bridle.values.errors import Corrupt
from bridle.values.record import Record


class SessionRow(NamedTuple):
    sid: int
    parent: int | None
    forked_at: int
    length: int
    head: str
    created: float
    updated: float
    origin: str
    """Id the session was created with."""
    origin_hash: str


def find_row(session: str, db: sqlite3.Connection) -> SessionRow | None:
    """Return the row of a session; raise `Corrupt` if it was deleted or renamed."""
    found = db.execute(_SELECT_ROW, (session,)).fetchone()
    if found is None:
        check_not_deleted(session, db)
        return None
    row = SessionRow(*found)
    if row.origin is None:
        raise Corrupt("its row in the table origins was removed by another program; restore it from a backup")
    if row.origin != session:
        raise Corrupt(f"it was recorded as session {row.origin!r} and renamed by another program")
    return row


def check_not_deleted(session: str, db: sqlite3.Connection) -> None:
    if db.execute("SELECT 1 FROM origins WHERE uid = ?", (session,)).fetchone():
        raise Corrupt("it was recorded here, and was deleted or renamed by another program")


def seal_origin(
    session: str, sid: int | None, parent: int | None, forked_at: int, anchor: str, db: sqlite3.Connection
) -> None:
    """Write the origin of a new session; `anchor` is the hash of its first or its forked record."""
    seal = _hash_origin(session, sid, parent, forked_at, anchor)
    db.execute("INSERT INTO origins (uid, sid, seal) VALUES (?, ?, ?)", (session, sid, seal))


def move_origin(session: str, row: SessionRow, first: Record, db: sqlite3.Connection) -> None:
    """Update the origin of a torn session that lost all records of its own and begins again with `first`."""
    if row.parent is None:
        seal = _hash_origin(session, row.sid, row.parent, row.forked_at, first.hash)
        db.execute("UPDATE origins SET seal = ? WHERE sid = ?", (seal, row.sid))
    db.execute("UPDATE sessions SET created = ? WHERE sid = ?", (first.at, row.sid))


def check_origin(session: str, row: SessionRow, count: int, hash_at: Callable[[int], str]) -> None:
    """Check the records, of which there are `count` from the first one on, against the origin of the session."""
    if not count:
        return
    anchored = row.forked_at if row.parent is not None else 1
    if anchored and count >= anchored:
        anchor = hash_at(anchored - 1)
        # guard: sqlite-origin-hash
        if _hash_origin(session, row.sid, row.parent, row.forked_at, anchor) != row.origin_hash:
            raise Corrupt("its records belong to another session")


def check_times(row: SessionRow, count: int, time_at: Callable[[int], float]) -> None:
    """Check the times of the row against those of its records."""
    if not count:
        return
    if (row.created, row.updated) != (time_at(min(row.forked_at, count - 1)), time_at(count - 1)):
        raise Corrupt("its times differ from those of its records: another program changed them")


def _hash_origin(session: str, sid: int | None, parent: int | None, forked_at: int, anchor: str) -> str:
    return sha256(f"{sid} {parent} {forked_at} {anchor} {session}".encode()).hexdigest()


_SELECT_ROW = """
SELECT s.sid, s.parent, s.fork_seq, s.seq, s.head, s.created, s.updated, o.uid, o.seal
FROM sessions AS s LEFT JOIN origins AS o ON o.sid = s.sid
WHERE s.uid = ?
"""
