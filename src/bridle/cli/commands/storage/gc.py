"""Remove old sessions and content that no record refers to. Lists them only, unless --yes is given.

A session stays while its run is unfinished, waits for an answer or is being driven, and while a session that
stays shares its records or runs it inside a tool. Each removal is recorded in the log.
"""

import argparse
import asyncio
import os
import time
from typing import TypedDict

from bridle.cli.format.printing import print_error, print_json, print_line
from bridle.cli.log_access import add_store_option, format_local_time, use_log
from bridle.cli.option_values import parse_time
from bridle.ports.store import PrunableStore, supports
from bridle.run.recovery.retention import RetainedSession, list_old_sessions, remove_session
from bridle.values.errors import Conflict, MisuseError, Unusable
from bridle.watchers.console import format_count

NOT_SHRUNK = 2


class GarbageReport(TypedDict):
    removed: list[dict[str, str | int | float]]
    kept: list[dict[str, str | int | float]]
    blobs: int
    bytes: int
    blobs_skipped: str
    not_shrunk: str
    dry_run: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--older-than",
        metavar="AGE",
        help="remove sessions last written before, such as 90d (default: $BRIDLE_RETENTION)",
    )
    add("--tenant", metavar="T", help="remove sessions of this tenant only")
    add("--caller", metavar="X", help="remove sessions only in which nobody but this caller prompted")
    add("--yes", action="store_true", help="remove them; without it nothing is changed")
    add("--json", action="store_true", help="print one JSON object")
    add_store_option(parser)


def execute(options: argparse.Namespace) -> int:
    age = options.older_than or os.environ.get("BRIDLE_RETENTION")
    try:
        before = parse_time(age) if age else None
    except argparse.ArgumentTypeError as error:
        raise MisuseError(f"--older-than or $BRIDLE_RETENTION: {error}") from error
    if before is None and (options.tenant is not None or options.caller is not None):
        raise MisuseError(
            "--tenant and --caller choose among old sessions: give --older-than too, such as 0d for all"
        )
    report = asyncio.run(_collect(options, before, age or ""))
    if options.json:
        print_json(report)
    else:
        _print_report(report)
    if report["not_shrunk"]:
        print_error(f"the space was not given back to the disk: {report['not_shrunk']}")
        return NOT_SHRUNK
    return 0


async def _collect(options: argparse.Namespace, before: float | None, age: str) -> GarbageReport:
    report = GarbageReport(
        removed=[], kept=[], blobs=0, bytes=0, blobs_skipped="", not_shrunk="", dry_run=not options.yes
    )
    async with use_log(options.store) as store:
        if not supports(store, PrunableStore):
            raise MisuseError("this store cannot be pruned; it has no file")
        people = {"tenant": options.tenant, "caller": options.caller}
        for old in await list_old_sessions(store, before, **people) if before is not None else ():
            reason = old.kept
            if not reason and options.yes:
                reason = await remove_session(
                    store, old.session, now=time.time(), reason=f"bridle store gc --older-than {age}"
                )
            report["kept" if reason else "removed"].append(_row(old, reason))
        try:
            unused = await store.remove_unused_blobs(dry_run=not options.yes)
            report["blobs"], report["bytes"] = len(unused), sum(blob.size for blob in unused)
        except Conflict as error:
            report["blobs_skipped"] = str(error)
        if options.yes and (report["removed"] or report["blobs"]):
            try:
                await store.shrink_file()
            except Unusable as error:
                report["not_shrunk"] = str(error)
    return report


def _row(old: RetainedSession, reason: str) -> dict[str, str | int | float]:
    row: dict[str, str | int | float] = {
        "session": old.session,
        "updated_at": old.updated_at,
        "records": old.records,
    }
    return {**row, "reason": reason} if reason else row


def _print_report(report: GarbageReport) -> None:
    for row in report["removed"]:
        verb = "would remove" if report["dry_run"] else "removed"
        print_line(
            f"{verb} {row['session']}  {format_local_time(float(row['updated_at']))}  {row['records']} records"
        )
    for row in report["kept"]:
        print_line(f"kept {row['session']}: {row['reason']}")
    blobs = f"{format_count(report['blobs'], 'unused blob')} ({report['bytes']:,} bytes)"
    if report["blobs_skipped"]:
        blobs = f"no blob: {report['blobs_skipped']}"
    total = f"{format_count(len(report['removed']), 'session')} and {blobs}"
    print_line(f"nothing changed; with --yes: {total}" if report["dry_run"] else f"removed {total}")
