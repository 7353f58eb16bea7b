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
  - A lock file that is removed frees its sessions for others. So a holder looks, inside the transaction of every
    append, if the file at the path is still the one that it has locked, and stops writing otherwise.
  - A takeover does not wait for the lock of a paused holder: each epoch of a session has a byte of its own.
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
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Protocol
from weakref import WeakKeyDictionary, WeakValueDictionary

from bridle.ports.store import Lease, Store
from bridle.stores.conflicts import session_in_use
from bridle.values.errors import Conflict, Unusable

Inode = tuple[int, int]
"""Device and inode number, which identify a file whatever its path."""

_LOCK_FORMAT = "hhqqixxxx"
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
        self.users = 0
        """Takeovers, which opened it before they raised the epoch."""

    def close(self) -> None:
        for descriptor in (self.descriptor, *self.spare_descriptors):
            os.close(descriptor)


class _ProcessLocks:
    """All session locks of one process."""

    def __init__(self) -> None:
        self.mutex = threading.Lock()
        self.names: set[tuple[str | Inode, Lease]] = set()
        self._files: dict[Inode, _LockFile] = {}

    def take(self, log: str, lease: Lease, path: Path | None) -> tuple[_LockFile | None, Inode | str]:
        with self.mutex:
            file = self.open_file(path) if path is not None and _load_fcntl() is not None else None
            scope = file.inode if file else log
            try:
                if not self.names.isdisjoint({(log, lease), (scope, lease)}):
                    raise session_in_use(lease.session)
                if file is not None:
                    _lock_byte(file, lease)
            except BaseException:
                self.close_unused(file)
                raise
            self.names |= {(log, lease), (scope, lease)}
            return file, scope

    def holds(self, log: str | Inode, lease: Lease) -> bool:
        return (log, lease) in self.names

    def release(self, log: str, lease: Lease, file: _LockFile | None, scope: Inode | str) -> None:
        with self.mutex:
            self.names -= {(log, lease), (scope, lease)}
            if file is not None:
                _unlock_byte(file, lease)
                self.close_unused(file)

    def close_files(self) -> None:
        for file in self._files.values():
            file.close()

    def open_file(self, path: Path) -> _LockFile:
        found = self._files.get(find_inode(path) or (-1, -1))
        if found is not None:
            return found
        try:
            descriptor = os.open(path, _OPEN_FLAGS, 0o600)
        except OSError as error:
            raise _explain_lock_error(path, error) from error
        # guard: lock-not-inherited
        status = os.fstat(descriptor)
        inode = status.st_dev, status.st_ino
        found = self._files.get(inode)
        if found is not None:
            found.spare_descriptors.append(descriptor)
            return found
        self._files[inode] = file = _LockFile(inode, descriptor)
        return file

    def close_unused(self, file: _LockFile | None) -> None:
        if file is not None and not file.holders and not file.users:
            self._files.pop(file.inode).close()


_process_locks = _ProcessLocks()


@contextmanager
def _keep_open(path: Path | None) -> Iterator[None]:
    """Keep the lock file open during the block, without a lock; raises `Unusable` if it cannot be opened."""
    holdings = _process_locks
    if path is None or _load_fcntl() is None:
        yield
        return
    with holdings.mutex:
        file = holdings.open_file(path)
        file.users += 1
    try:
        yield
    finally:
        if holdings is _process_locks:
            with holdings.mutex:
                file.users -= 1
                holdings.close_unused(file)


def is_lease_held(log: str, lease: Lease, path: Path | None = None) -> bool:
    """Return True if a live process holds this lease; takes the lock for a moment only where it cannot be queried."""
    locking, locks = _load_fcntl(), _process_locks
    with locks.mutex:
        if locks.holds(log, lease) or path is None or locking is None or not path.exists():
            return locks.holds(log, lease)
        file = locks.open_file(path)
        try:
            if locks.holds(file.inode, lease):
                return True
            if hasattr(locking, "F_OFD_GETLK"):
                wanted = struct.pack(_LOCK_FORMAT, locking.F_WRLCK, os.SEEK_SET, _lock_offset(lease), 1, 0)
                found = locking.fcntl(file.descriptor, locking.F_OFD_GETLK, wanted)
                return bool(struct.unpack(_LOCK_FORMAT, found)[0] != locking.F_UNLCK)
            _lock_byte(file, lease)
            _unlock_byte(file, lease)
        except Conflict:
            return True
        finally:
            locks.close_unused(file)
    return False


