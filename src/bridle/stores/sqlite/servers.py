"""The servers that use a log: one locked file for each, in a folder beside the database.

The system releases the lock when the process ends, however it ends. A server that lists the others removes the files
of those that have ended. Without locks (Windows) a server lists itself only.
"""

import os
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType
from weakref import WeakSet

from bridle.values.errors import Unusable

_FLAGS = os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
_NEW_ENDING = ".new"
"""Ending of a file that is not locked yet, so that no other server takes it for one that has ended."""


class ServerFiles:
    """The files of the servers of one log; holds those of this process."""

    def __init__(self, database: Path) -> None:
        self._folder = database.with_name(database.name + "-servers")
        self._held: dict[str, int] = {}
        _opened.add(self)

    def announce(self, server: str) -> frozenset[str]:
        """Lock the file of this server, unless it is locked; returns all servers that live."""
        locking = _load_fcntl()
        if locking is None:
            return frozenset((server,))
        try:
            if server not in self._held or not (self._folder / server).exists():
                self._lock(server, locking)
            return frozenset(
                path.name for path in self._folder.iterdir() if self._is_alive(path.name, locking)
            )
        except OSError as error:
            raise Unusable(
                f"the servers of a log cannot be listed in {self._folder}: {error.strerror}"
            ) from error

    def withdraw(self, server: str) -> None:
        descriptor = self._held.pop(server, None)
        if descriptor is not None:
            with suppress(FileNotFoundError):
                (self._folder / server).unlink()
            os.close(descriptor)
            with suppress(OSError):  # another server has a file there
                self._folder.rmdir()

    def close(self) -> None:
        for server in [*self._held]:
            self.withdraw(server)

    def leave_to_parent(self) -> None:
        """Close the files in a child made by fork(): it would keep the locks of a parent that has ended."""
        for descriptor in self._held.values():
            os.close(descriptor)
        self._held.clear()

    def _lock(self, server: str, locking: ModuleType) -> None:
        self.withdraw(server)
        self._folder.mkdir(mode=0o700, exist_ok=True)
        made = self._folder / f"{server}{_NEW_ENDING}"
        descriptor = os.open(made, _FLAGS | os.O_CREAT, 0o600)
        try:
            locking.flock(descriptor, locking.LOCK_EX | locking.LOCK_NB)
            made.rename(self._folder / server)
        except OSError:
            os.close(descriptor)
            raise
        self._held[server] = descriptor

    def _is_alive(self, name: str, locking: ModuleType) -> bool:
        """True if its process lives; the file of one that has ended is removed."""
        if name in self._held:
            return True
        if name.endswith(_NEW_ENDING):
            return False
        try:
            descriptor = os.open(self._folder / name, _FLAGS)
        except FileNotFoundError:
            return False
        try:
            locking.flock(descriptor, locking.LOCK_EX | locking.LOCK_NB)
            (self._folder / name).unlink(missing_ok=True)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False


_opened: WeakSet[ServerFiles] = WeakSet()


def _leave_to_parent() -> None:
    for files in _opened:
        files.leave_to_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)


def _load_fcntl() -> ModuleType | None:
    try:
        return import_module("fcntl")
    except ImportError:
        return None
