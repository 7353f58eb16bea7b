"""Compares the settings in a workspace before and after a sandboxed command, and undoes or reports new ones.

Programs read these files wherever they are used, and run what the files name, outside of the sandbox and with all
rights.  The launcher looks at the whole workspace before the command, and again when every process of the sandbox
has ended (settings_scan.py).

    bridle.toml, [tool.bridle] of pyproject.toml    are moved aside: nothing but Bridle reads them
    settings of other programs, repositories        are reported: a command may have good reasons to write them

Another sandboxed process, such as an MCP server, may change the workspace at the same time.  So files are renamed and
written by descriptors of folders that were reached from the workspace without following a link.  A file that existed
before and did not change is never renamed, wherever its folder is now.

A .git and a bridle.toml that existed before are also mounted read-only (local.py).
"""

import os
import secrets
import time
import tomllib
from collections.abc import Collection
from typing import NamedTuple

from .settings_scan import (
    SECONDS_MAX,
    SETTINGS_FILE,
    FoundSettings,
    OwnSettings,
    find_settings,
    identify,
    open_folder,
)

PARSED_BYTES_MAX = 128 * 1024
"""Parsing takes seconds above that, for a file that is made for it."""
UNREADABLE = "unreadable"
"""Settings of a file that is too large to be parsed."""
SHOWN_MAX = 5
WRITE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Renamed(NamedTuple):
    path: str
    other: str


class SettingsGuard:
    def __init__(self, workspace: str, protected: Collection[str]) -> None:
        """`protected` are the paths that the command cannot write: if they change, the user changed them."""
        self._workspace = workspace
        self._protected = frozenset(os.path.relpath(path, workspace) for path in protected)
        self._root = os.open(workspace, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._before = find_settings(self._root, workspace)
        files = (found for found in self._before.own.values() if not found.target)
        self._known = frozenset(found.identity for found in files)
        """Those that existed before; what a link leads to may have changed."""

    def stat_root(self) -> os.stat_result:
        """The folder that was looked at."""
        return os.fstat(self._root)

    def close(self) -> None:
        """Close the workspace; in the process that becomes the command, its descriptor would be a way out."""
        os.close(self._root)

    def undo_changes(self) -> list[str]:
        """Move new settings of Bridle aside; returns sentences about them, and about those of other programs."""
        after, before = find_settings(self._root, self._workspace), self._before
        notes: list[str] = []
        unknown: list[str] = []
        renamed: list[Renamed] = []
        until = time.monotonic() + SECONDS_MAX
        for path, found in after.own.items():
            old = before.own.get(path)
            is_protected = old is not None and path in self._protected
            if found.identity in self._known or is_protected or not has_new_settings(path, found, old, until):
                continue
            if old is None and not before.is_known(os.path.split(path)[0]):
                unknown.append(_show(path))
                continue
            try:
                renamed += self._move_aside(path, old)
            except OSError as error:
                notes.append(
                    f"new settings of Bridle in {_show(path)} could not be removed; remove them before you go on:"
                    f" {error.strerror}"
                )
        notes = [*_describe_renamed(renamed), *_shorten(notes)]
        if unknown:
            notes.append(
                f"settings of Bridle that may be new: {_join(unknown)}. Their folders were not looked at before the"
                " command; read them before you use Bridle there"
            )
        return [*notes, *_describe_others(before, after)]

    def _move_aside(self, path: str, old: OwnSettings | None) -> list[Renamed]:
        """Rename what is there now, unless it existed before, and write the former content."""
        folder, name = os.path.split(path)
        # guard: settings-folder-opened
        fd = open_folder(self._root, folder)
        try:
            if identify(name, fd) in self._known:
                return []
            other = f"{name}.refused-{secrets.token_hex(4)}"
            os.rename(name, other, src_dir_fd=fd, dst_dir_fd=fd)
            # guard: link-target-not-copied
            if old is not None and old.data is not None and not old.target:
                with os.fdopen(os.open(name, WRITE_FLAGS, 0o666, dir_fd=fd), "wb") as file:
                    file.write(old.data)
        finally:
            os.close(fd)
        return [Renamed(path, path.removesuffix(name) + other)]


def has_new_settings(path: str, found: OwnSettings, old: OwnSettings | None, until: float) -> bool:
    """True if Bridle would read settings here that it did not read before; also if that cannot be judged."""
    if old is not None and (found == old or (found.data is not None and found.data == old.data)):
        return False
    if os.path.split(path)[1] == SETTINGS_FILE or found.data is None:
        return True
    if time.monotonic() > until:
        return may_have_settings(found.data)
    return adds_settings(found.data, old and old.data)


def adds_settings(data: bytes, old: bytes | None) -> bool:
    """True if the text of a pyproject.toml has settings of Bridle other than those of the old text."""
    settings = read_settings(data)
    if settings is UNREADABLE:
        return data != old
    # guard: project-settings-changed
    return settings is not None and settings != read_settings(old)


def read_settings(data: bytes | None) -> object:
    """The settings in the text of a pyproject.toml; None if it has none or is not TOML, which Bridle refuses."""
    if data is None or not may_have_settings(data):
        return None
    if len(data) > PARSED_BYTES_MAX:
        return UNREADABLE
    try:
        tool = tomllib.loads(data.decode("utf-8-sig")).get("tool")
    except (ValueError, RecursionError):
        return None
    return tool.get("bridle") if isinstance(tool, dict) else None


def may_have_settings(data: bytes) -> bool:
    """False if the name of the table is in the text neither as it is nor with an escaped letter."""
    return b"bridle" in data or b"\\" in data


def _describe_renamed(renamed: list[Renamed]) -> list[str]:
    return _shorten(
        [
            "commands may not write settings of Bridle, which can run programs outside of the sandbox;"
            f" {_show(each.path)} was renamed to {_show(each.other)}"
            for each in renamed
        ]
    )


def _describe_others(before: FoundSettings, after: FoundSettings) -> list[str]:
    notes = []
    # guard: other-settings-reported
    new = [
        f"{path!r} ({found[0]})" for path, found in after.others.items() if found != before.others.get(path)
    ]
    if new:
        notes.append(
            f"new or changed: {_join(new)}. These programs run what such files name,"
            " outside of the sandbox; a person should read them first"
        )
    unread = [f"{path or '.'!r}" for path in after.unread if path not in before.unread]
    if unread:
        notes.append(
            f"could not be read: {_join(unread)}. New settings may be there; a person should look first"
        )
    if after.limits:
        notes.append(f"new settings were not looked for everywhere: {'; '.join(after.limits)}")
    return notes


def _join(shown: list[str]) -> str:
    return ", ".join(shown[:SHOWN_MAX]) + _count_rest(shown)


def _shorten(notes: list[str]) -> list[str]:
    shown = notes[:SHOWN_MAX]
    return [*shown[:-1], shown[-1] + _count_rest(notes)] if notes else []


def _count_rest(shown: list[str]) -> str:
    return f" and {len(shown) - SHOWN_MAX} more" if len(shown) > SHOWN_MAX else ""


def _show(path: str) -> str:
    return path if path.isprintable() else ascii(path)
