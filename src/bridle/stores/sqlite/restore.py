"""Puts a backup in the place of a store, so that a process that is killed at any point leaves no mixture of the two.

1. copy the backup to a private file beside the store, and verify the copy
2. keep every program from using the store
3. make the file NAME-restore: from here on the store is refused, and the command can be repeated
4. rename the files of the old log, which are kept
5. rename the copy
6. remove NAME-restore
"""

import fcntl
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from bridle.stores.locks import lock_all_sessions
from bridle.values.errors import Conflict, MisuseError, Unusable

from .database_file import find_file, sync_folder
from .leftovers import RESTORE_ENDING, is_open_here

T = TypeVar("T")

ENDINGS = ("-wal", "-shm", "-journal", "")
"""Of the files of a database; the database itself is moved last."""
SHARED_FIRST, SHARED_BYTES = 0x40000002, 510
"""Bytes of a database on which every open connection holds a lock."""
COPY_BYTES = 1024 * 1024
COPY_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
SOURCE_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC


def restore_file(backup: Path, store: Path, verify: Callable[[Path], T]) -> tuple[T, Path | None]:
    """Put a verified copy of the backup in place; returns what `verify` found, and where the old log is now.

    `verify` raises if its file must not be used.  The backup is only read.
    """
    path = find_file(store)
    _check_backup(backup, path)
    copy = path.with_name(f".{path.name}.{secrets.token_hex(8)}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _copy_bytes(backup, copy)
        verified = verify(copy)
        for ending in ("-wal", "-journal"):
            if os.path.lexists(f"{copy}{ending}"):
                raise Unusable(f"{copy}{ending} was not merged into the copy; try again")
        with _lock_store(path):
            return verified, _swap(copy, path)
    except OSError as error:
        raise Unusable(f"store {path}: the backup cannot be put in place ({error.strerror})") from error
    finally:
        for ending in (*ENDINGS, "-held"):
            Path(f"{copy}{ending}").unlink(missing_ok=True)


def _check_backup(backup: Path, path: Path) -> None:
    if not backup.is_file():
        raise MisuseError(f"{backup} is not a file; name a copy that bridle store backup has made")
    if path.exists() and backup.samefile(path):
        raise MisuseError(f"{backup} is the log itself; name a copy of it")
    for ending in ("-wal", "-journal"):
        beside = Path(f"{backup}{ending}")
        if beside.exists() and beside.stat().st_size:
            raise MisuseError(
                f"{beside} exists, so {backup} alone is no complete copy; make one with:"
                f" bridle store backup FILE --store {backup}"
            )


def _copy_bytes(backup: Path, copy: Path) -> None:
    target = os.open(copy, COPY_FLAGS, 0o600)
    try:
        source = os.open(backup, SOURCE_FLAGS)
        try:
            while data := os.read(source, COPY_BYTES):
                view = memoryview(data)
                while view:
                    view = view[os.write(target, view) :]
        finally:
            os.close(source)
        os.fsync(target)
    finally:
        os.close(target)


@contextmanager
def _lock_store(path: Path) -> Iterator[None]:
    """Keep programs from using the store; raises `Conflict` if one does."""
    in_use = Conflict(f"store {path}: a program has it open; end it, then type the command again")
    if is_open_here(path):
        raise in_use
    with ExitStack() as stack:
        stack.enter_context(lock_all_sessions(str(path), path.with_name(f"{path.name}-held")))
        with suppress(FileNotFoundError):
            held = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            stack.callback(os.close, held)
            try:
                fcntl.lockf(held, fcntl.LOCK_EX | fcntl.LOCK_NB, SHARED_BYTES, SHARED_FIRST)
            except (BlockingIOError, PermissionError):
                raise in_use from None
        yield


def _swap(copy: Path, path: Path) -> Path | None:
    mark = path.with_name(f"{path.name}{RESTORE_ENDING}")
    kept = path.with_name(f"{path.name}.before-restore-{secrets.token_hex(4)}")
    with suppress(FileExistsError):  # an interrupted one is continued
        descriptor = os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        os.write(descriptor, os.fsencode(kept.name))
        os.fsync(descriptor)
        os.close(descriptor)
        sync_folder(path.parent)
    kept = _read_name(mark, kept)
    for ending in ENDINGS:
        if os.path.lexists(f"{path}{ending}"):
            other = f"{kept}{ending}"
            if os.path.lexists(other):  # put in place by an attempt that was killed before its last step
                other = f"{kept}-{secrets.token_hex(4)}{ending}"
            Path(f"{path}{ending}").rename(other)
    sync_folder(path.parent)
    copy.rename(path)
    sync_folder(path.parent)
    mark.unlink()
    sync_folder(path.parent)
    return kept if os.path.lexists(kept) else None


def _read_name(mark: Path, default: Path) -> Path:
    """Where an attempt before has put the old log; a name of our own form only."""
    name = os.fsdecode(mark.read_bytes()[:1_000])
    start = default.name[: default.name.rindex("-") + 1]
    return default.with_name(name) if name.startswith(start) and "/" not in name else default
