"""Folders of programs that run without a sandbox.  One that a killed process left is removed at the next start.

The owner of a folder holds a lock on it, which the kernel releases with the process, however it ends.  A folder whose
lock can be had has no owner.  A new folder has none for a moment; its owner sees that it was removed, and makes
another.
"""

import errno
import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "bridle-program-"
NAME_CHARACTERS = 16
ATTEMPTS_MAX = 100
FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
"""Errors of a file system without locks; folders that killed processes leave there are not removed."""


@contextmanager
def open_program_folder(key: str) -> Iterator[Path]:
    """An empty folder until the end of the block; the same path for the same key, unless it is in use."""
    base = Path(tempfile.gettempdir()).resolve()
    for left in base.glob(f"{PREFIX}*"):
        with suppress(OSError):  # it is not ours to remove, or not possible now
            if os.lstat(left).st_uid == os.getuid() and (owned := _lock(left)) >= 0:
                _remove(left, owned)
    name = hashlib.sha256(f"{os.getuid()} {key}".encode()).hexdigest()[:NAME_CHARACTERS]
    path, held = _make(base, base / f"{PREFIX}{name}")
    try:
        yield path
    finally:
        _remove(path, held)


def _make(base: Path, path: Path) -> tuple[Path, int]:
    """A new folder, at this path if it is free, and the descriptor that holds its lock."""
    for _ in range(ATTEMPTS_MAX):
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:  # another process runs the same program, or another user took the name
            path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
        try:
            held = _lock(path)
        except OSError as error:
            if error.errno not in NO_LOCKS:
                with suppress(OSError):
                    path.rmdir()
                raise
            held = os.open(path, FOLDER_FLAGS)  # no other process can lock it either, so none removes it
        if held >= 0:
            return path, held
    raise OSError(errno.EBUSY, "other processes removed each new folder for a program; try again", str(base))


def _lock(path: Path) -> int:
    """A descriptor that holds the lock of a folder; -1 if the folder is in use or gone."""
    try:
        held = os.open(path, FOLDER_FLAGS)
    except FileNotFoundError:
        return -1
    try:
        # guard: program-folder-lock
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.lstat(path), os.fstat(held)):
            owned, held = held, -1
            return owned
    except (BlockingIOError, FileNotFoundError):
        pass
    finally:
        if held >= 0:
            os.close(held)
    return -1


def _remove(path: Path, held: int) -> None:
    """Remove a folder, then release its lock.

    What cannot be removed stays and is tried again at the next start, as far as the folder itself can be opened.
    """
    try:
        with suppress(OSError, RecursionError):
            os.fchmod(held, 0o700)
            _allow_entry(held)
        with suppress(RecursionError):  # many folders in one another
            shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(held)


def _allow_entry(held: int) -> None:
    """Set the mode of all folders below, of which the program may have closed some."""
    for _, below, _, folder in os.fwalk(".", dir_fd=held):
        for each in below:
            with suppress(OSError):  # it was removed meanwhile, or belongs to another user
                if stat.S_ISDIR(os.stat(each, dir_fd=folder, follow_symlinks=False).st_mode):
                    os.chmod(each, 0o700, dir_fd=folder)
