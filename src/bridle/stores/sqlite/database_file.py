"""Creates, opens and checks the database file of the SQLite store.

An unusable file is refused when the store is opened, before anything is spent on a model, with one line that
names the file and a remedy.

The file is opened only through SQLite. On POSIX, closing any descriptor of a file releases all locks this
process holds on it, including those of another store.
"""

import os
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cache, partial
from pathlib import Path
from typing import TypeVar

from bridle.values.errors import Corrupt, StoreError, Unusable

from .leftovers import check_leftovers

T = TypeVar("T")

SHA256 = re.compile(rb"[0-9a-f]{64}")
APPLICATION = int.from_bytes(b"BRDL", "big")
FORMAT = 1
"""Version of the file format; raised only if older versions of Bridle could not use the new files."""

SQLITE_MIN = (3, 37, 0)
"""First version with STRICT tables."""

LOCK_MILLISECONDS = 30_000
"""Time to wait for another process that is writing. Its commits take milliseconds."""

POLL_MILLISECONDS = 50
"""Busy timeout of one attempt to take the write lock.

SQLite polls a busy lock less and less often, down to ten times a second, and has no queue: a waiting process
can starve beside a busy one. Restarting the wait keeps the polling frequent.
"""

FULL_BYTES = 64 * 1024
"""A disk with less room is full: the shared memory of a store takes half of this."""

SCHEMA = Path(__file__).with_name("schema.sql")
TABLES = frozenset({"blobs", "events", "origins", "removals", "sessions", "snapshots"})

PRAGMAS = (
    "PRAGMA synchronous = FULL",  # NORMAL survives a crash of the process, but not a power loss
    "PRAGMA fullfsync = ON",  # where fsync alone leaves the data in the drive's cache (macOS)
    "PRAGMA foreign_keys = ON",
)

NETWORK_FILE_SYSTEMS = {
    "afs", "ceph", "cifs", "fuse.glusterfs", "fuse.sshfs", "glusterfs", "lustre", "ncpfs", "nfs", "nfs4",
    "smb3", "smbfs",
}  # fmt: skip
"""File systems whose locks and shared memory are unreliable or slow between machines."""

_ERRORS_BY_CODE: dict[int, tuple[type[StoreError], str]] = {
    sqlite3.SQLITE_BUSY: (Unusable, "another process keeps it locked; end that process or try again"),
    sqlite3.SQLITE_CANTOPEN: (
        Unusable,
        "it cannot be opened; check that it exists and that you may write there",
    ),
    sqlite3.SQLITE_CONSTRAINT: (Corrupt, "its rows contradict one another; restore it from a backup"),
    sqlite3.SQLITE_CORRUPT: (
        Corrupt,
        "the file is damaged; restore it from a backup: bridle store restore FILE",
    ),
    sqlite3.SQLITE_FULL: (Unusable, "the disk is full; make room and resume"),
    sqlite3.SQLITE_IOERR: (
        Unusable,
        "the disk refuses it: it fails, or a quota or a limit of file sizes is reached; check it and resume",
    ),
    sqlite3.SQLITE_NOTADB: (Unusable, "it is not a database, or its start is damaged; choose another path"),
    sqlite3.SQLITE_PERM: (Unusable, "it cannot be written; change its permissions or choose another path"),
    sqlite3.SQLITE_READONLY: (
        Unusable,
        "it cannot be written; change its permissions or choose another path",
    ),
}

_creation_lock = threading.Lock()


def find_file(path: Path) -> Path:
    """Return the absolute path of the file, with symbolic links resolved."""
    try:
        # guard: store-path-resolved
        return path.resolve()
    except (OSError, RuntimeError) as error:
        raise Unusable(f"store {path}: its symbolic links lead nowhere; choose another path") from error


def prepare_file(path: Path) -> None:
    """Create the file and its tables if needed; raise `Unusable` if the file cannot be used."""
    if sqlite3.sqlite_version_info < SQLITE_MIN:
        raise Unusable(
            f"SQLite {sqlite3.sqlite_version} of this Python is too old for stores; 3.37 is needed"
        )
    with _creation_lock:
        check_leftovers(path)
        _create_database(path)
        try:
            db = open_connection(path, POLL_MILLISECONDS)
            try:
                _create_tables(db, path)
            finally:
                db.close()
        except sqlite3.Error as error:
            raise explain_error(path, error) from error


