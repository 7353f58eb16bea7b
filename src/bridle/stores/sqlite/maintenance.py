"""Checks, prunes and copies the database of the SQLite store."""

import errno
import os
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from hashlib import sha256
from pathlib import Path

from bridle.ports.store import UnusedBlob
from bridle.values.errors import Conflict, MisuseError, SessionNotFound, Unusable

from .database_file import (
    LOCK_MILLISECONDS,
    SHA256,
    explain_error,
    is_disk_full,
    open_connection,
    sync_folder,
)
from .origins import find_row
from .redaction import truncate_write_ahead_log

SEAL = "PRAGMA journal_mode = DELETE"
PROBLEMS_MAX = 100
"""Problems of the file that SQLite lists at most."""


def check_file(db: sqlite3.Connection) -> tuple[str, ...]:
    """List what is wrong with the file as a whole, beyond the sessions that reading verifies."""
    found = [row[0] for row in db.execute(f"PRAGMA integrity_check({PROBLEMS_MAX})") if row[0] != "ok"]
    for table, rowid, parent, _ in db.execute("PRAGMA foreign_key_check"):
        found.append(f"row {rowid} of table {table} refers to a row of {parent} that does not exist")
    for hash_, data in db.execute("SELECT hash, bytes FROM blobs"):
        if sha256(data).hexdigest() != hash_:
            found.append(f"blob {hash_} is not what was written")
    for uid, seq, length in db.execute(_SELECT_SURPLUS):
        found.append(f"session {uid!r} has a record {seq} outside of its log of {length} records")
    for (uid,) in db.execute("SELECT uid FROM origins WHERE sid NOT IN (SELECT sid FROM sessions)"):
        found.append(f"session {uid!r} was deleted by another program")
    return tuple(found)


def delete_session(session: str, head: str, at: float, reason: str, db: sqlite3.Connection) -> None:
    """Delete a session and remember that it existed; `head` is that of the log which the caller has read."""
    row = find_row(session, db)
    if row is None:
        raise SessionNotFound(f"there is no session {session!r} to remove")
    if row.head != head:
        raise Conflict(f"session {session!r} was written to by another process; it is not removed")
    if db.execute("SELECT 1 FROM sessions WHERE parent = ?", (row.sid,)).fetchone():
        raise MisuseError(f"session {session!r} shares records with a fork; it is not removed")
    db.execute("PRAGMA secure_delete = ON")
    db.execute(
        "INSERT OR REPLACE INTO removals VALUES (?, ?, ?, ?, ?, ?)",
        (session, row.sid, row.length, head, at, reason),
    )
    for table in ("events", "origins", "snapshots", "sessions"):
        db.execute(f"DELETE FROM {table} WHERE sid = ?", (row.sid,))  # noqa: S608 - names of our own tables


def find_unused_blobs(db: sqlite3.Connection) -> tuple[UnusedBlob, ...]:
    """The blobs that no record mentions. Any text that looks like a hash counts as a mention."""
    used: set[bytes] = set()
    for blob, data in db.execute(_SELECT_BODIES):
        if blob is not None:
            used.add(blob.encode())
        used.update(SHA256.findall(data or b""))
    blobs = db.execute("SELECT hash, length(bytes) FROM blobs").fetchall()
    return tuple(UnusedBlob(hash=hash_, size=size) for hash_, size in blobs if hash_.encode() not in used)


def delete_unused_blobs(db: sqlite3.Connection) -> tuple[UnusedBlob, ...]:
    unused = find_unused_blobs(db)
    db.execute("PRAGMA secure_delete = ON")
    db.executemany("DELETE FROM blobs WHERE hash = ?", [(blob.hash,) for blob in unused])
    return unused


def shrink_file(path: Path) -> None:
    """Give the space of deleted rows back to the disk."""
    with _explain_errors(path), closing(open_connection(path, LOCK_MILLISECONDS)) as db:
        db.execute("VACUUM")
    truncate_write_ahead_log(path)


def copy_file(path: Path, target: Path) -> None:
    """Copy a database that is in use: one snapshot, durable before it gets its name.

    Nothing that exists is written or removed: `target` must not exist, nor a file that SQLite would use with it.
    """
    for ending in ("", "-wal", "-shm", "-journal"):
        if os.path.lexists(f"{target}{ending}"):
            raise MisuseError(f"{target}{ending} exists; choose another file for the copy, or remove it")
    # guard: backup-draft-name
    partial = target.with_name(f".{target.name}.{secrets.token_hex(8)}.partial")
    try:
        # Of an unknown name, and never one that exists: a link there would lead elsewhere.
        made = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            _copy_rows(path, partial)
            os.fsync(made)
            if not os.path.samestat(os.fstat(made), os.lstat(partial)):
                raise Unusable(
                    f"{partial} was replaced by another program; choose another folder for the copy"
                )
        finally:
            os.close(made)
        _give_name(partial, target)
        sync_folder(target.parent)
    except FileExistsError:
        raise MisuseError(f"{target} exists; choose another file for the copy") from None
    except OSError as error:
        raise Unusable(f"{target} cannot be written ({error.strerror}); choose another file") from error
    finally:
        for ending in ("", "-journal", "-wal", "-shm"):
            partial.with_name(f"{partial.name}{ending}").unlink(missing_ok=True)


def _copy_rows(path: Path, partial: Path) -> None:
    with (
        _explain_errors(path),
        closing(open_connection(path, LOCK_MILLISECONDS)) as source,
        closing(sqlite3.connect(partial)) as copy,
    ):
        try:
            source.backup(copy)
            # They are derived from the records, so a copy does not need them.
            copy.execute("PRAGMA secure_delete = ON")
            copy.execute("DELETE FROM snapshots")
            copy.commit()
            copy.execute(SEAL)
        except sqlite3.Error as error:
            if is_disk_full(partial, error):
                raise OSError(errno.ENOSPC, "the disk is full; make room") from error
            raise


def _give_name(partial: Path, target: Path) -> None:
    """Rename a file to a name that does not exist; raises FileExistsError if another program has made it."""
    try:
        os.link(partial, target, follow_symlinks=False)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600))
        partial.replace(target)


def seal_file(path: Path) -> None:
    """Say in the header of a copy that it has no write-ahead log: one that is beside it later is not its own."""
    with _explain_errors(path), closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute(SEAL)


@contextmanager
def _explain_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise explain_error(path, error) from error


_SELECT_SURPLUS = """
SELECT uid, events.seq, sessions.seq FROM events JOIN sessions USING (sid)
WHERE events.seq > sessions.seq OR events.seq <= fork_seq
"""

_SELECT_BODIES = """
SELECT blob, CAST(coalesce(data, bytes) AS BLOB) FROM events LEFT JOIN blobs ON blobs.hash = events.blob
"""
