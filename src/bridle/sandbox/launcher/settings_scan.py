"""Finds the settings in the folders of a workspace that other processes may change at the same time.

Every folder is opened from its parent without following links, so nothing outside of the workspace is listed or read.
The scan has limits of folders, bytes and time, outer folders first; what was not looked at is part of the result.
"""

import os
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from .startup_files import find_startup_program, fold_name, is_repository

SETTINGS_FILE, PROJECT_FILE = "bridle.toml", "pyproject.toml"
PROJECT_BYTES_MAX = 4 * 1024 * 1024
REPOSITORIES = (".git", ".hg")
"""Folders that are not searched: they are large, and a new one is reported."""
REPOSITORY_PARTS = ("config", "config.worktree", "commondir", "gitdir", "hooks", "hgrc")
"""Parts of a repository that name programs; the others change with every commit."""
PARTS_MAX = 1_000
FOLDERS_MAX = 50_000
PATH_CHARACTERS_MAX = 4_000
ALL_FILES_BYTES_MAX = 64 * 1024 * 1024
SECONDS_MAX = 5.0
# guard: scan-follows-no-link
FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
READ_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC
Identity = tuple[int, int, int]
"""Device, inode and time of change: it differs if a file was replaced or written."""
Version = tuple[tuple[str, Identity], ...]


class OwnSettings(NamedTuple):
    """A file that Bridle reads."""

    identity: Identity
    """That of the link, for a link."""
    data: bytes | None
    """The content; None if it is no regular file of the workspace, if it is too large, or if reading failed."""
    target: str
    """The path that a link leads to; empty if it is none."""


class FoundSettings(NamedTuple):
    """The settings in the folders of a workspace, by path from there."""

    own: dict[str, OwnSettings]
    others: dict[str, tuple[str, Version]]
    """Those of other programs: the program, and a value that differs if a file was replaced or written."""
    folders: frozenset[str]
    """The folders that were found."""
    unread: frozenset[str]
    """Those of them that were not, or not completely, listed."""
    cut: frozenset[str]
    """Folders with more folders below them than were found."""
    limits: tuple[str, ...]
    """Sentences about the limits that were reached."""

    def is_known(self, folder: str) -> bool:
        """True if the folder was looked at, or did not exist."""
        while folder:
            outer = os.path.split(folder)[0]
            if folder in self.unread or (folder not in self.folders and outer in self.cut):
                return False
            folder = outer
        return "" not in self.unread


def find_settings(root: int, workspace: str) -> FoundSettings:
    """Search the workspace, which `root` is a descriptor of."""
    scan = SettingsScan(root, workspace)
    try:
        scan.search()
    finally:
        scan.close()
    return FoundSettings(
        scan.own,
        scan.others,
        frozenset(scan.folders),
        frozenset(scan.unread),
        frozenset(scan.cut),
        tuple(scan.limits),
    )


