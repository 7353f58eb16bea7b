"""Counts the outcomes of checked recordings by family, host and feature, and lists every loss.

Every recording is counted and listed, also one that cannot be read, one of an unknown family and one whose path no
codec accepts. The report prints as text or as JSON, with the same names and with zero counts.
"""

import re
from collections import Counter
from itertools import pairwise
from typing import Literal

import msgspec

from bridle.testing.wire.check_recording import RecordingVerdict
from bridle.testing.wire.recorded_traffic import TrafficRecord
from bridle.testing.wire.reply_agreement import WireDifference

REPORT_COLUMNS = (
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
_COLUMN_OF_ANSWER = {
    "reply": "replies",
    "failure": "failures",
    "cut": "cut",
    "other": "other",
    "broken": "unread",
    "foreign": "unread",
}
_PLAIN_PATH_PIECE = re.compile(r"[a-z][a-z_-]*|v[0-9][a-z0-9]*", re.IGNORECASE)
_ID_PARENTS = {"accounts", "deployments", "locations", "model", "models", "projects"}
"""Path segments that are followed by an id."""
_PATH_VERB = re.compile(r"(?<=:)\w+$")


class WireLoss(msgspec.Struct):
    recording: str
    family: str
    about: Literal["reply", "request"]
    what: str
    reason: str
    """Empty for an unexplained loss, which is a defect."""
    judged: bool
    tolerated: str
    """Reason why the loss is not judged; empty if it is."""


class UnreadRecording(msgspec.Struct):
    recording: str
    what: str
    broken: bool
    """True if the recording is damaged, False if its wire family is unknown."""


class UnjudgedPath(msgspec.Struct, frozen=True):
    family: str
    host: str
    method: str
    path: str
    """URL path with `*` in place of ids."""


class WireReport:
    def __init__(self) -> None:
        self.by_family: dict[str, Counter[str]] = {}
        self.by_host: dict[str, Counter[str]] = {}
        self.by_feature: dict[str, Counter[str]] = {}
        self.losses: list[WireLoss] = []
        self.unread_recordings: list[UnreadRecording] = []
        self.unjudged_paths: Counter[UnjudgedPath] = Counter()

    def add(self, recording: TrafficRecord, found: RecordingVerdict) -> None:
        lost = [_make_loss(recording, "reply", each) for each in found.reply]
        changed = [_make_loss(recording, "request", each) for each in found.request]
        self.losses += lost + changed
        counted: Counter[str] = Counter(recordings=1, compared=found.was_compared)
        counted[_COLUMN_OF_ANSWER[found.outcome]] += 1
        if found.outcome == "broken":
            self.unread_recordings.append(
                UnreadRecording(recording.id, recording.unreadable_reason, broken=True)
            )
        elif found.outcome == "foreign":
            what = f"unknown wire family {recording.family!r}"
            self.unread_recordings.append(UnreadRecording(recording.id, what, broken=False))
        elif found.outcome == "other":
            self.unjudged_paths[_unjudged_path(recording)] += 1
        elif recording.request is not None:
            counted["requests"] += 1
            counted["unchanged"] += not changed
            counted["explained"] += bool(changed) and all(loss.reason for loss in changed)
        counted["losses"] += any(loss.judged and not loss.reason for loss in lost + changed)
        family = recording.family or "unknown"
        _add_counts(self.by_family, family, counted)
        _add_counts(self.by_host, f"{family}/{recording.host or 'unknown'}", counted)
        for feature in recording.tags:
            _add_counts(self.by_feature, feature, counted)

    @property
    def unexplained_losses(self) -> list[WireLoss]:
        return [loss for loss in self.losses if loss.judged and not loss.reason]

    @property
    def total(self) -> Counter[str]:
        return sum(self.by_family.values(), Counter())

    @property
    def is_complete(self) -> bool:
        """True if every recording could be read."""
        return not any(each.broken for each in self.unread_recordings)


def fill_zero_counts(table: dict[str, Counter[str]]) -> dict[str, dict[str, int]]:
    return {
        name: {column: counted[column] for column in REPORT_COLUMNS}
        for name, counted in sorted(table.items())
    }


def _add_counts(table: dict[str, Counter[str]], name: str, counted: Counter[str]) -> None:
    table.setdefault(name, Counter()).update(counted)


def _make_loss(
    recording: TrafficRecord, about: Literal["reply", "request"], found: WireDifference
) -> WireLoss:
    return WireLoss(
        recording=recording.id,
        family=recording.family,
        about=about,
        what=found.description,
        reason=found.reason,
        judged=recording.is_judged,
        tolerated=recording.not_judged_reason,
    )


def _unjudged_path(recording: TrafficRecord) -> UnjudgedPath:
    asked = recording.request
    method, path = (asked.method, asked.path.partition("?")[0]) if asked else ("", "")
    verb = _PATH_VERB.search(path)
    pieces = (path[: verb.start() - 1] if verb else path).split("/")
    plain = "/".join(
        "*" if before in _ID_PARENTS or (piece and not _PLAIN_PATH_PIECE.fullmatch(piece)) else piece
        for before, piece in pairwise(["", *pieces])
    )
    return UnjudgedPath(
        recording.family, recording.host, method, plain + (f":{verb.group()}" if verb else "")
    )
