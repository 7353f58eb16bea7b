"""Locks that give a session one driver at a time, within a process and between processes.

The store refuses a second writer in any case.  A lock refuses a second driver earlier, before its
tools run.  Within a process the locks are a set of names.  Between processes a lock is one byte of a
file beside the log, at an offset hashed from the session id.  The kernel releases it when the process
ends, so a killed run needs no unlocking.

  - A process opens a lock file once, for all its sessions.  The file is known by device and inode,
    so that two paths of one file are one file.
  - Locks belong to the open file (OFD locks): another part of the program may open and close the
    lock file without releasing them, as it would release POSIX locks.
  - Children do not keep them.  The descriptor is closed on exec, and by a hook in a child made
    with Python's `fork()`; the child starts without locks.  A fork in C without exec is not noticed:
    that child keeps the locks until it ends.
  - Two sessions with one offset are told apart in a process.  Between processes the second of them is
    refused, which is safe; with 56 bits it does not happen in practice.

Where the platform has no OFD locks, POSIX locks are used.  Where the file system has neither, other
processes are not noticed, and the store's conflict is what remains.
"""

import asyncio
import errno
import os
import struct
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from types import ModuleType
from weakref import WeakKeyDictionary, WeakValueDictionary

from bridle.ports.store import Store
from bridle.values.errors import Conflict, Unusable

Inode = tuple[int, int]
"""Device and inode number, which identify a file whatever its path."""

_NO_DESCRIPTOR_LEFT = {errno.EMFILE, errno.ENFILE}
_OPEN_FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)


class _LockFile:
    """An open lock file of this process, with the number of sessions per locked byte."""

    def __init__(self, inode: Inode, descriptor: int) -> None:
        self.inode = inode
        self.descriptor = descriptor
        self.spare_descriptors: list[int] = []
        """Further descriptors of the same file. Closing one early could release POSIX locks."""
        self.holders: dict[int, int] = {}

    def close(self) -> None:
        for descriptor in (self.descriptor, *self.spare_descriptors):
            os.close(descriptor)


class _ProcessLocks:
    """All session locks of one process."""

    def __init__(self) -> None:
        self.mutex = threading.Lock()
        self._names: set[tuple[str | Inode, str]] = set()
        self._files: dict[Inode, _LockFile] = {}

    def take(self, log: str, session: str, path: Path | None) -> tuple[_LockFile | None, Inode | str]:
        with self.mutex:
            file = self._open_file(path) if path is not None and _load_fcntl() is not None else None
            scope = file.inode if file else log
            try:
                if not self._names.isdisjoint({(log, session), (scope, session)}):
                    raise _session_in_use(session)
                if file is not None:
                    _lock_byte(file, session)
            except BaseException:
                self._close_unused(file)
                raise
            self._names |= {(log, session), (scope, session)}
            return file, scope

    def release(self, log: str, session: str, file: _LockFile | None, scope: Inode | str) -> None:
        with self.mutex:
            self._names -= {(log, session), (scope, session)}
            if file is not None:
                _unlock_byte(file, session)
                self._close_unused(file)

    def close_files(self) -> None:
        for file in self._files.values():
            file.close()

    def _open_file(self, path: Path) -> _LockFile:
        found = self._files.get(find_inode(path) or (-1, -1))
        if found is not None:
            return found
        try:
            descriptor = os.open(path, _OPEN_FLAGS, 0o600)
        except OSError as error:
            raise _explain_lock_error(path, error) from error
        status = os.fstat(descriptor)
        inode = status.st_dev, status.st_ino
        found = self._files.get(inode)
        if found is not None:
            found.spare_descriptors.append(descriptor)
            return found
        self._files[inode] = file = _LockFile(inode, descriptor)
        return file

    def _close_unused(self, file: _LockFile | None) -> None:
        if file is not None and not file.holders:
            self._files.pop(file.inode).close()


_process_locks = _ProcessLocks()


