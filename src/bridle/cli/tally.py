"""What became of all recordings: counted by family, host and feature, and every loss by itself.

Nothing is dropped on the way: a recording that could not be read, one of a family nobody knows and a path
no codec takes are counted and listed like everything else.  What is listed here can be printed as it is or
as JSON, with the same names and all counts, noughts too.
"""

import re
from collections import Counter
from itertools import pairwise
from typing import Literal

import msgspec

from ..testing.agreement import Difference
from ..testing.traffic import Recording
from ..testing.wire import Verdict

COLUMNS = (
    "recordings",
    "replies",
    "compared",
    "failures",
    "cut",
    "other",
    "unread",
    "requests",
    "unchanged",
    "explained",
    "losses",
)
_ANSWERS = {
    "reply": "replies",
    "failure": "failures",
    "cut": "cut",
    "other": "other",
    "broken": "unread",
    "foreign": "unread",
}
_NAMING = re.compile(r"[a-z][a-z_-]*|v[0-9][a-z0-9]*", re.IGNORECASE)
_NAMED = {"accounts", "deployments", "locations", "model", "models", "projects"}
"""After these comes the name of one thing."""
_ASKED = re.compile(r"(?<=:)\w+$")


class Loss(msgspec.Struct):
    recording: str
    family: str
    about: Literal["reply", "request"]
    what: str
    reason: str
    """Empty when nobody can say why: that is a defect."""
    judged: bool
    tolerated: str
    """Why it is not judged; empty when it is."""


class Unread(msgspec.Struct):
    recording: str
    what: str
    broken: bool
    """Whether the recording is at fault, and not that its wire family is unknown here."""


class Path(msgspec.Struct, frozen=True):
    family: str
    host: str
    method: str
    path: str
    """With `*` for whatever names one thing only."""


class Tally:
    def __init__(self) -> None:
        self.by_family: dict[str, Counter[str]] = {}
        self.by_host: dict[str, Counter[str]] = {}
        self.by_feature: dict[str, Counter[str]] = {}
        self.losses: list[Loss] = []
        self.unread: list[Unread] = []
        self.paths: Counter[Path] = Counter()

    def add(self, recording: Recording, found: Verdict) -> None:
        lost = [_loss(recording, "reply", each) for each in found.reply]
        changed = [_loss(recording, "request", each) for each in found.request]
        self.losses += lost + changed
        counted: Counter[str] = Counter(recordings=1, compared=found.compared)
        counted[_ANSWERS[found.answer]] += 1
        if found.answer == "broken":
            self.unread.append(Unread(recording.id, recording.broken, broken=True))
        elif found.answer == "foreign":
            what = f"there is no wire family {recording.family!r}"
            self.unread.append(Unread(recording.id, what, broken=False))
        elif found.answer == "other":
            self.paths[_path(recording)] += 1
        elif recording.request is not None:
            counted["requests"] += 1
            counted["unchanged"] += not changed
            counted["explained"] += bool(changed) and all(loss.reason for loss in changed)
        counted["losses"] += any(loss.judged and not loss.reason for loss in lost + changed)
        family = recording.family or "unknown"
        _count(self.by_family, family, counted)
        _count(self.by_host, f"{family}/{recording.host or 'unknown'}", counted)
        for feature in recording.tags:
            _count(self.by_feature, feature, counted)

    @property
    def unexplained(self) -> list[Loss]:
        return [loss for loss in self.losses if loss.judged and not loss.reason]

    @property
    def total(self) -> Counter[str]:
        return sum(self.by_family.values(), Counter())

    @property
    def is_whole(self) -> bool:
        """Whether all that was named could be read."""
        return not any(each.broken for each in self.unread)


def with_noughts(table: dict[str, Counter[str]]) -> dict[str, dict[str, int]]:
    return {name: {column: counted[column] for column in COLUMNS} for name, counted in sorted(table.items())}


def _count(table: dict[str, Counter[str]], name: str, counted: Counter[str]) -> None:
    table.setdefault(name, Counter()).update(counted)


def _loss(recording: Recording, about: Literal["reply", "request"], found: Difference) -> Loss:
    return Loss(
        recording=recording.id,
        family=recording.family,
        about=about,
        what=found.what,
        reason=found.reason,
        judged=recording.strict,
        tolerated=recording.tolerated,
    )


def _path(recording: Recording) -> Path:
    asked = recording.request
    method, path = (asked.method, asked.path.partition("?")[0]) if asked else ("", "")
    verb = _ASKED.search(path)
    pieces = (path[: verb.start() - 1] if verb else path).split("/")
    plain = "/".join(
        "*" if before in _NAMED or (piece and not _NAMING.fullmatch(piece)) else piece
        for before, piece in pairwise(["", *pieces])
    )
    return Path(recording.family, recording.host, method, plain + (f":{verb.group()}" if verb else ""))
