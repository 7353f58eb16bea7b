"""Remove what the log has of one caller, for good: sessions, notes, stored results, trials of evaluations.

A session that others share stays; the caller's part of it is redacted, so that the log stays verifiable. Backups and
exports made before still hold everything. The exit code is 1 if something stays, with the reason; run it again then.
"""

import argparse
import asyncio

from bridle.cli.format.printing import print_error, print_json, print_line
from bridle.cli.log_access import add_store_option, use_log
from bridle.run.archive.erase import BY_DEFAULT, REASON_DEFAULT, Erasure, erase_caller
from bridle.watchers.console import format_count

INCOMPLETE = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--caller",
        required=True,
        metavar="X",
        help="caller whose data to remove, as given to `run(caller=…)`",
    )
    add("--tenant", metavar="T", help="tenant of the caller; needed if several tenants have one of this name")
    add("--dry-run", action="store_true", help="list what would be removed, and change nothing")
    add("--reason", default=REASON_DEFAULT, help="why it is removed; recorded, so no personal data")
    add("--by", default=BY_DEFAULT, metavar="NAME", help="who removes it; recorded")
    add("--json", action="store_true", help="print one JSON object")
    add_store_option(parser)


def execute(options: argparse.Namespace) -> int:
    report = asyncio.run(_erase(options))
    if options.json:
        print_json(report)
    else:
        _print_report(report)
    for each in report.kept:
        print_error(f"{each.name} stays: {each.reason}")
    return 0 if report.is_complete else INCOMPLETE


async def _erase(options: argparse.Namespace) -> Erasure:
    async with use_log(options.store) as store:
        return await erase_caller(
            store,
            options.caller,
            tenant=options.tenant,
            reason=options.reason,
            by=options.by,
            dry_run=options.dry_run,
        )


def _print_report(report: Erasure) -> None:
    verb = "would remove" if report.dry_run else "removed"
    for session in report.removed_sessions:
        print_line(f"{verb} session {session}")
    for each in report.redacted:
        numbers = ", ".join(map(str, each.records))
        print_line(f"{verb} the content of {each.session}: record {numbers}")
    for place in report.found_elsewhere:
        numbers = ", ".join(map(str, place.records))
        print_line(f"a removed text, or a part of it, is also in {place.session}: record {numbers}")
    if not report.searched_all:
        print_line(
            "not everything was searched for removed texts: they or the log are too long, or a log is damaged"
        )
    sessions = format_count(len(report.removed_sessions), "session")
    notes = format_count(report.notes, "note")
    blobs = "" if report.dry_run else f", {format_count(report.blobs, 'stored result')}"
    print_line(f"{verb} of caller {report.caller!r}: {sessions}, {notes}{blobs}")
