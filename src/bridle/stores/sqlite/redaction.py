"""Removes the content of a record from the file of the SQLite store.

The row of the record gets the data that is left, and keeps its hash. Deleted bytes are overwritten with zeros
(secure_delete), and the write-ahead log, which may still hold them, is merged into the database and emptied.
"""

import logging
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path

from bridle.stores.chain import refers_to_blob
from bridle.stores.conflicts import check_evidence, diverged_append
from bridle.values.record import Record

from .database_file import LOCK_MILLISECONDS, explain_error, open_connection
from .rows import BLOB_BYTES, insert_blob, insert_records, select_segments
from .snapshots import delete_snapshot

LOG = logging.getLogger("bridle")


def redact_record(
    session: str,
    seq: int,
    data: bytes,
    evidence: Mapping[str, Record],
    blobs: Sequence[str],
    db: sqlite3.Connection,
) -> None:
    owner = next((sid for sid, lo, hi in select_segments(session, db) if lo < seq <= hi), None)
    row = db.execute("SELECT gseq, blob FROM events WHERE sid = ? AND seq = ?", (owner, seq)).fetchone()
    if row is None:
        raise diverged_append(session, seq)
    sharing = [uid for (uid,) in db.execute(_SELECT_SHARING, (owner, seq))]
    check_evidence(session, seq, sharing, evidence)
    for uid in sharing:
        head = db.execute("SELECT seq, head FROM sessions WHERE uid = ?", (uid,)).fetchone()
        if head != (evidence[uid].seq - 1, evidence[uid].prev):
            raise diverged_append(uid, evidence[uid].seq - 1)
    db.execute("PRAGMA secure_delete = ON")
    for uid in sharing:
        record = evidence[uid]
        key = record.event.unique_key
        insert_records(uid, record.seq - 1, (record,), {key: record.seq} if key else {}, None, db)
        delete_snapshot(uid, db)
    gseq, old_blob = row
    blob = insert_blob(data, db) if len(data) > BLOB_BYTES else None
    db.execute(_UPDATE_BODY, (blob, None if blob else data, gseq))
    for hash_ in {*blobs, *([old_blob] if old_blob else [])}:
        if not refers_to_blob(hash_, (row[0] for row in db.execute(_SELECT_MENTIONS, (hash_,)))):
            db.execute(_DELETE_BLOB, (hash_, hash_))


def truncate_write_ahead_log(path: Path) -> None:
    """Empty the write-ahead log; warns if another process is reading from it, or the disk refuses it."""
    reason = ""
    try:
        db = open_connection(path, LOCK_MILLISECONDS)
        try:
            busy = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        finally:
            db.close()
    except sqlite3.Error as error:
        busy, reason = True, f" ({explain_error(path, error)})"
    if busy:
        LOG.warning(
            "store %s: removed content stays in its -wal file until every process that uses the store has closed it%s",
            path,
            reason,
        )


_SELECT_SHARING = """
WITH RECURSIVE sharing (sid, uid, seq) AS (
    SELECT sid, uid, ?2 FROM sessions WHERE sid = ?1
    UNION ALL
    SELECT fork.sid, fork.uid, sharing.seq
    FROM sharing JOIN sessions AS fork ON fork.parent = sharing.sid AND fork.fork_seq >= sharing.seq
)
SELECT uid FROM sharing
"""

_UPDATE_BODY = "UPDATE events SET blob = ?, data = CAST(? AS TEXT) WHERE gseq = ?"

# Searching the text first: most records mention no blob, and are not decoded.
_SELECT_MENTIONS = """
SELECT CAST(coalesce(data, bytes) AS BLOB) FROM events LEFT JOIN blobs ON blobs.hash = events.blob
WHERE instr(CAST(coalesce(data, bytes) AS BLOB), CAST(? AS BLOB))
"""

_DELETE_BLOB = "DELETE FROM blobs WHERE hash = ? AND NOT EXISTS (SELECT 1 FROM events WHERE blob = ?)"
