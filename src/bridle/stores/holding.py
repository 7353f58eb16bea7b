"""One driver a session: who holds it, and that the dead hold nothing.

A second writer would be refused by the store in any case; holding tells the second one,
instead of breaking the first in the middle of a payment.  Inside a process a set of names
is enough.  Between processes a lock on one byte of a file beside the log, its place taken
from the session's name, is: the kernel lets go of it when its process ends, however that
happens, so a killed run never has to be unlocked.

Where the platform has no such locks, other processes are not seen; the store's conflict is
what remains.
"""

import os
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from types import ModuleType

from ..values.errors import Conflict, Unusable

_lock = threading.Lock()
_held: set[tuple[str, str]] = set()


@contextmanager
def held(log: str, session: str, path: Path | None = None) -> Iterator[None]:
    """Hold a session of a log; `path` is the file the locks are in, if other processes may come."""
    name = (log, session)
    with _lock:
        if name in _held:
            raise _taken(session)
        _held.add(name)
    try:
        with _locked(path, session):
            yield
    finally:
        with _lock:
            _held.discard(name)


@contextmanager
def _locked(path: Path | None, session: str) -> Iterator[None]:
    locking = _locking()
    if path is None or locking is None:
        yield
        return
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Unusable(f"{path} cannot be opened: {error.strerror}; check who may write there") from error
    try:
        place = int.from_bytes(blake2b(session.encode("utf-8", "replace"), digest_size=7).digest())
        wanted = struct.pack("hhqqixxxx", locking.F_WRLCK, os.SEEK_SET, place, 1, 0)
        try:
            locking.fcntl(descriptor, locking.F_OFD_SETLK, wanted)
        except BlockingIOError:
            raise _taken(session) from None
        except OSError:
            # A file system without such locks: as on a platform without them.
            yield
            return
        yield
    finally:
        os.close(descriptor)


def _locking() -> ModuleType | None:
    try:
        module = import_module("fcntl")
    except ImportError:
        return None
    return module if hasattr(module, "F_OFD_SETLK") else None


def _taken(session: str) -> Conflict:
    return Conflict(f"session {session!r} is being driven by somebody else; wait for that run, or end it")
