"""Put recorded provider traffic to the codecs.

    bridle wire check PATH…     every recording in these files or folders
                                (JSON lines, .gz or not)

Each recorded reply must decode, to the same value whole and in slices of any size, and say what a second,
deliberately simple reading of the same bytes says: words, thoughts, calls, counts, stop.  Each recorded
request, read and written again, must mean the same.  Recordings whose bytes are not those of a real
exchange are tried too, but not judged.  Every loss is listed with its recording and its reason.

Exit codes: 0 all is well, or has a reason · 1 a loss nobody can explain · 2 something could not be read
(and nothing worse was found) · 130 stopped with Ctrl-C, after telling what was counted so far.
"""

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from ..testing.agreement import Difference
from ..testing.traffic import Recording, recordings
from ..testing.wire import Verdict, owner, verdict
from ..values.errors import MisuseError
from ..watchers.console import brief
from .printing import say
from .tally import COLUMNS, Tally, with_noughts

SLICES_TRIED = 3
SLICE_BYTES_MAX = 2_000
SHOWN_EVERY = 50
WELL, LOST, UNREAD, STOPPED = 0, 1, 2, 130


def arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="what", required=True, metavar="check")
    check = commands.add_parser(
        "check",
        help="put recordings to the codecs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    check.add_argument(
        "paths", nargs="+", type=Path, metavar="PATH", help="files of recordings, or folders of them"
    )
    check.add_argument("--seed", type=int, default=1, help="for the sizes of the slices (default 1)")
    check.add_argument("--hosts", action="store_true", help="show the counts by host too")
    check.add_argument("--features", action="store_true", help="show the counts by feature too")
    check.add_argument("--json", action="store_true", help="print one JSON object")


def execute(options: argparse.Namespace) -> int:
    files = _files(options.paths)
    tally, chance = Tally(), random.Random(options.seed)
    stopped = False
    try:
        for path in files:
            for recording in _read(path):
                slices = [chance.randint(1, SLICE_BYTES_MAX) for _ in range(SLICES_TRIED)]
                tally.add(*_judged(recording, slices))
                _progress(tally)
    except KeyboardInterrupt:
        stopped = True
    _progress(tally, done=True)
    if not stopped and not tally.by_family:
        raise MisuseError("there is no recording in there, so nothing was proven")
    code = STOPPED if stopped else LOST if tally.unexplained else WELL if tally.is_whole else UNREAD
    if options.json:
        say(_as_json(tally, options.seed, code))
    else:
        _show(tally, options)
    if stopped:
        say("bridle: stopped; what is shown was counted until then", file=sys.stderr)
    return code


def _judged(recording: Recording, slices: Sequence[int]) -> tuple[Recording, Verdict]:
    """The recording, under the family that it was judged by, and what became of it."""
    if recording.broken:
        return recording, Verdict(id=recording.id, answer="broken")
    try:
        codec = owner(recording)
        if codec is None:
            return recording, Verdict(id=recording.id, answer="foreign")
        return replace(recording, family=codec.family), verdict(codec, recording, slices)
    except Exception as error:  # noqa: BLE001 - a codec that raises is a defect to list, not one to stop at
        told = Difference(what=f"the codec raised {type(error).__name__}: {error}")
        return recording, Verdict(id=recording.id, answer="failure", reply=(told,))


def _files(paths: Sequence[Path]) -> list[Path]:
    """All of them before anything is read: a name that is wrong should not cost a minute."""
    files: list[Path] = []
    for path in paths:
        found = sorted([*path.rglob("*.jsonl"), *path.rglob("*.jsonl.gz")]) if path.is_dir() else [path]
        if not path.exists() or not found:
            raise MisuseError(
                f"there are no recordings at {str(path)!r}: name a .jsonl or .jsonl.gz file, or a folder"
            )
        files += found
    return files


def _read(path: Path) -> Iterator[Recording]:
    found = False
    try:
        for recording in recordings(path):
            found = True
            yield recording
    except OSError as error:
        yield _unreadable(path, f"the file cannot be read: {error.strerror or error}")
        return
    if not found:
        yield _unreadable(path, "the file holds no recording")


def _unreadable(path: Path, what: str) -> Recording:
    return Recording(id=str(path), model="", request=None, status=0, headers={}, body=b"", broken=what)


def _show(tally: Tally, options: argparse.Namespace) -> None:
    _table("family", tally.by_family)
    if options.hosts:
        _table("host", tally.by_host)
    if options.features:
        _table("feature", tally.by_feature)
    for loss in tally.losses:
        how = loss.reason or ("UNEXPLAINED" if loss.judged else f"not judged: {loss.tolerated}")
        say(f"{loss.recording}  {brief(loss.what, 120)}  [{brief(how, 160)}]")
    for each in tally.unread:
        say(f"{each.recording}  {brief(each.what, 120)}  [{'BROKEN' if each.broken else 'not judged'}]")
    for path, count in tally.paths.most_common():
        where = f"{path.family}/{path.host}  {path.method} {path.path}"
        say(f"{where}  {count} recordings  [not judged: no exchange of a conversation]")
    total = tally.total
    share = 100 * total["unchanged"] / total["requests"] if total["requests"] else 100.0
    say(
        f"\n{total['recordings']} recordings: {total['replies']} replies, {total['failures']} failures and"
        f" {total['cut']} cut streams decoded; {total['compared']} replies compared with a second reading;"
        f" {share:.2f} % of {total['requests']} requests unchanged in meaning, {total['explained']} changed"
        f" for a reason; {len(tally.unexplained)} unexplained losses"
    )


def _table(title: str, table: dict[str, Counter[str]]) -> None:
    width = max([len(title), *map(len, table)])
    say(f"{title:<{width}}  " + "  ".join(f"{column:>10}" for column in COLUMNS))
    for name, counted in sorted(table.items()):
        say(f"{name:<{width}}  " + "  ".join(f"{counted[column]:>10}" for column in COLUMNS))
    say()


def _as_json(tally: Tally, seed: int, code: int) -> str:
    told = {
        "seed": seed,
        "exit": code,
        "total": with_noughts({"total": tally.total})["total"],
        "families": with_noughts(tally.by_family),
        "hosts": with_noughts(tally.by_host),
        "features": with_noughts(tally.by_feature),
        "losses": tally.losses,
        "unread": tally.unread,
        "others": [
            {**msgspec.structs.asdict(path), "count": count} for path, count in tally.paths.most_common()
        ],
        "unexplained": len(tally.unexplained),
    }
    return msgspec.json.encode(told).decode()


def _progress(tally: Tally, *, done: bool = False) -> None:
    if not sys.stderr.isatty():
        return
    count = sum(counted["recordings"] for counted in tally.by_family.values())
    if done:
        sys.stderr.write("\r\x1b[K")
    elif count % SHOWN_EVERY == 0:
        sys.stderr.write(f"\r{count} recordings …")
    sys.stderr.flush()