class SettingsScan:
    def __init__(self, root: int, workspace: str) -> None:
        self.own: dict[str, OwnSettings] = {}
        self.others: dict[str, tuple[str, Version]] = {}
        self.folders = [""]
        self.unread: set[str] = set()
        self.cut: set[str] = set()
        self.limits: dict[str, None] = {}  # in order, each once
        self._root, self._workspace = root, workspace
        self._bytes_left = ALL_FILES_BYTES_MAX
        self._until = time.monotonic() + SECONDS_MAX
        self._outer, self._outer_fd = "", os.dup(root)
        """The folder that was used last; those below it follow each other in `folders`."""

    def close(self) -> None:
        os.close(self._outer_fd)

    def search(self) -> None:
        # guard: settings-below-top
        for at, folder in enumerate(self.folders):  # grows: outer folders first
            if time.monotonic() > self._until:
                self.limits[f"the search ended after {SECONDS_MAX:g} s and {at:,} folders"] = None
                self.unread.update(self.folders[at:])
                return
            try:
                fd = self._open(folder)
            except FileNotFoundError:  # another process removed it
                continue
            except OSError:
                # guard: unread-folder-reported
                self.unread.add(folder)
                continue
            try:
                self._search_folder(folder, fd)
            except OSError:
                self.unread.add(folder)
            finally:
                os.close(fd)

    def _open(self, folder: str) -> int:
        if not folder:
            return os.open(".", FOLDER_FLAGS, dir_fd=self._root)
        outer, name = os.path.split(folder)
        if outer != self._outer:
            fd = open_folder(self._root, outer)
            os.close(self._outer_fd)
            self._outer, self._outer_fd = outer, fd
        return os.open(name, FOLDER_FLAGS, dir_fd=self._outer_fd)

    def _search_folder(self, folder: str, fd: int) -> None:
        may_be_repository = False
        with os.scandir(fd) as entries:
            for entry in entries:
                name = entry.name
                path = f"{folder}/{name}" if folder else name
                may_be_repository = may_be_repository or fold_name(name) == "head"
                if program := find_startup_program(folder, name):
                    self.others[path] = (program, _read_version(fd, name))
                # guard: settings-file-watched
                elif name in (SETTINGS_FILE, PROJECT_FILE):
                    self._add_own(path, fd)
                if name not in REPOSITORIES and entry.is_dir(follow_symlinks=False):
                    self._add_folder(folder, path)
                if time.monotonic() > self._until:
                    self.unread.add(folder)
                    return
        if may_be_repository and is_repository(fd):
            self.others[folder or "."] = ("git", _read_version(fd, ""))

    def _add_folder(self, outer: str, path: str) -> None:
        if len(path) > PATH_CHARACTERS_MAX:
            reason = f"paths of more than {PATH_CHARACTERS_MAX:,} characters were left out"
        elif len(self.folders) < FOLDERS_MAX:
            self.folders.append(path)
            return
        else:
            reason = f"the search ended after {FOLDERS_MAX:,} folders"
        self.cut.add(outer)
        self.limits[reason] = None

    def _add_own(self, path: str, fd: int) -> None:
        name, data, target = os.path.split(path)[1], None, ""
        identity = identify(name, fd)
        with suppress(OSError):
            if stat.S_ISLNK(os.lstat(name, dir_fd=fd).st_mode):
                # guard: linked-settings-found
                target = os.path.realpath(f"{self._workspace}/{path}")
                data = self._read_target(target)
            else:
                data = self._read(name, fd)
        self.own[path] = OwnSettings(identity, data, target)

    def _read_target(self, target: str) -> bytes | None:
        """The content of the file that a link leads to, if it is in the workspace."""
        if not target.startswith(f"{self._workspace}/"):
            return None
        folder, name = os.path.split(os.path.relpath(target, self._workspace))
        fd = open_folder(self._root, folder)
        try:
            return self._read(name, fd)
        finally:
            os.close(fd)

    def _read(self, name: str, folder: int) -> bytes | None:
        about = os.lstat(name, dir_fd=folder)  # before it is opened: opening a device can have effects
        if not stat.S_ISREG(about.st_mode) or about.st_size > PROJECT_BYTES_MAX:
            return None
        if about.st_size > self._bytes_left:
            self.limits[f"only {ALL_FILES_BYTES_MAX:,} bytes of settings files were read"] = None
            return None
        with os.fdopen(os.open(name, READ_FLAGS, dir_fd=folder), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None
            data = file.read(PROJECT_BYTES_MAX + 1)
        self._bytes_left -= len(data)
        return data if len(data) <= PROJECT_BYTES_MAX else None


def open_folder(root: int, path: str) -> int:
    """A descriptor of a folder below `root`; fails if a part of the path is a link."""
    fd = os.open(".", FOLDER_FLAGS, dir_fd=root)
    for part in path.split("/") if path else ():
        try:
            inner = os.open(part, FOLDER_FLAGS, dir_fd=fd)
        finally:
            os.close(fd)
        fd = inner
    return fd


def identify(name: str, folder: int) -> Identity:
    try:
        about = os.lstat(name, dir_fd=folder)
    except OSError:
        return 0, 0, 0
    return about.st_dev, about.st_ino, about.st_ctime_ns


def _read_version(folder: int, name: str) -> Version:
    """Identities of the files that may name a program; of the path itself, its inode."""
    is_repository = name in ("", *REPOSITORIES)
    starts = [f"{name}/{part}".lstrip("/") for part in REPOSITORY_PARTS] if is_repository else [name]
    if is_repository and name and not _is_folder(folder, name):
        starts = [name]
    device, inode, _ = identify(name or ".", folder)
    found = [(path, identify(path, folder)) for start in starts for path in _list_files(folder, start)]
    return ((name, (device, inode, 0)), *sorted(found))


def _list_files(folder: int, start: str) -> Iterator[str]:
    """The files below a folder, or the file itself; only the first entries of a large folder."""
    paths = [start]
    for path in paths:  # grows
        names: list[str] = []
        if _is_folder(folder, path):
            with suppress(OSError):
                names = _list_names(folder, path, PARTS_MAX - len(paths))
        else:
            yield path
        paths += [f"{path}/{name}" for name in names]


def _list_names(folder: int, path: str, count: int) -> list[str]:
    fd = open_folder(folder, path)
    try:
        with os.scandir(fd) as entries:
            return [entry.name for entry, _ in zip(entries, range(count), strict=False)]
    finally:
        os.close(fd)


def _is_folder(folder: int, path: str) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path, dir_fd=folder).st_mode)
    except OSError:
        return False