def open_connection(path: Path, busy_milliseconds: int) -> sqlite3.Connection:
    """Connect to an existing file. A removed file is not created again, because it would be empty."""
    db = sqlite3.connect(
        f"{path.as_uri()}?mode=rw", uri=True, isolation_level=None, timeout=busy_milliseconds / 1000
    )
    try:
        for pragma in PRAGMAS:
            # The first pragma reads the schema, which a process that is creating the file keeps locked.
            retry_while_locked(partial(db.execute, pragma))
    except BaseException:
        db.close()
        raise
    return db


def retry_while_locked(act: Callable[[], T]) -> T:
    """Run an action that takes a lock, retrying while another process holds it."""
    deadline = time.monotonic() + LOCK_MILLISECONDS / 1000
    while True:
        try:
            return act()
        except sqlite3.OperationalError as error:
            if _primary_code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            # Some locks are refused at once, whatever the busy timeout says.
            time.sleep(0.001)


def explain_error(path: Path, error: sqlite3.Error) -> StoreError:
    """Translate an SQLite error; an unlisted one is quoted."""
    code = sqlite3.SQLITE_FULL if is_disk_full(path, error) else _primary_code(error)
    kind, explanation = _ERRORS_BY_CODE.get(code, (Unusable, "it cannot be used"))
    return kind(f"store {path}: {explanation} ({error})")


def is_disk_full(path: Path, error: sqlite3.Error) -> bool:
    """True if the error is that the disk of this file is full.

    SQLite says so only about some of its writes. If its shared memory cannot grow it reports an I/O error, also to
    readers.
    """
    if _primary_code(error) != sqlite3.SQLITE_IOERR:
        return _primary_code(error) == sqlite3.SQLITE_FULL
    try:
        free = os.statvfs(path.parent)
    except (AttributeError, OSError):
        return False
    return free.f_bavail * free.f_frsize < FULL_BYTES


def find_file_system(path: Path, mounts: str) -> str:
    """Return the type of the file system that holds a path, given the text of /proc/self/mounts."""
    deepest, kind = -1, ""
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = _decode_mount_point(fields)
        if len(point) > deepest and path.is_relative_to(point):
            deepest, kind = len(point), fields[2]
    return kind


def is_mount_point(path: Path, mounts: str) -> bool:
    """Return True if something is mounted at exactly this path, given the text of /proc/self/mounts."""
    lines = (line.split(" ") for line in mounts.splitlines())
    return any(_decode_mount_point(fields) == str(path) for fields in lines if len(fields) >= 3)


def _decode_mount_point(fields: list[str]) -> str:
    # Spaces, tabs, newlines and backslashes are written as three octal digits.
    return re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), fields[1])


def _create_database(path: Path) -> None:
    _reject_network_mounts(path)
    try:
        if path.is_dir():
            raise Unusable(f"store {path}: it is a folder; name a file in it, such as {path / 'log.db'}")
        _create_folder(path.parent)
        if not os.path.lexists(path):
            _create_file(path)
        if not path.is_file():
            raise Unusable(f"store {path}: it is not a file; choose another path")
        _reject_hard_links(path)
    except OSError as error:
        raise Unusable(
            f"store {path}: a file cannot be created there ({error.strerror}); choose another path"
        ) from error
    for part in (path, path.parent):
        if not os.access(part, os.W_OK):
            raise Unusable(
                f"store {path}: {part} cannot be written; change its permissions or choose another path"
            )


def _create_file(path: Path) -> None:
    try:
        # Readable by the owner only: a log holds whole conversations.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return  # another process created it first
    sync_folder(path.parent)


def _create_folder(folder: Path) -> None:
    if folder.is_dir():
        return
    _create_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    # Otherwise a power loss could remove the folder, and with it acknowledged records.
    sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _reject_network_mounts(path: Path) -> None:
    table = Path("/proc/self/mounts")
    if not table.exists():
        return
    mounts = table.read_text(errors="replace")
    kind = find_file_system(path, mounts)
    if kind in NETWORK_FILE_SYSTEMS:
        raise Unusable(
            f"store {path}: it is on a network file system ({kind}); choose a path on a local disk"
        )
    if is_mount_point(path, mounts):
        raise Unusable(
            f"store {path}: the file is mounted there by itself, without the log and the locks beside it; "
            "mount its folder instead"
        )


