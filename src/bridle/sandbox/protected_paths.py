"""Parts of a workspace that stay read-only in a sandbox, because other programs run what they name.

Those that exist before the first command are protected, wherever they are moved.  Those that a command creates are
not: launcher/settings_guard.py removes new settings of Bridle and reports the rest.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

# guard: protected-names
PROTECTED_NAMES = (".git", "bridle.toml")
"""git runs hooks and settings of its folder, and Bridle the tools of its settings, outside of the sandbox later."""
PROTECTED_MAX = 100
"""The launcher gets them as arguments, whose length the kernel limits.  Outer folders come first."""


class ProtectedPaths:
    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace
        self._known: dict[tuple[int, int], str] | None = None
        """Paths by device and inode; a command can rename the folder that one is in."""

    def find(self) -> list[str]:
        """The paths to protect now."""
        if self._known is None:
            self._known = dict(list(_search(self._workspace))[:PROTECTED_MAX])
        # guard: moved-repository
        elif any(_identify(path) != key for key, path in self._known.items()):
            self._known |= {key: path for key, path in _search(self._workspace) if key in self._known}
        tops = [str(self._workspace / name) for name in PROTECTED_NAMES]
        # A command may have put a link in the way; mounting its target would show a folder outside.
        return [
            path
            for path in dict.fromkeys((*tops, *self._known.values()))
            if Path(path).exists() and os.path.realpath(path) == path
        ]


def _search(workspace: Path) -> Iterator[tuple[tuple[int, int], str]]:
    folders = [str(workspace)]
    for folder in folders:  # grows: outer folders first
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if entry.name in PROTECTED_NAMES and not entry.is_symlink():
                    yield (_identify(entry.path) or (0, 0)), entry.path
                elif entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)


def _identify(path: str) -> tuple[int, int] | None:
    try:
        about = os.lstat(path)
    except OSError:
        return None
    return about.st_dev, about.st_ino
