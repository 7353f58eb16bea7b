"""Keeps and reads the snapshots of logs; see `SnapshotStore` in ports/store.py."""

import sqlite3
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TypeVar

from bridle.ports.store import RawRecord, RestoreSnapshot, StoredSnapshot
from bridle.values.errors import Corrupt
from bridle.values.record import Record

from .origins import check_origin, check_times, find_row
from .rows import Segment, select_records, select_segments

T = TypeVar("T")


def select_with_snapshot(
    session: str, restore: RestoreSnapshot[T], db: sqlite3.Connection
) -> tuple[T | None, Sequence[Record]]:
    found = db.execute(_SELECT_SNAPSHOT, (session,)).fetchone()
    if found is not None:
        seq, data, *texts = found
        # Bytes that are no text: another program wrote them, and the snapshot does not fit.
        head, fold_version, digest, replaced = (text.decode(errors="replace") for text in texts)
        snapshot = StoredSnapshot(
            seq=seq, head=head, fold_version=fold_version, data=data, digest=digest, replaced=replaced
        )
        tail = _select_tail(session, snapshot, db)
        if tail is not None:
            restored = restore(snapshot, _select_raw(select_segments(session, db), seq, db))
            if restored is not None:
                return restored, tail
    return None, select_records(session, 0, db)


def _select_tail(session: str, snapshot: StoredSnapshot, db: sqlite3.Connection) -> Sequence[Record] | None:
    """Return the records after the snapshot; None if there is damage, which reading all records names."""
    try:
        row = find_row(session, db)
        if row is None or row.length < snapshot.seq:
            return None
        segments = select_segments(session, db)

        def find(place: int) -> tuple[float, str]:
            owner = next((sid for sid, lo, hi in segments if lo < place + 1 <= hi), None)
            at, digest = db.execute(_SELECT_MARKS, (owner, place + 1)).fetchone() or (0.0, b"")
            return at, digest.hex()

        if find(snapshot.seq - 1)[1] != snapshot.head or find(row.length - 1)[1] != row.head:
            return None
        check_origin(session, row, row.length, lambda place: find(place)[1])
        check_times(row, row.length, lambda place: find(place)[0])
        return select_records(session, snapshot.seq, db)
    except Corrupt:
        return None


def _select_raw(segments: Sequence[Segment], until: int, db: sqlite3.Connection) -> Iterator[RawRecord]:
    return chain.from_iterable(
        db.execute(_SELECT_RAW, (sid, lo, min(hi, until))) for sid, lo, hi in reversed(segments)
    )


def insert_snapshot(session: str, snapshot: StoredSnapshot, db: sqlite3.Connection) -> None:
    db.execute(
        _INSERT_SNAPSHOT,
        (
            snapshot.seq,
            snapshot.head,
            snapshot.fold_version,
            snapshot.data,
            snapshot.digest,
            snapshot.replaced,
            session,
            snapshot.seq,
            snapshot.head,
        ),
    )


def delete_snapshot(session: str, db: sqlite3.Connection) -> None:
    db.execute("DELETE FROM snapshots WHERE sid = (SELECT sid FROM sessions WHERE uid = ?)", (session,))


_SELECT_SNAPSHOT = """
SELECT snapshots.seq, data, CAST(snapshots.head AS BLOB), CAST(fold_version AS BLOB), CAST(digest AS BLOB),
    CAST(replaced AS BLOB)
FROM snapshots JOIN sessions USING (sid) WHERE uid = ?
"""

_SELECT_MARKS = "SELECT at, hash FROM events WHERE sid = ? AND seq = ?"

_SELECT_RAW = """
SELECT at, events.hash, CAST(coalesce(data, bytes) AS BLOB)
FROM events LEFT JOIN blobs ON blobs.hash = events.blob
WHERE sid = ? AND seq > ? AND seq <= ?
ORDER BY seq
"""

_INSERT_SNAPSHOT = """
INSERT OR REPLACE INTO snapshots (sid, seq, head, fold_version, data, digest, replaced)
SELECT sid, ?, ?, ?, ?, ?, ? FROM sessions WHERE uid = ? AND seq = ? AND head = ?
"""
