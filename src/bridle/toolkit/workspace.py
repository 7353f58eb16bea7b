"""A folder that paths written by a model cannot leave.

Every component of a path is opened relative to the folder before it, without following links (`openat` with
O_NOFOLLOW), so there is no moment at which another process can swap a checked component for a link.  A link is read
and its target walked in the same way: links inside the workspace work, links that leave it are refused, and `..`
goes back along the opened folders and never above the first.

The first folder is opened when the tools are made, and kept: a command that moves a folder above it and puts a link in
its place changes nothing.

Only regular files and folders exist here.  Files are opened without blocking and checked after they are open, so a
named pipe or a device is refused instead of read.  A write makes a new file beside the old one and renames it: readers
see the old or the new content, and other hard links of the old file keep the old content.

Reading a hard link of a file outside reads that file: a link of this kind is an ordinary file of the workspace.  A
sandboxed command cannot make one, because its workspace is a mount of its own.
"""

import errno
import os
import re
import secrets
import stat
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from bridle.ports.held_folder import HeldFolder
from bridle.sandbox.launcher.settings_guard import adds_settings
from bridle.sandbox.launcher.settings_scan import PROJECT_FILE
from bridle.sandbox.launcher.startup_files import find_startup_program, fold_name, is_repository
from bridle.sandbox.local import check_workspace
from bridle.sandbox.protected_paths import PROTECTED_NAMES
from bridle.values.errors import MisuseError
from bridle.values.text import escape_text

FILE_BYTES_MAX = 10 * 1024 * 1024
"""Largest file that is read or written."""
DEPTH_MAX = 64
"""Folders below one another; each of them is open while a path is walked."""
LINKS_MAX = 40
"""Links followed in one path, as in the kernel."""
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
# guard: workspace-folder-flags
FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# guard: workspace-file-flags
FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
BINARY_PROBE_BYTES = 8192
_writing = threading.Lock()
"""Held from the checks of a path until its file is there: calls on different files run at the same time, and each
alone could be harmless."""


class PathRefused(ValueError):
    """A path that is not a file or folder of the workspace; the message is for the model."""


class NotAFolder(PathRefused):
    """A file where a folder is needed."""


class PathMissing(PathRefused):
    """A path at which there is nothing."""


class FileTooLarge(PathRefused):
    """A file with more bytes than are read."""


class FileState(NamedTuple):
    """A file's text with what identifies this version of it."""

    text: str
    version: tuple[int, int, int]


class Entry(NamedTuple):
    name: str
    is_folder: bool
    size: int
    special: str = ""
    """`link`, or the kind of a file that cannot be read."""