class LockFileCheck:
    """Checks that the lock file is still the one under which this process holds its leases.

    If it was removed or replaced, another process would lock a new file, and so drive the same session as well. The
    thread that writes looks at the file once in each transaction, which may be that of many sessions.
    """

    def __init__(self, log: str, path: Path) -> None:
        self._log, self._path = log, path
        self._has_locks = False
        self._inode: Inode | None = None

    def look(self) -> None:
        """Find the file that is at the path now."""
        self._has_locks = _load_fcntl() is not None
        self._inode = find_inode(self._path)

    def check(self, lease: Lease) -> None:
        """Raise `Conflict` if this process holds the lease under a file that was not at the path."""
        locks = _process_locks
        if not self._has_locks or not locks.holds(self._log, lease):
            return
        if self._inode is None or not locks.holds(self._inode, lease):
            raise Conflict(
                f"the lock file {self._path} was removed or replaced while session {lease.session!r} was driven, so "
                "another process may drive it now and this run may not write to it any more; resume the session"
            )


class StoredEpochs(Protocol):
    """The epochs of sessions, as a store keeps them."""

    async def read_epoch(self, session: str) -> int:
        """Return the epoch of a session; 0 for one that does not exist."""
        ...

    async def raise_epoch(self, session: str, epoch: int) -> None:
        """Add one to this epoch, durably; raises `Conflict` if it is not the stored one."""
        ...


@contextmanager
def lock_all_sessions(log: str, path: Path) -> Iterator[None]:
    """Keep every session of a log from being driven during the block; raises `Conflict` while one is driven."""
    in_use = Conflict(f"a session of {log} is in use by a run; wait for that run or stop it")
    with _process_locks.mutex:
        if any(scope == log for scope, _ in _process_locks.names):
            raise in_use
    try:
        descriptor = os.open(path, _OPEN_FLAGS, 0o600)
    except OSError as error:
        raise _explain_lock_error(path, error) from error
    try:
        if _load_fcntl() is not None:
            try:
                _set_lock(descriptor, 0, "F_WRLCK", length=0)
            except (BlockingIOError, PermissionError):
                raise in_use from None
        yield
    finally:
        os.close(descriptor)


class HeldLease:
    """The lease of a session, held while this context is open.

    The epoch is read before the lock is taken: if the session is taken over in between, the epoch is outdated, and
    what is written under it is refused. A takeover raises it before the lock is taken too: a process that is paused
    with the lock of an epoch that is not reached yet would keep all others from taking over. The lock file is opened
    first: a takeover that cannot open it leaves the session to its owner.

    Every open session has one, so it is no generator, which would hold several times the memory.
    """

    __slots__ = ("_epochs", "_file", "_holdings", "_lease", "_log", "_path", "_scope", "_take_over")

    def __init__(
        self, epochs: StoredEpochs, log: str, session: str, path: Path | None = None, *, take_over: bool
    ) -> None:
        """`path` is the lock file, if other processes can open the log."""
        self._epochs, self._log, self._path, self._take_over = epochs, log, path, take_over
        self._lease = Lease(session=session, epoch=0)

    async def __aenter__(self) -> Lease:
        session = self._lease.session
        epoch = await self._epochs.read_epoch(session)
        if not self._take_over:
            return self._take_lock(session, epoch)
        with _keep_open(self._path):
            # guard: lock-raises-epoch
            await self._epochs.raise_epoch(session, epoch)
            return self._take_lock(session, epoch + 1)

    def _take_lock(self, session: str, epoch: int) -> Lease:
        self._holdings, self._lease = _process_locks, Lease(session=session, epoch=epoch)
        self._file, self._scope = self._holdings.take(self._log, self._lease, self._path)
        return self._lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # In a child made by fork() the locks still belong to the parent.
        if self._holdings is _process_locks:
            self._holdings.release(self._log, self._lease, self._file, self._scope)


