"""Anchors: heads of sessions, written to a file outside the log.

A hash chain proves that no record was changed, but not that the log is the one that was written: another program can
cut off its end, or rewrite all of it. An anchor says that a session once had this record with this hash. Whoever
changes the log has to change the anchors too, so the file belongs where that is harder: on another disk, or in a folder
that only allows appending.

The file has one line of JSON per anchor and is only ever appended to, with one `write` per line, so several processes
can share it. Anchors are written when a run ends and when a person answers a question, right after the record is on
disk; they are not synced: a power loss can lose the last ones, never make them wrong.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from bridle.values.base import Value
from bridle.values.calls import ApprovalAnswered
from bridle.values.errors import Unusable
from bridle.values.events import RunEnded
from bridle.values.hooks import HookDecided
from bridle.values.record import Record

ANCHORED_EVENTS = (RunEnded, ApprovalAnswered, HookDecided)
"""A hook may decide something after the end of a run."""
ENDING = ".anchors"

_encode = msgspec.json.Encoder().encode


class Anchor(Value):
    session: str
    seq: int
    head: str
    """Hash of the record with this number."""
    at: float = 0.0
    removed: bool = False
    """True if `bridle gc` removed the session; it had this head."""


class AnchorFile:
    """The anchors of one log. Opened once; a path that cannot be written is refused at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _explain(path, error) from error

    def write_heads(self, session: str, records: Sequence[Record]) -> None:
        """Anchor the last of the records if one of them ends a run or answers a question."""
        if any(isinstance(record.event, ANCHORED_EVENTS) for record in records):
            last = records[-1]
            self.write(Anchor(session=session, seq=last.seq, head=last.hash, at=last.at))

    def write(self, anchor: Anchor) -> None:
        try:
            os.write(self._descriptor, _encode(anchor) + b"\n")
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


def read_anchors(path: Path) -> Iterator[Anchor]:
    """Yield the anchors in the order they were written. A line that a crash cut off is skipped."""
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except OSError as error:
        raise _explain(path, error) from error
    for number, line in enumerate(lines, 1):
        try:
            yield msgspec.json.decode(line, type=Anchor)
        except msgspec.MsgspecError as error:
            if number == len(lines) and not line.endswith(b"\n"):
                return
            raise Unusable(
                f"anchors {path}: line {number} cannot be read ({error}); restore the file"
            ) from error


def _explain(path: Path, error: OSError) -> Unusable:
    return Unusable(
        f"anchors {path}: the file cannot be used ({error.strerror}); correct $BRIDLE_ANCHORS or the option `anchors`"
    )
