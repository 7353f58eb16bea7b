"""A folder that is opened once and kept: what its path leads to later does not matter.

A command can move a folder above another one and put a link in its place.  So a tool opens its folder when it is made,
works from the descriptor, and refuses to hand the path to another program once the path leads elsewhere.
"""

import os
import weakref
from contextlib import suppress
from pathlib import Path

from bridle.values.errors import MisuseError

Identity = tuple[int, int]
"""Device and inode."""
HOLD_FLAGS = getattr(os, "O_PATH", os.O_RDONLY) | os.O_NOFOLLOW | os.O_CLOEXEC


class HeldFolder:
    """An open folder, or a file that a sandbox shows, with the path that it had at first."""

    def __init__(self, path: Path, what: str) -> None:
        """`path` has no links in it; `what` names the folder in errors.  Raises OSError if it cannot be opened."""
        self.path, self._what = path, what
        self.descriptor = os.open(path, HOLD_FLAGS)
        weakref.finalize(self, os.close, self.descriptor).atexit = False
        about = os.fstat(self.descriptor)
        self.identity: Identity = (about.st_dev, about.st_ino)

    def check_path(self) -> None:
        """Raise `MisuseError` unless the path still leads to this folder, without links."""
        if identify_path(os.path.realpath(self.path)) != self.identity or os.path.realpath(self.path) != str(
            self.path
        ):
            raise MisuseError(
                f"{self._what} {str(self.path)!r} was moved or replaced after the tools were made; put it back"
            )


def identify_path(path: str) -> Identity | None:
    """Device and inode of what is at a path, of a link itself; None if there is nothing."""
    try:
        about = os.lstat(path)
    except OSError:
        return None
    return about.st_dev, about.st_ino


class WorkingFolder:
    """The folder in which the programs of one tool run: that which was at its path when the tool was made."""

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        """`path` need not exist yet; without one, programs run in the folder of this process."""
        self._path = None if path is None else os.fspath(path)
        self._held: HeldFolder | None = None
        self._hold()

    def find(self) -> str | None:
        """The path for a program that starts now; raises `MisuseError` if it leads to another folder by now."""
        self._hold()
        if self._held is None:
            return self._path
        # guard: working-folder-held
        self._held.check_path()
        return str(self._held.path)

    def _hold(self) -> None:
        if self._path is not None and self._held is None:
            with suppress(OSError):  # a program that starts there fails with the reason
                self._held = HeldFolder(Path(os.path.realpath(self._path)), "the folder of the program")