POLL_SECONDS = (0.02, 1.0)
"""First and longest interval between attempts to lock a session that is in use."""
_Queues = WeakValueDictionary[tuple[int, str], asyncio.Lock]
_queues: WeakKeyDictionary[asyncio.AbstractEventLoop, _Queues] = WeakKeyDictionary()


@asynccontextmanager
async def wait_for_lease(
    store: Store, session: str, sleep: Callable[[float], Awaitable[None]]
) -> AsyncIterator[Lease]:
    """Hold the lease of a session once it is free; waiting tasks of one event loop keep their order."""
    queues = _queues.setdefault(asyncio.get_running_loop(), WeakValueDictionary())
    pause, longest = POLL_SECONDS
    lease: Lease | None = None
    async with AsyncExitStack() as held:
        async with queues.setdefault((id(store), session), asyncio.Lock()):
            while lease is None:
                try:
                    lease = await held.enter_async_context(store.lease(session))
                except Conflict:
                    await sleep(pause)
                    pause = min(2 * pause, longest)
        yield lease


def resolve_future(future: "asyncio.Future[None]", error: Exception | None = None) -> None:
    """Wake the task that awaits the future, from any thread; its event loop may be closed by now."""
    with suppress(RuntimeError):
        future.get_loop().call_soon_threadsafe(_set_if_pending, future, error)


def _set_if_pending(future: "asyncio.Future[None]", error: Exception | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(None)


def _prepare_fork() -> None:
    """Wait until no lock file is half open: the child could not close it."""
    _process_locks.mutex.acquire()


def _resume_after_fork() -> None:
    _process_locks.mutex.release()


def _reset_child_locks() -> None:
    global _process_locks
    inherited, _process_locks = _process_locks, _ProcessLocks()
    # guard: child-closes-locks
    inherited.close_files()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_prepare_fork, after_in_parent=_resume_after_fork, after_in_child=_reset_child_locks
    )


def _lock_byte(file: _LockFile, lease: Lease) -> None:
    session, offset = lease.session, _lock_offset(lease)
    if offset not in file.holders:
        try:
            # guard: session-file-lock
            _set_lock(file.descriptor, offset, "F_WRLCK")
        except (BlockingIOError, PermissionError):
            raise session_in_use(session) from None
        except OSError as error:
            if error.errno not in {errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}:
                raise Unusable(
                    f"session {session!r} cannot be locked: {error.strerror}; free some locks and resume"
                ) from error
            # The file system has no locks: continue as on a platform without them.
    file.holders[offset] = file.holders.get(offset, 0) + 1


def _unlock_byte(file: _LockFile, lease: Lease) -> None:
    offset = _lock_offset(lease)
    file.holders[offset] -= 1
    if file.holders[offset]:
        return
    del file.holders[offset]
    if file.holders or file.users:  # otherwise the file is closed, which releases the lock too
        _set_lock(file.descriptor, offset, "F_UNLCK")


def _set_lock(descriptor: int, offset: int, kind: str, length: int = 1) -> None:
    """Lock or unlock bytes of a file; a length of 0 means up to the end."""
    locking = _load_fcntl()
    assert locking is not None
    if hasattr(locking, "F_OFD_SETLK"):
        wanted = struct.pack(_LOCK_FORMAT, getattr(locking, kind), os.SEEK_SET, offset, length, 0)
        locking.fcntl(descriptor, locking.F_OFD_SETLK, wanted)
    else:
        command = locking.LOCK_UN if kind == "F_UNLCK" else locking.LOCK_EX | locking.LOCK_NB
        locking.lockf(descriptor, command, length, offset)


def _load_fcntl() -> ModuleType | None:
    try:
        return import_module("fcntl")
    except ImportError:
        return None


def _lock_offset(lease: Lease) -> int:
    name, salt = lease.session.encode("utf-8", "replace"), lease.epoch.to_bytes(8)
    return int.from_bytes(blake2b(name, digest_size=7, salt=salt).digest())


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
