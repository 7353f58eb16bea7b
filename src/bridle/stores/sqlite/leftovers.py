"""Notices files beside a database that do not belong to it, before SQLite uses or removes them.

SQLite replays any `-wal` file that it finds beside a database, also one of a database that was there before: a backup
that is put in place of a log would be damaged without a word.  A copy made by `bridle store backup` has a header that
says that it has no write-ahead log, which a store in use never has.
"""

import os
import struct
import weakref
from pathlib import Path

from bridle.values.errors import Corrupt, Unusable

HEADER_BYTES = 100
WAL_HEADER_BYTES, FRAME_HEADER_BYTES = 32, 24
VERSION_WAL = 2
"""Of the file format in the header: a database with a write-ahead log."""
RESTORE_ENDING = "-restore"
"""Ending of the file that exists while a backup is put in place."""
_open_stores: "dict[str, weakref.WeakSet[object]]" = {}


def note_open_store(path: Path, store: object) -> None:
    """Remember a store of this process: its files must not be opened and closed, which would release its locks."""
    _open_stores.setdefault(str(path), weakref.WeakSet()).add(store)


def note_closed_store(path: Path, store: object) -> None:
    _open_stores.get(str(path), weakref.WeakSet()).discard(store)


def is_open_here(path: Path) -> bool:
    return bool(_open_stores.get(str(path)))


def check_leftovers(path: Path) -> None:
    """Raise `Unusable` or `Corrupt`, with what to type, if the files at a path are not those of one store."""
    remedy = f"type: bridle store restore BACKUP --store {path}"
    if os.path.lexists(f"{path}{RESTORE_ENDING}"):
        raise Unusable(f"store {path}: putting a backup in place was interrupted; {remedy}")
    wal = _measure(f"{path}-wal")
    if is_open_here(path) or (not wal and _measure(str(path))):
        return
    size, header = _read_start(path)
    if not size and (wal or os.path.lexists(f"{path}-held")) and os.path.lexists(path):
        raise Corrupt(
            f"store {path}: the file is empty, and it was not before; {remedy}, or remove {path}* to begin a new log"
        )
    if not wal or size < HEADER_BYTES:
        return
    # guard: foreign-write-ahead-log
    if header[18] != VERSION_WAL:
        raise Unusable(
            f"store {path}: {path.name}-wal belongs to another file, which was at this place before, and would damage"
            f" this one; keep a copy of both, then {remedy}"
        )
    if missing := _count_missing_pages(path, size, header):
        raise Corrupt(f"store {path}: the file was cut off, {missing:,} pages are missing; {remedy}")


def _count_missing_pages(path: Path, size: int, header: bytes) -> int:
    """Pages that the header counts and that are neither in the file nor in its write-ahead log."""
    page_size = struct.unpack_from(">H", header, 16)[0]
    page_size = 65_536 if page_size == 1 else page_size
    pages, is_valid = struct.unpack_from(">I", header, 28)[0], header[24:28] == header[92:96]
    found = size // page_size
    if not is_valid or pages <= found:
        return 0
    logged = set()
    with Path(f"{path}-wal").open("rb") as file:
        file.seek(WAL_HEADER_BYTES)
        while len(frame := file.read(FRAME_HEADER_BYTES)) == FRAME_HEADER_BYTES:
            logged.add(struct.unpack_from(">I", frame)[0])
            file.seek(page_size, os.SEEK_CUR)
    return sum(1 for number in range(found + 1, pages + 1) if number not in logged)


def _measure(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except OSError:
        return 0


def _read_start(path: Path) -> tuple[int, bytes]:
    try:
        with path.open("rb") as file:
            return os.fstat(file.fileno()).st_size, file.read(HEADER_BYTES)
    except OSError:
        return 0, b""
