"""Replies that are being written, in small files beside the database: one per session that is watched, never synced.

A viewer makes the file and touches it while it reads; without a fresh one nothing is written. A text that is removed is
overwritten first. A checksum tells a reader that it has met a write.
"""

import os
import time
from hashlib import blake2b
from pathlib import Path
from zlib import crc32

READ_SECONDS = 5.0
"""Time since the last reader's touch after which nothing is written."""
TOUCH_SECONDS = 1.0
LEFT_SECONDS = 600.0
"""Time after which the file of a reader that is gone is removed."""
_FLAGS = os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
_SUM_BYTES = 4


class LiveFiles:
    def __init__(self, database: Path) -> None:
        self._folder = database.with_name(database.name + "-live")

    def publish(self, session: str, data: bytes) -> bool:
        """Write the data in place of that before; empty data removes it. False if no reader is there."""
        try:
            descriptor = os.open(self._find(session), _FLAGS)
        except FileNotFoundError:
            return False
        try:
            status = os.fstat(descriptor)
            if not data:
                # guard: live-file-erased
                _erase(descriptor, status.st_size)
            elif time.time() - status.st_mtime > READ_SECONDS:
                return False
            else:
                os.pwrite(descriptor, crc32(data).to_bytes(_SUM_BYTES) + data, 0)
                os.ftruncate(descriptor, _SUM_BYTES + len(data))
            os.utime(descriptor, ns=(status.st_atime_ns, status.st_mtime_ns))
            return True
        finally:
            os.close(descriptor)

    def read(self, session: str) -> bytes:
        """The data, or nothing; makes and touches the file."""
        path = self._find(session)
        try:
            descriptor = os.open(path, _FLAGS)
        except FileNotFoundError:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            self._remove_left()
            descriptor = os.open(path, _FLAGS | os.O_CREAT, 0o600)
        try:
            status = os.fstat(descriptor)
            if time.time() - status.st_mtime > TOUCH_SECONDS:
                os.utime(descriptor)
            found = os.pread(descriptor, status.st_size, 0)
        finally:
            os.close(descriptor)
        data = found[_SUM_BYTES:]
        return data if crc32(data).to_bytes(_SUM_BYTES) == found[:_SUM_BYTES] else b""

    def _remove_left(self) -> None:
        for path in self._folder.iterdir():
            if time.time() - path.stat(follow_symlinks=False).st_mtime > LEFT_SECONDS:
                descriptor = os.open(path, _FLAGS)
                try:
                    _erase(descriptor, os.fstat(descriptor).st_size)
                finally:
                    os.close(descriptor)
                path.unlink(missing_ok=True)

    def _find(self, session: str) -> Path:
        return self._folder / blake2b(session.encode("utf-8", "replace"), digest_size=16).hexdigest()


def _erase(descriptor: int, size: int) -> None:
    os.pwrite(descriptor, bytes(size), 0)
    os.ftruncate(descriptor, 0)
