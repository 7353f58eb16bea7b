"""Connections to the database of the SQLite store, each used by one thread."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bridle.stores.locks import Inode, find_inode
from bridle.values.errors import Unusable

from .database_file import explain_error, open_connection, retry_while_locked


class DatabaseConnection:
    """A connection of one thread, opened on demand and reopened after an error."""

    def __init__(self, files: "DatabaseFiles", busy_milliseconds: int) -> None:
        self.path = files.path
        self._files = files
        self._busy_milliseconds = busy_milliseconds
        self._db: sqlite3.Connection | None = None
        self._times_opened = 0
        self._inodes: tuple[Inode | None, ...] | None = None

    def begin(self, statement: str) -> None:
        with self._translate_errors():
            self._files.check_usable()
            db = self._db or self._open()
            retry_while_locked(lambda: db.execute(statement))

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Commit what happens between `begin` and the end of this block; roll back on an exception."""
        with self._translate_errors():
            assert self._db is not None
            yield self._db
            self._db.execute("COMMIT")
            self._check_file_exists()

    def read_version(self) -> tuple[int, int]:
        """Return a value that differs after a commit of any other connection, also of another process."""
        with self._translate_errors():
            self._files.check_usable()
            version = (self._db or self._open()).execute("PRAGMA data_version").fetchone()[0]
            self._check_file_exists()
            return self._times_opened, version

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            # Closing rolls back. After an error the old connection is not reused.
            self.drop()
            if isinstance(error, sqlite3.Error):
                raise explain_error(self.path, error) from error
            raise

    def drop(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = self._inodes = None

    def _open(self) -> sqlite3.Connection:
        before = self._files.inodes()[0]
        self._db = open_connection(self.path, self._busy_milliseconds)
        self._times_opened += 1
        # SQLite has opened all three files by now, and keeps them open until the last connection is closed.
        self._inodes = self._files.inodes()
        if self._inodes[0] != before:  # a restore: the connection may be to the file that was here before
            raise Unusable(f"store {self.path}: the file was replaced while it was opened; try again")
        return self._db

    def _check_file_exists(self) -> None:
        """Raise `Unusable` if a file was removed: SQLite would keep writing to it."""
        found = self._files.inodes()
        if found == self._inodes and None not in found:
            return
        assert self._db is not None
        assert self._inodes is not None
        if found[0] != self._inodes[0]:
            raise Unusable(
                f"store {self.path}: the file was removed or replaced while in use; put it back and resume"
            )
        if found[1] is None:
            # No other process has opened the store since, or there would be a new -wal file. A checkpoint
            # saves the content that only the removed file holds.
            self._db.execute("PRAGMA wal_checkpoint(FULL)")
        raise self._files.mark_unusable()


class DatabaseFiles:
    """The database and the -wal and -shm files that all its connections share.

    If one of the two is removed, open connections and new ones no longer see each other's writes. So this
    process stops using the store and closes every connection.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._beside = tuple(path.with_name(path.name + ending) for ending in ("-wal", "-shm"))
        self._unusable = False

    def inodes(self) -> tuple[Inode | None, ...]:
        return tuple(find_inode(path) for path in (self.path, *self._beside))

    def check_usable(self) -> None:
        if self._unusable:
            raise self.mark_unusable()

    def mark_unusable(self) -> Unusable:
        self._unusable = True
        return Unusable(
            f"store {self.path}: its -wal or -shm file was removed or replaced while in use, and what was "
            "written last may be lost; end every process that uses the store, then open it again"
        )
