"""Undoes settings of Bridle that a sandboxed command wrote at the top of its workspace.

A settings file names code that the next `bridle` in the folder runs with all rights.  The launcher reads the files
before the command, and compares them when every process of the sandbox has ended.  An existing bridle.toml is also
mounted read-only (local.py).  Files in folders below are not looked at.
"""

import os
import secrets
import stat
import tomllib
from pathlib import Path

SETTINGS_FILE, PROJECT_FILE = "bridle.toml", "pyproject.toml"
PROJECT_BYTES_MAX = 4 * 1024 * 1024
UNREADABLE = "unreadable"
"""Settings of a file that is too large: never equal to those before."""


class SettingsGuard:
    def __init__(self, folder: str) -> None:
        self._settings = Path(folder, SETTINGS_FILE)
        self._project = Path(folder, PROJECT_FILE)
        self._has_settings = os.path.lexists(self._settings)
        self._before = _read_file(self._project)

    def undo_changes(self) -> list[str]:
        """Move new settings aside; returns one sentence per file."""
        told = []
        try:
            if not self._has_settings and os.path.lexists(self._settings):
                told.append(_move_aside(self._settings))
            after = _read_file(self._project)
            if after != self._before and read_settings(after) not in (None, read_settings(self._before)):
                told.append(_move_aside(self._project))
                if self._before is not None:
                    with self._project.open("xb") as file:
                        file.write(self._before)
        except OSError as error:
            told.append(f"new settings of Bridle could not be removed; remove them before you go on: {error}")
        return told


def read_settings(data: bytes | None) -> object:
    """The settings in the text of a pyproject.toml; None if it has none or is not TOML, which Bridle refuses."""
    if data is None or len(data) > PROJECT_BYTES_MAX:
        return data and UNREADABLE
    try:
        tool = tomllib.loads(data.decode("utf-8-sig")).get("tool")
    except (ValueError, RecursionError):
        return None
    return tool.get("bridle") if isinstance(tool, dict) else None


def _read_file(path: Path) -> bytes | None:
    """The content, and one byte more than is parsed of a large file; None if it is no regular file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(fd, "rb") as file:
        return file.read(PROJECT_BYTES_MAX + 1) if stat.S_ISREG(os.fstat(fd).st_mode) else None


def _move_aside(path: Path) -> str:
    other = path.rename(f"{path}.refused-{secrets.token_hex(4)}")
    return (
        "commands may not write settings of Bridle, which can run programs outside of the sandbox;"
        f" {path.name} was renamed to {other.name}"
    )