@contextmanager
def lease_session(log: str, session: str, path: Path | None = None) -> Iterator[None]:
    """Lock a session of a log for one driver. `path` is the lock file, if other processes can open the log."""
    holdings = _process_locks
    file, scope = holdings.take(log, session, path)
    try:
        yield
    finally:
        # In a child made by fork() the locks still belong to the parent.
        if holdings is _process_locks:
            holdings.release(log, session, file, scope)


POLL_SECONDS = (0.02, 1.0)
"""First and longest interval between attempts to lock a session that is in use."""
_Queues = WeakValueDictionary[tuple[int, str], asyncio.Lock]
_queues: WeakKeyDictionary[asyncio.AbstractEventLoop, _Queues] = WeakKeyDictionary()


async def wait_for_lease(
    store: Store, session: str, held: ExitStack, sleep: Callable[[float], Awaitable[None]]
) -> None:
    """Enter the lease of a session into `held` once it is free; waiting tasks of one event loop keep their order."""
    queues = _queues.setdefault(asyncio.get_running_loop(), WeakValueDictionary())
    pause, longest = POLL_SECONDS
    async with queues.setdefault((id(store), session), asyncio.Lock()):
        while True:
            try:
                held.enter_context(store.lease(session))
            except Conflict:
                await sleep(pause)
                pause = min(2 * pause, longest)
            else:
                return


def _prepare_fork() -> None:
    """Wait until no lock file is half open: the child could not close it."""
    _process_locks.mutex.acquire()


def _resume_after_fork() -> None:
    _process_locks.mutex.release()


def _reset_child_locks() -> None:
    global _process_locks
    inherited, _process_locks = _process_locks, _ProcessLocks()
    inherited.close_files()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_prepare_fork, after_in_parent=_resume_after_fork, after_in_child=_reset_child_locks
    )


def _lock_byte(file: _LockFile, session: str) -> None:
    offset = _lock_offset(session)
    if offset not in file.holders:
        try:
            _set_byte_lock(file.descriptor, offset, "F_WRLCK")
        except (BlockingIOError, PermissionError):
            raise _session_in_use(session) from None
        except OSError as error:
            if error.errno not in {errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}:
                raise Unusable(
                    f"session {session!r} cannot be locked: {error.strerror}; free some locks and resume"
                ) from error
            # The file system has no locks: continue as on a platform without them.
    file.holders[offset] = file.holders.get(offset, 0) + 1


def _unlock_byte(file: _LockFile, session: str) -> None:
    offset = _lock_offset(session)
    file.holders[offset] -= 1
    if file.holders[offset]:
        return
    del file.holders[offset]
    if file.holders:  # otherwise the file is closed, which releases the lock too
        _set_byte_lock(file.descriptor, offset, "F_UNLCK")


def _set_byte_lock(descriptor: int, offset: int, kind: str) -> None:
    locking = _load_fcntl()
    assert locking is not None
    if hasattr(locking, "F_OFD_SETLK"):
        wanted = struct.pack("hhqqixxxx", getattr(locking, kind), os.SEEK_SET, offset, 1, 0)
        locking.fcntl(descriptor, locking.F_OFD_SETLK, wanted)
    else:
        command = locking.LOCK_UN if kind == "F_UNLCK" else locking.LOCK_EX | locking.LOCK_NB
        locking.lockf(descriptor, command, 1, offset)


def _load_fcntl() -> ModuleType | None:
    try:
        return import_module("fcntl")
    except ImportError:
        return None


def _lock_offset(session: str) -> int:
    return int.from_bytes(blake2b(session.encode("utf-8", "replace"), digest_size=7).digest())


def find_inode(path: Path) -> Inode | None:
    try:
        status = path.stat(follow_symlinks=False)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _explain_lock_error(path: Path, error: OSError) -> Unusable:
    remedy = "check who may write there"
    if error.errno in _NO_DESCRIPTOR_LEFT:
        remedy = "close files or raise the limit of open files (ulimit -n)"
    elif error.errno == errno.ELOOP:
        remedy = "it is a symbolic link; remove it"
    return Unusable(f"{path} cannot be opened: {error.strerror}; {remedy}")


def _session_in_use(session: str) -> Conflict:
    return Conflict(f"session {session!r} is in use by another run; wait for that run or stop it")