class Workspace:
    """One folder; all paths are relative to it."""

    def __init__(
        self,
        root: str | os.PathLike[str],
        read_only: Sequence[Path] = (),
        what: str = "the workspace",
    ) -> None:
        """`read_only` are folders of the workspace that are not written; `what` names it in errors."""
        if not _can_open_safely():
            raise MisuseError("file tools need a system with openat and O_NOFOLLOW, such as Linux or macOS")
        self.root = Path(root).expanduser().resolve()
        # guard: toolkit-workspace-checked
        check_workspace(self.root, what)
        self._hold(HeldFolder(self.root, what))
        self._read_only = tuple(HeldFolder(path.resolve(), "the skills") for path in read_only)

    def _hold(self, held: HeldFolder, below: str = "") -> None:
        self._held, self._below, self._read_only = held, below, ()

    @classmethod
    def hold_folder(cls, folder: Path, what: str) -> "Workspace":
        """A folder to read from, which may be any one; raises OSError if it cannot be opened."""
        made = cls.__new__(cls)
        made.root = folder.resolve()
        made._hold(HeldFolder(made.root, what))
        return made

    def open_below(self, name: str) -> "Workspace":
        """A folder of this one as a workspace of its own, opened from this one each time; a link is refused."""
        made = type(self).__new__(type(self))
        made.root = self.root / name
        made._hold(self._held, f"{self._below}/{name}".lstrip("/"))
        made.is_folder("")
        return made

    @property
    def identity(self) -> str:
        """The folder itself, as a text that a program can compare with what it has opened."""
        return "{}:{}".format(*self._held.identity)

    def check_identity(self, identity: str) -> None:
        """Raise `PathRefused` unless this is the folder that another process has opened."""
        if self.identity != identity:
            raise PathRefused("the workspace was moved or replaced after the tools were made; put it back")

    def find_startup_program(self, path: str) -> str:
        """The program that runs what a file names without being told to; empty if none does, or it is never written."""
        folders = self.name_path(path).split("/")
        if any(fold_name(name) in PROTECTED_NAMES for name in folders):
            return ""
        for at, name in enumerate(folders):
            if found := find_startup_program(folders[at - 1] if at else self.root.name, name):
                return found
        return ""

    def name_path(self, path: str) -> str:
        """The path as a resource name: the same for every way to write it, links included."""
        try:
            with self._walk(path, folder=False) as place:
                return place.path
        except (PathRefused, OSError):
            return os.path.normpath(path)

    def read_text(self, path: str) -> FileState:
        """The text of a file; raises `PathRefused` for folders, special, large and binary files."""
        with self._walk(path, folder=False) as place:
            data, about = _read_file(place, path)
        return FileState(decode_text(data, path), _version(about))

    def read_bytes(self, path: str, most: int = FILE_BYTES_MAX) -> bytes:
        """The content of a file, of text or not; raises `FileTooLarge` if it has more than `most` bytes."""
        with self._walk(path, folder=False) as place:
            return _read_file(place, path, most)[0]

    def write_text(self, path: str, text: str, before: FileState | None) -> None:
        """Replace a file if it is still `before`; None creates it and the folders of its path."""
        data = text.encode()
        if len(data) > FILE_BYTES_MAX:
            raise PathRefused(
                f"the new content has {len(data):,} bytes; at most {FILE_BYTES_MAX:,} are written"
            )
        if before is None and CONTROL.search(path):  # receipts and lists have one line for each path
            raise PathRefused(f"{path!r} has control characters, such as a line break; choose another name")
        with _writing, self._walk(path, folder=False, create=before is None) as place:
            self._check_writable(path, place)
            if fold_name(place.name) == PROJECT_FILE:
                _check_project_file(path, data, before)
            _replace_file(place, path, data, before)
            if before is None:
                _undo_repository(path, place)

    def remove(self, path: str, before: FileState) -> None:
        """Delete a file if it is still `before`."""
        with self._walk(path, folder=False) as place:
            self._check_writable(path, place)
            _check_version(place, path, before)
            os.unlink(place.name, dir_fd=place.folder)

    def list_folder(self, path: str) -> list[Entry]:
        """The entries of a folder by name."""
        with self._walk(path, folder=True) as place:
            return _list_entries(place.folder)

    def is_folder(self, path: str) -> bool:
        try:
            with self._walk(path, folder=True):
                return True
        except NotAFolder:
            return False

    def walk_files(self, path: str, skipped: frozenset[str]) -> Iterator[tuple[str, str]]:
        """The folder, and the path in it, of every regular file below a folder; links are not followed."""
        with self._walk(path, folder=True) as place:
            for name in _walk_below(place.folder, "", skipped):
                yield place.path, name

    def _check_writable(self, path: str, place: "Place") -> None:
        _check_unprotected(path, *place.path.split("/"))
        read_only = {held.identity for held in self._read_only}
        for folder in place.folders:
            about = os.fstat(folder)
            # guard: read-only-folder
            if (about.st_dev, about.st_ino) in read_only:
                raise PathRefused(f"{path!r} is read-only: it belongs to a skill")
            _check_no_repository(path, folder)
        _check_no_repository(path, place.folder, place.name)

    @contextmanager
    def _walk(self, path: str, *, folder: bool, create: bool = False) -> "Iterator[Place]":
        opened = _Walk(self.root, self._held.descriptor, self._below)
        try:
            yield opened.open(path, folder=folder, create=create)
        finally:
            opened.close()


class Place(NamedTuple):
    """An open folder and a name in it; for a folder itself, the name is empty."""

    folder: int
    name: str
    path: str
    """Relative to the workspace, without links."""
    folders: tuple[int, ...] = ()
    """The open folders from the workspace to this one."""
    created: "tuple[tuple[int, str], ...]" = ()
    """The folders that were made on the way: the open folder of each, and its name."""


