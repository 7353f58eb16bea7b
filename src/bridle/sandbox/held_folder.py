"""A folder that is opened once and kept: what its path leads to later does not matter.

A command can move a folder above another one and put a link in its place.  So a tool opens its folder when it is made,
works from the descriptor, and refuses to hand the path to another program once the path leads elsewhere.
"""

import os
import weakref
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
