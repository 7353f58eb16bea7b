"""Proof that a session's row is the one that was made: its id, its place in the tree, its first record.

The chain of hashes proves what a line of records says and in which order, but not whose it is.  So a
row in `origins`, written with the session and never changed, has the id it was made under and a hash
over that id, the parent and the record the session's own part begins with.  A session that was renamed,
exchanged with another or deleted no longer fits to it; neither do times in its row that its
records do not have.

Sessions of older versions have no such row and are believed.  Somebody who changes `origins` as well
leaves no trace.
"""

import sqlite3
from collections.abc import Sequence
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
    origin: str | None
    """The id it was made under; None in a log of an older version."""
    origin_hash: str | None


def find_row(session: str, db: sqlite3.Connection) -> SessionRow | None:
    """The row of a session; raises `Corrupt` when there was one that is gone, or if it was renamed."""
    found = db.execute(_SELECT_ROW, (session,)).fetchone()
    if found is None:
        check_not_deleted(session, db)
        return None
    row = SessionRow(*found)
    if row.origin not in (None, session):
        raise Corrupt(f"it was recorded as session {row.origin!r} and renamed by another program")
    return row


def check_not_deleted(session: str, db: sqlite3.Connection) -> None:
    if db.execute("SELECT 1 FROM origins WHERE uid = ?", (session,)).fetchone():
        raise Corrupt("it was recorded here, and was deleted or renamed by another program")


def seal_origin(
    session: str, sid: int | None, parent: int | None, forked_at: int, anchor: str, db: sqlite3.Connection
) -> None:
    """`anchor` is the hash of a session's first record; of a fork, that of the record it forked at."""
    seal = _hash_origin(session, sid, parent, forked_at, anchor)
    db.execute("INSERT INTO origins (uid, sid, seal) VALUES (?, ?, ?)", (session, sid, seal))


def move_origin(session: str, row: SessionRow, first: Record, db: sqlite3.Connection) -> None:
    """A torn line lost all records of its own and begins again with this one."""
    if row.parent is None:
        seal = _hash_origin(session, row.sid, row.parent, row.forked_at, first.hash)
        db.execute("UPDATE origins SET seal = ? WHERE sid = ?", (seal, row.sid))
    db.execute("UPDATE sessions SET created = ? WHERE sid = ?", (first.at, row.sid))


def check_origin(session: str, row: SessionRow, records: Sequence[Record]) -> None:
    """Hold a line, given from its first record on, against the row that was made for it."""
    if row.origin_hash is None or not records:
        return
    anchored = row.forked_at if row.parent is not None else 1
    if anchored and len(records) >= anchored:
        anchor = records[anchored - 1].hash
        if _hash_origin(session, row.sid, row.parent, row.forked_at, anchor) != row.origin_hash:
            raise Corrupt("its records are not those it was made with: another session's were put here")


def check_times(row: SessionRow, records: Sequence[Record]) -> None:
    """Hold the times of the row against those of the whole line."""
    if row.origin_hash is None or not records:
        return
    first = records[row.forked_at] if len(records) > row.forked_at else records[-1]
    if (row.created, row.updated) != (first.at, records[-1].at):
        raise Corrupt("the times of its row are not those of its records: another program changed them")


def _hash_origin(session: str, sid: int | None, parent: int | None, forked_at: int, anchor: str) -> str:
    return sha256(f"{sid} {parent} {forked_at} {anchor} {session}".encode()).hexdigest()


_SELECT_ROW = """
SELECT s.sid, s.parent, s.fork_seq, s.seq, s.head, s.created, s.updated, o.uid, o.seal
FROM sessions AS s LEFT JOIN origins AS o ON o.sid = s.sid
WHERE s.uid = ?
"""
