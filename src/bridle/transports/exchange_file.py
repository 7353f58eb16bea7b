"""A file of recorded exchanges: for its owner only, and of limited size."""

import os
import stat
from pathlib import Path
from typing import BinaryIO

from .recording import Exchanged, written

FILE_BYTES_MAX = 512 * 1024 * 1024


class ExchangeFile:
    """Writes exchanges until the file is full; counts those that were left out then."""

    def __init__(self, path: Path, *, append: bool = False, bytes_max: int = FILE_BYTES_MAX) -> None:
        """Raises `OSError` when the file cannot be written."""
        self.path = path
        self.omitted = 0
        self._bytes_max = bytes_max
        self._count = 0
        self._file = _open_private(path, append=append)
        self._size = os.fstat(self._file.fileno()).st_size

    def write(self, exchanged: Exchanged) -> None:
        line = written(exchanged, self._count + 1)
        if self.omitted or self._size + len(line) > self._bytes_max:
            self.omitted += 1
            return
        self._file.write(line)
        self._count += 1
        self._size += len(line)

    def close(self) -> None:
        self._file.close()

    @property
    def complaint(self) -> str:
        """Empty unless something was left out."""
        if not self.omitted:
            return ""
        return f"{self.path} is full ({self._bytes_max:,} bytes): {self.omitted} exchanges were not written"


def _open_private(path: Path, *, append: bool) -> BinaryIO:
    flags = os.O_WRONLY | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | (os.O_APPEND if append else os.O_TRUNC)
    descriptor = os.open(path, flags, 0o600)
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode) and hasattr(os, "fchmod"):
            os.fchmod(descriptor, 0o600)  # one that was there before may be open to everybody
        return os.fdopen(descriptor, "ab" if append else "wb", buffering=0)
    except BaseException:
        os.close(descriptor)
        raise
