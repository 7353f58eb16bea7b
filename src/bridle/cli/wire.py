"""Put recorded provider traffic to the codecs.

    bridle wire check PATH…     every recording in these files (JSON lines, .gz or not) or folders

Each recorded reply must decode, to the same value whole and in slices of any size; each recorded
request, read and written again, must mean the same.  Recordings whose bytes are not those of a real
exchange are tried too, but not judged.  Every loss is listed with its recording and its reason; one
without a reason makes the exit code 1.
"""

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from ..ports.codec import Codec
from ..providers import load
from ..testing.wire import Recording, Verdict, recordings, verdict
from ..values.errors import MisuseError
from ..watchers.console import brief

SLICES_TRIED = 3
SLICE_BYTES_MAX = 2_000
COLUMNS = (
    "recordings",
    "replies",
    "failures",
    "cut",
    "other",
    "requests",
    "unchanged",
    "explained",
    "losses",
)


class Loss(msgspec.Struct):
    recording: str
    family: str
    what: str
    reason: str
    """Empty when nobody can say why: that is a defect."""
    judged: bool


class Account:
    """What became of all recordings, by family, host and feature."""

    def __init__(self) -> None:
        self.by_family: dict[str, Counter[str]] = {}
        self.by_host: dict[str, Counter[str]] = {}
        self.by_feature: dict[str, Counter[str]] = {}
        self.losses: list[Loss] = []

    def add(self, recording: Recording, found: Verdict) -> None:
        lost = [_loss(recording, what, "") for what in found.problems]
        lost += [_loss(recording, what, found.reason) for what in found.differences]
        self.losses += lost
        counted: Counter[str] = Counter(recordings=1)
        answers = {"reply": "replies", "failure": "failures", "cut": "cut", "other": "other"}
        counted[answers[found.answer]] += 1
        if recording.request is not None and found.answer != "other":
            counted["requests"] += 1
            counted["unchanged"] += not found.differences
            counted["explained"] += bool(found.differences) and all(loss.reason for loss in lost)
        counted["losses"] += any(loss.judged and not loss.reason for loss in lost)
        self._count(self.by_family, recording.family, counted)
        self._count(self.by_host, f"{recording.family}/{recording.host}", counted)
        for feature in recording.tags:
            self._count(self.by_feature, feature, counted)

    @property
    def unexplained(self) -> list[Loss]:
        return [loss for loss in self.losses if loss.judged and not loss.reason]

    @staticmethod
    def _count(table: dict[str, Counter[str]], name: str, counted: Counter[str]) -> None:
        table.setdefault(name, Counter()).update(counted)


def arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="what", required=True, metavar="check")
    check = commands.add_parser("check", help="put recordings to the codecs")
    check.add_argument(
        "paths", nargs="+", type=Path, metavar="PATH", help="files of recordings, or folders of them"
    )
    check.add_argument("--seed", type=int, default=1, help="for the sizes of the slices (default 1)")
    check.add_argument("--hosts", action="store_true", help="show the counts by host too")
    check.add_argument("--features", action="store_true", help="show the counts by feature too")
    check.add_argument("--json", action="store_true", help="print one JSON object")


def execute(options: argparse.Namespace) -> int:
    account, chance = Account(), random.Random(options.seed)
    for path in _files(options.paths):
        for recording in _read(path):
            slices = [chance.randint(1, SLICE_BYTES_MAX) for _ in range(SLICES_TRIED)]
            account.add(recording, _judged(recording, slices))
            _progress(account)
    _progress(account, done=True)
    if not account.by_family:
        raise MisuseError("there is no recording in there, so nothing was proven")
    if options.json:
        print(_as_json(account, options.seed))
    else:
        _show(account, options)
    return 1 if account.unexplained else 0


def _judged(recording: Recording, slices: Sequence[int]) -> Verdict:
    try:
        return verdict(_codec(recording), recording, slices)
    except Exception as error:  # noqa: BLE001 - a codec that raises is a defect to list, not one to stop at
        told = f"the codec raised {type(error).__name__}: {error}"
        return Verdict(id=recording.id, answer="failure", problems=(told,))


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        found = sorted([*path.glob("*.jsonl"), *path.glob("*.jsonl.gz")]) if path.is_dir() else [path]
        if not path.exists() or not found:
            raise MisuseError(
                f"there are no recordings at {str(path)!r}: name a .jsonl or .jsonl.gz file, or a folder"
            )
        yield from found


def _read(path: Path) -> Iterator[Recording]:
    try:
        yield from recordings(path)
    except (ValueError, KeyError, TypeError, OSError, EOFError) as error:
        raise MisuseError(
            f"{str(path)!r} is not a file of recordings: {type(error).__name__}: {error}"
        ) from error


def _codec(recording: Recording) -> Codec:
    return load(recording.family)


def _loss(recording: Recording, what: str, reason: str) -> Loss:
    return Loss(recording.id, recording.family, what, reason, recording.strict)


def _show(account: Account, options: argparse.Namespace) -> None:
    _table("family", account.by_family)
    if options.hosts:
        _table("host", account.by_host)
    if options.features:
        _table("feature", account.by_feature)
    for loss in account.losses:
        how = loss.reason or (
            "UNEXPLAINED" if loss.judged else "not judged: not the bytes of a real exchange"
        )
        print(f"{loss.recording}  {brief(loss.what, 120)}  [{how}]")
    total: Counter[str] = sum(account.by_family.values(), Counter())
    share = 100 * total["unchanged"] / total["requests"] if total["requests"] else 100.0
    print(
        f"\n{total['recordings']} recordings: {total['replies']} replies, {total['failures']} failures and"
        f" {total['cut']} cut streams decoded; {share:.2f} % of {total['requests']} requests unchanged in"
        f" meaning, {total['explained']} changed for a reason; {len(account.unexplained)} unexplained losses"
    )


def _table(title: str, table: dict[str, Counter[str]]) -> None:
    width = max([len(title), *map(len, table)])
    print(f"{title:<{width}}  " + "  ".join(f"{column:>10}" for column in COLUMNS))
    for name, counted in sorted(table.items()):
        print(f"{name:<{width}}  " + "  ".join(f"{counted[column]:>10}" for column in COLUMNS))
    print()


def _as_json(account: Account, seed: int) -> str:
    told = {
        "seed": seed,
        "families": account.by_family,
        "hosts": account.by_host,
        "features": account.by_feature,
        "losses": account.losses,
        "unexplained": len(account.unexplained),
    }
    return msgspec.json.encode(told).decode()


def _progress(account: Account, *, done: bool = False) -> None:
    if not sys.stderr.isatty():
        return
    count = sum(counted["recordings"] for counted in account.by_family.values())
    if done:
        sys.stderr.write("\r\x1b[K")
    elif count % 50 == 0:
        sys.stderr.write(f"\r{count} recordings …")
    sys.stderr.flush()