class _Walk:
    """Opens the components of one path; holds the folders on the way to it."""

    def __init__(self, root: Path, held: int, below: str) -> None:
        """`held` is the descriptor of the folder that paths start from, or of the one above it, which has `below`."""
        self._root = root
        self._names: list[str] = []
        self._created: list[tuple[int, str]] = []
        try:
            self._folders = [os.open(below or ".", FOLDER_FLAGS, dir_fd=held)]
        except OSError as error:
            raise PathRefused(f"the folder {str(root)!r} cannot be opened: {error.strerror}") from None
        self._links = 0

    def close(self) -> None:
        for fd in self._folders:
            os.close(fd)

    def open(self, path: str, *, folder: bool, create: bool) -> Place:
        left = self._split(path)
        while left:
            name = left.pop(0)
            # guard: parent-folder-step
            if name == "..":
                self._go_up(path)
            elif not folder and not left:
                target = self._read_link(name)
                if target is None:
                    return self._make_place(name)
                left = self._split(target, self._count_link(path))
            else:
                left = self._enter(name, path, create=create) + left
        if not folder:
            raise PathRefused(f"{path!r} is a folder, not a file; use list_folder")
        return self._make_place("")

    def _make_place(self, name: str) -> Place:
        path = "/".join((*self._names, name) if name else self._names)
        return Place(self._folders[-1], name, path, tuple(self._folders), tuple(self._created))

    def _split(self, path: str, shown: str | None = None) -> list[str]:
        """The components of a path or a link's target; an absolute one must be below the root."""
        if "\0" in path:
            raise PathRefused("the path contains a NUL character")
        if path.startswith("/"):
            root = str(self._root)
            if path != root and not path.startswith(f"{root.rstrip('/')}/"):
                raise PathRefused(
                    f"{shown or repr(path)} is outside of the workspace; paths are relative to it"
                )
            path = path[len(root) :]
            self._go_to_root()
        return [part for part in path.split("/") if part not in ("", ".")]

    def _go_to_root(self) -> None:
        while self._names:
            self._close_last()

    def _go_up(self, path: str) -> None:
        if not self._names:
            raise PathRefused(f"{path!r} is outside of the workspace; paths are relative to it")
        self._close_last()

    def _close_last(self) -> None:
        self._names.pop()
        closed = self._folders.pop()
        self._created = [each for each in self._created if each[0] != closed]
        os.close(closed)

    def _enter(self, name: str, path: str, *, create: bool) -> list[str]:
        """Open a folder; returns the components of its target if it is a link."""
        try:
            # guard: workspace-folder-opened
            opened = os.open(name, FOLDER_FLAGS, dir_fd=self._folders[-1])
        except FileNotFoundError:
            if not create:
                raise PathMissing(f"{path!r} does not exist") from None
            _check_unprotected(path, name)
            _check_no_repository(path, self._folders[-1], name)
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=self._folders[-1])
                self._created.append((self._folders[-1], name))
            return self._enter(name, path, create=False)
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENOTDIR, errno.EMLINK):
                raise PathRefused(f"{path!r} cannot be opened: {error.strerror}") from None
            target = self._read_link(name)
            if target is None:
                raise NotAFolder(f"{path!r}: {name!r} is not a folder") from None
            return self._split(target, self._count_link(path))
        self._names.append(name)
        self._folders.append(opened)
        if len(self._names) > DEPTH_MAX:
            raise PathRefused(f"{path[:200]!r} is more than {DEPTH_MAX} folders deep")
        return []

    def _read_link(self, name: str) -> str | None:
        """The target of a link; None if there is no link of this name."""
        try:
            return os.readlink(name, dir_fd=self._folders[-1])
        except OSError:
            return None

    def _count_link(self, path: str) -> str:
        self._links += 1
        if self._links > LINKS_MAX:
            raise PathRefused(f"{path!r} has too many links")
        return repr(path)


def _check_unprotected(path: str, *names: str) -> None:
    for name in names:
        # guard: protected-name-written
        if fold_name(name) in PROTECTED_NAMES:
            raise PathRefused(f"{path!r} is read-only: {name} can run programs outside of the sandbox")


def _check_no_repository(path: str, folder: int, adding: str = "") -> None:
    """Refuse a path in a folder that git takes for a repository, or that the new entry would make one."""
    # guard: planted-repository
    if is_repository(folder, adding):
        raise PathRefused(
            f"{path!r} is read-only: git takes its folder for a repository (HEAD, objects, refs), which can run"
            " programs outside of the sandbox; choose another name"
        )


def _undo_repository(path: str, place: Place) -> None:
    """Remove a new file, and the folders made for it, if another process added the rest of a repository meanwhile."""
    # guard: repository-by-two-writers
    if any(map(is_repository, place.folders)):
        with suppress(OSError):
            os.unlink(place.name, dir_fd=place.folder)
        for folder, name in reversed(place.created):
            with suppress(OSError):  # another process has put something there
                os.rmdir(name, dir_fd=folder)
        _check_no_repository(path, place.folder, place.name)
        raise PathRefused(f"{path!r} was not written: git would have taken its folder for a repository")


def _check_project_file(path: str, data: bytes, before: FileState | None) -> None:
    if adds_settings(data, before.text.encode() if before else None):
        raise PathRefused(f"{path!r}: [tool.bridle] is read-only, it can run programs outside of the sandbox")