def _reject_hard_links(path: Path) -> None:
    # SQLite derives the names of the other files from the name of the database: two names would mean two
    # write-ahead logs and two locks.
    names = path.stat().st_nlink
    if names > 1:
        raise Unusable(
            f"store {path}: the file has {names} names (hard links), one is allowed; remove the others"
        )


def _create_tables(db: sqlite3.Connection, path: Path) -> None:
    application, version, tables = retry_while_locked(lambda: _read_file_marks(db))
    if application != APPLICATION and (application or version or tables):
        raise Unusable(f"store {path}: it is the database of another program; choose another path")
    is_new = not (version or tables)
    if not is_new:
        _check_version(path, version)
    mode = retry_while_locked(lambda: db.execute("PRAGMA journal_mode = WAL").fetchone()[0])
    if mode != "wal":
        raise Unusable(f"store {path}: its file system has no shared memory; choose a path on a local disk")
    if is_new:
        retry_while_locked(lambda: _fill_file(db))
    _check_tables(db, path)


def _check_version(path: Path, version: int) -> None:
    """Refuse a file of a format that this version does not know."""
    if version > FORMAT:
        raise Unusable(
            f"store {path}: it was written by a newer Bridle (format {version}, this one knows {FORMAT}); "
            "upgrade Bridle or choose another path"
        )
    if version < FORMAT:
        raise Unusable(
            f"store {path}: it says that it has format {version}, which does not exist: another program changed it; "
            f"restore it from a backup, or correct it with: PRAGMA user_version = {FORMAT}"
        )


def _check_tables(db: sqlite3.Connection, path: Path) -> None:
    """Refuse a file whose tables are not those of the format. That of the snapshots is added: they are derived."""
    found = _list_columns(db)
    missing = TABLES - {table for table, _, _ in found}
    if missing - {"snapshots"}:
        names = ", ".join(sorted(missing))
        raise Unusable(
            f"store {path}: it lacks the tables {names}: another program removed them; restore it from a backup"
        )
    if missing:
        for statement in _read_schema():
            retry_while_locked(partial(db.execute, statement))
    unlike = sorted({table for table, _, _ in _list_own_columns() - found} - missing)
    if unlike:
        raise Unusable(
            f"store {path}: the columns of {', '.join(unlike)} are not those of format {FORMAT}: another program "
            "changed them; restore it from a backup or choose another path"
        )


def _fill_file(db: sqlite3.Connection) -> None:
    """Create the tables of a new file in one transaction."""
    db.execute("BEGIN IMMEDIATE")
    try:
        # Another process may have done it since.
        if not db.execute("PRAGMA user_version").fetchone()[0]:
            for statement in _read_schema():
                db.execute(statement)
            db.execute(f"PRAGMA application_id = {APPLICATION}")
            db.execute(f"PRAGMA user_version = {FORMAT}")
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _list_columns(db: sqlite3.Connection) -> frozenset[tuple[str, str, str]]:
    """Table, name and type of every column."""
    return frozenset(
        db.execute(
            "SELECT tables.name, columns.name, columns.type"
            " FROM sqlite_schema AS tables, pragma_table_info(tables.name) AS columns WHERE tables.type = 'table'"
        )
    )


@cache
def _list_own_columns() -> frozenset[tuple[str, str, str]]:
    """Columns of a new file."""
    with closing(sqlite3.connect(":memory:")) as db:
        for statement in _read_schema():
            db.execute(statement)
        return _list_columns(db)


def _read_schema() -> Iterator[str]:
    statement = ""
    for line in SCHEMA.read_text(encoding="utf-8").splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _read_file_marks(db: sqlite3.Connection) -> tuple[int, int, int]:
    """Read application id, format and table count in one statement: others may be creating tables."""
    application, version, tables = db.execute(
        "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema)"
        " FROM pragma_application_id, pragma_user_version"
    ).fetchone()
    return application, version, tables


def _primary_code(error: sqlite3.Error) -> int:
    # Errors made by the Python module itself carry no code.
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
