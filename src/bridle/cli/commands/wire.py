"""Check the codecs against recorded provider traffic: files or folders of JSON lines, .gz or not.

Each recorded reply must decode to the same value whether it is read whole or in slices of any size. Text,
reasoning, calls, counts and stop reason must agree with those of a second, deliberately simple decoder. Each
recorded request, decoded and encoded again, must mean the same. Any difference is a loss; each is listed with
its recording and, if known, its reason. Recordings written by hand or rebuilt from parsed objects are decoded
but not judged.
"""

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from bridle.cli.format.printing import print_line
from bridle.cli.wire_report import REPORT_COLUMNS, WireReport, fill_zero_counts
from bridle.testing.wire.check_recording import RecordingVerdict, find_codec, judge_recording
from bridle.testing.wire.recorded_traffic import TrafficRecord, read_recordings
from bridle.testing.wire.reply_agreement import WireDifference
from bridle.values.errors import MisuseError
from bridle.watchers.console import shorten

SLICES_TRIED = 3
# not from outside: names and requests that we make
SLICE_BYTES_MAX = 2_000
PROGRESS_EVERY = 50
EXIT_OK, EXIT_LOST, EXIT_UNREAD, EXIT_STOPPED = 0, 1, 2, 130


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="recordings: files or folders")
    parser.add_argument("--seed", type=int, default=1, help="seed of the slice sizes (default 1)")
    parser.add_argument("--hosts", action="store_true", help="also show counts by host")
    parser.add_argument("--features", action="store_true", help="also show counts by feature")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def execute(options: argparse.Namespace) -> int:
    files = _list_recording_files(options.paths)
    tally, chance = WireReport(), random.Random(options.seed)
    stopped = False
    try:
        for path in files:
            for recording in _read_recordings(path):
                slices = [chance.randint(1, SLICE_BYTES_MAX) for _ in range(SLICES_TRIED)]
                tally.add(*_check_recording(recording, slices))
                _show_progress(tally)
    except KeyboardInterrupt:
        stopped = True
    _show_progress(tally, done=True)
    if not stopped and not tally.by_family:
        raise MisuseError("no recording found, so nothing was checked")
    code = (
        EXIT_STOPPED
        if stopped
        else EXIT_LOST
        if tally.unexplained_losses
        else EXIT_OK
        if tally.is_complete
        else EXIT_UNREAD
    )
    if options.json:
        print_line(_encode_report(tally, options.seed, code))
    else:
        _print_report(tally, options)
    if stopped:
        print_line("bridle: stopped; the counts are incomplete", file=sys.stderr)
    return code


def _check_recording(
    recording: TrafficRecord, slices: Sequence[int]
) -> tuple[TrafficRecord, RecordingVerdict]:
    """The recording, with the family it was checked as, and the outcome."""
    if recording.unreadable_reason:
        return recording, RecordingVerdict(id=recording.id, outcome="broken")
    try:
        codec = find_codec(recording)
        if codec is None:
            return recording, RecordingVerdict(id=recording.id, outcome="foreign")
        return replace(recording, family=codec.family), judge_recording(codec, recording, slices)
    except Exception as error:  # noqa: BLE001 - a codec that raises is a defect to list, not one to stop at
        told = WireDifference(description=f"the codec raised {type(error).__name__}: {error}")
        return recording, RecordingVerdict(id=recording.id, outcome="failure", reply=(told,))


def _list_recording_files(paths: Sequence[Path]) -> list[Path]:
    """Find all files before reading any, so that a wrong path fails immediately."""
    files: list[Path] = []
    for path in paths:
        found = sorted([*path.rglob("*.jsonl"), *path.rglob("*.jsonl.gz")]) if path.is_dir() else [path]
        if not path.exists() or not found:
            raise MisuseError(f"no recordings at {str(path)!r}; give a .jsonl or .jsonl.gz file, or a folder")
        files += found
    return files


def _read_recordings(path: Path) -> Iterator[TrafficRecord]:
    found = False
    try:
        for recording in read_recordings(path):
            found = True
            yield recording
    except OSError as error:
        yield _make_unreadable(path, f"the file cannot be read: {error.strerror or error}")
        return
    if not found:
        yield _make_unreadable(path, "the file contains no recording")


def _make_unreadable(path: Path, what: str) -> TrafficRecord:
    return TrafficRecord(
        id=str(path), model="", request=None, status=0, headers={}, body=b"", unreadable_reason=what
    )


def _print_report(tally: WireReport, options: argparse.Namespace) -> None:
    _print_counts("family", tally.by_family)
    if options.hosts:
        _print_counts("host", tally.by_host)
    if options.features:
        _print_counts("feature", tally.by_feature)
    for loss in tally.losses:
        how = loss.reason or ("UNEXPLAINED" if loss.judged else f"not judged: {loss.tolerated}")
        print_line(f"{loss.recording}  {shorten(loss.what, 120)}  [{shorten(how, 160)}]")
    for each in tally.unread_recordings:
        print_line(
            f"{each.recording}  {shorten(each.what, 120)}  [{'BROKEN' if each.broken else 'not judged'}]"
        )
    for path, count in tally.unjudged_paths.most_common():
        where = f"{path.family}/{path.host}  {path.method} {path.path}"
        print_line(f"{where}  {count} recordings  [not judged: not a model call]")
    total = tally.total
    share = 100 * total["unchanged"] / total["requests"] if total["requests"] else 100.0
    print_line()
    print_line(
        f"{total['recordings']} recordings: {total['replies']} replies, {total['failures']} failures and"
        f" {total['cut']} cut streams decoded; {total['compared']} replies compared with a second decoder;"
        f" {share:.2f} % of {total['requests']} requests unchanged in meaning, {total['explained']} changed"
        f" for a reason; {len(tally.unexplained_losses)} unexplained losses"
    )


def _print_counts(title: str, table: dict[str, Counter[str]]) -> None:
    width = max([len(title), *map(len, table)])
    print_line(f"{title:<{width}}  " + "  ".join(f"{column:>10}" for column in REPORT_COLUMNS))
    for name, counted in sorted(table.items()):
        print_line(f"{name:<{width}}  " + "  ".join(f"{counted[column]:>10}" for column in REPORT_COLUMNS))
    print_line()


def _encode_report(tally: WireReport, seed: int, code: int) -> str:
    told = {
        "seed": seed,
        "exit": code,
        "total": fill_zero_counts({"total": tally.total})["total"],
        "families": fill_zero_counts(tally.by_family),
        "hosts": fill_zero_counts(tally.by_host),
        "features": fill_zero_counts(tally.by_feature),
        "losses": tally.losses,
        "unread": tally.unread_recordings,
        "others": [
            {**msgspec.structs.asdict(path), "count": count}
            for path, count in tally.unjudged_paths.most_common()
        ],
        "unexplained": len(tally.unexplained_losses),
    }
    return msgspec.json.encode(told).decode()


def _show_progress(tally: WireReport, *, done: bool = False) -> None:
    if not sys.stderr.isatty():
        return
    count = sum(counted["recordings"] for counted in tally.by_family.values())
    if done:
        sys.stderr.write("\r\x1b[K")
    elif count % PROGRESS_EVERY == 0:
        sys.stderr.write(f"\r{count} recordings …")
    sys.stderr.flush()