def _read_file(place: Place, path: str, most: int = FILE_BYTES_MAX) -> tuple[bytes, os.stat_result]:
    try:
        # guard: workspace-file-opened
        fd = os.open(place.name, FILE_FLAGS, dir_fd=place.folder)
    except FileNotFoundError:
        raise PathMissing(f"{path!r} does not exist") from None
    except OSError as error:
        raise PathRefused(f"{path!r} cannot be read: {error.strerror}") from None
    try:
        about = os.fstat(fd)
        # guard: workspace-regular-file
        _check_regular(about, path)
        data = _read_bytes(fd, about.st_size, most)
    finally:
        os.close(fd)
    if len(data) > most:
        raise FileTooLarge(f"{path!r} has more than {most:,} bytes; use shell to look at parts of it")
    return data, about


def _read_bytes(fd: int, size: int, most: int) -> bytes:
    found = bytearray()
    while len(found) <= most:
        data = os.read(fd, min(max(size, 4096), most + 1 - len(found)))
        if not data:
            break
        found += data
    return bytes(found)


def decode_text(data: bytes, path: str) -> str:
    """The text of a file; raises `PathRefused` if it is not UTF-8 text."""
    if b"\0" in data[:BINARY_PROBE_BYTES]:
        raise PathRefused(f"{path!r} is a binary file of {len(data):,} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise PathRefused(f"{path!r} is not UTF-8 text (byte {error.start:,}); {len(data):,} bytes") from None


def _check_regular(about: os.stat_result, path: str) -> None:
    if stat.S_ISDIR(about.st_mode):
        raise PathRefused(f"{path!r} is a folder, not a file; use list_folder")
    if not stat.S_ISREG(about.st_mode):
        raise PathRefused(f"{path!r} is a {_kind(about.st_mode)}, not a file")


def _kind(mode: int) -> str:
    for test, name in (
        (stat.S_ISFIFO, "named pipe"),
        (stat.S_ISSOCK, "socket"),
        (stat.S_ISBLK, "device"),
        (stat.S_ISCHR, "device"),
        (stat.S_ISLNK, "link"),
    ):
        if test(mode):
            return name
    return "special file"


def _version(about: os.stat_result) -> tuple[int, int, int]:
    return about.st_ino, about.st_mtime_ns, about.st_size


def _find_entry(place: Place, path: str) -> os.stat_result | None:
    try:
        about = os.stat(place.name, dir_fd=place.folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    _check_regular(about, path)
    return about


def _check_version(place: Place, path: str, before: FileState | None) -> os.stat_result | None:
    about = _find_entry(place, path)
    if (about is None) != (before is None) or (about and before and _version(about) != before.version):
        raise PathRefused(f"{path!r} was changed by another program meanwhile; read it again")
    return about


def _replace_file(place: Place, path: str, data: bytes, before: FileState | None) -> None:
    temporary = f".{place.name[:100]}.{secrets.token_hex(6)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        fd = os.open(temporary, flags, 0o666, dir_fd=place.folder)
    except OSError as error:
        raise PathRefused(f"{path!r} cannot be written: {error.strerror}") from None
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            about = _check_version(place, path, before)
            if about is not None:
                with suppress(PermissionError):
                    os.fchown(fd, about.st_uid, about.st_gid)
                os.fchmod(fd, stat.S_IMODE(about.st_mode) & 0o777)
            os.fsync(fd)
        os.replace(temporary, place.name, src_dir_fd=place.folder, dst_dir_fd=place.folder)
    except OSError as error:
        raise PathRefused(f"{path!r} cannot be written: {error.strerror}") from None
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=place.folder)


def _list_entries(folder: int) -> list[Entry]:
    found: list[Entry] = []
    for name in sorted(os.listdir(folder)):
        try:
            about = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            continue
        folder_entry, regular = stat.S_ISDIR(about.st_mode), stat.S_ISREG(about.st_mode)
        special = "" if folder_entry or regular else _kind(about.st_mode)
        found.append(
            Entry(
                escape_text(os.fsencode(name).decode(errors="replace")), folder_entry, about.st_size, special
            )
        )
    return found


def _walk_below(folder: int, path: str, skipped: frozenset[str], depth: int = 0) -> Iterator[str]:
    for name in sorted(os.listdir(folder)):
        below = f"{path}/{name}" if path else name
        try:
            about = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISDIR(about.st_mode) and name not in skipped and depth < DEPTH_MAX:
                opened = os.open(name, FOLDER_FLAGS, dir_fd=folder)
                try:
                    yield from _walk_below(opened, below, skipped, depth + 1)
                finally:
                    os.close(opened)
            elif stat.S_ISREG(about.st_mode):
                yield below
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            continue


def _can_open_safely() -> bool:
    return hasattr(os, "O_NOFOLLOW") and hasattr(os, "O_DIRECTORY") and os.open in os.supports_dir_fd
