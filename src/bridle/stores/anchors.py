"""Anchors: heads of sessions, written to a file outside the log.

A hash chain proves that no record was changed, but not that the log is the one that was written: another program can
cut off its end, or rewrite all of it. An anchor says that a session once had this record with this hash. Whoever
changes the log has to change the anchors too, so the file belongs where that is harder: on another disk, or in a folder
that only allows appending.

The file has one line of JSON per anchor and is only ever appended to, with one `write` per line, so several processes
can share it. Anchors are written when a run ends, when a person answers a question and when content is redacted,
right after the record is on disk; they are not synced: a power loss can lose the last ones, never make them wrong.
"""

import errno
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from bridle.values.base import Value
from bridle.values.calls import CONTROL_LOG_PREFIX, ApprovalAnswered, ContentRedacted
from bridle.values.errors import Unusable
from bridle.values.events import RunEnded
from bridle.values.hooks import HookDecided
from bridle.values.record import Record

ANCHORED_EVENTS = (RunEnded, ApprovalAnswered, HookDecided, ContentRedacted)
"""A hook may decide something after the end of a run."""
ENDING = ".anchors"

_encode = msgspec.json.Encoder().encode


class Anchor(Value, kw_only=True):
    session: str
    seq: int
    head: str
    """Hash of the record with this number."""
    at: float = 0.0
    removed: bool = False
    """True if `bridle store gc` removed the session; it had this head."""


class AnchorFile:
    """The anchors of one log. Opened once; a path that cannot be written is refused at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            if _ends_inside_line(path):
                os.write(self._descriptor, b"\n")
        except OSError as error:
            raise _explain(path, error) from error

    def write_heads(self, session: str, records: Sequence[Record]) -> None:
        """Anchor every redaction, and the last of the records if one of them ends a run or answers a question."""
        if session.startswith(CONTROL_LOG_PREFIX):  # such a log starts again when it is full
            return
        last = records[-1]
        has_event = any(isinstance(record.event, ANCHORED_EVENTS) for record in records)
        for record in records:
            if isinstance(record.event, ContentRedacted) or (has_event and record is last):
                # guard: head-anchored
                self.write(Anchor(session=session, seq=record.seq, head=record.hash, at=record.at))

    def write(self, anchor: Anchor) -> None:
        line = _encode(anchor) + b"\n"
        try:
            # A full disk takes a part of the line. Another process may write next, so the whole line follows again.
            for data in (line, b"\n" + line):
                if os.write(self._descriptor, data) == len(data):
                    return
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise _explain(self.path, error) from error

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def find_anchor_file(log: Path, given: str | os.PathLike[str] | None) -> Path | None:
    """The anchor file of a log: a file, or a folder that has one per log. None if there is to be none."""
    if given is None or not str(given).strip():
        return None
    path = Path(given).expanduser()
    return path / f"{log.name}{ENDING}" if path.is_dir() else path


class UnreadableLine(Value, kw_only=True):
    number: int
    error: str


def read_anchors(path: Path) -> Iterator[Anchor | UnreadableLine]:
    """Yield the anchors in the order they were written. A line that a crash cut off at the end is skipped."""
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except OSError as error:
        raise _explain(path, error) from error
    for number, line in enumerate(lines, 1):
        try:
            yield msgspec.json.decode(line, type=Anchor)
        except msgspec.MsgspecError as error:
            if number < len(lines) or line.endswith(b"\n"):
                yield UnreadableLine(number=number, error=str(error))


def _ends_inside_line(path: Path) -> bool:
    """True if a crash or a full disk cut off the last line. A path without an end, such as a pipe, has no such line."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        if not file.seek(0, os.SEEK_END):
            return False
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"


def _explain(path: Path, error: OSError) -> Unusable:
    remedy = "correct $BRIDLE_ANCHORS or the option `anchors`"
    if error.errno == errno.ENOSPC:
        remedy = "the disk is full; make room and resume"
    return Unusable(f"anchors {path}: the file cannot be used ({error.strerror}); {remedy}")
