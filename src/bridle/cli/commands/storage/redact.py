"""Remove content from a record of a session, or a note, for good, and record who did it and why.

The record keeps its place and its hash, so the rest of the log stays verifiable; readers and models see that
content was removed. Backups and exports made before still hold it. `bridle session tail SESSION --since 0 --json`
lists the records with their numbers and fields.
"""

import argparse
import asyncio

from bridle.cli.format.printing import print_json, print_line
from bridle.cli.log_access import add_log_options, read_session, tenant_of, use_log
from bridle.cli.option_values import make_count_parser
from bridle.cli.session_names import add_session_argument
from bridle.run.archive.redact import Redaction, redact_blob, redact_record
from bridle.run.archive.redact_notes import NoteRedaction, redact_note
from bridle.run.archive.remains import RemainingText
from bridle.values.errors import MisuseError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add_session_argument(parser, nargs="?", default="")
    add("--record", type=make_count_parser(1), metavar="SEQ", help="number of the record")
    add(
        "--field",
        default="",
        metavar="PATH",
        help="one field, such as result.parts.0.text (default: all content)",
    )
    add("--blob", default="", metavar="HASH", help="a stored tool result, and the excerpts that show it")
    add(
        "--note",
        default="",
        metavar="ID",
        help="a note of the session, or of --tenant and --caller, such as t3",
    )
    add("--caller", default="", metavar="X", help="with --note: the caller whose note it is")
    add("--reason", required=True, help="why it is removed; recorded")
    add("--by", required=True, metavar="NAME", help="who removes it; recorded")
    add("--json", action="store_true", help="print the redactions as JSON")
    add_log_options(parser)


def execute(options: argparse.Namespace) -> int:
    if options.note:
        return _redact_note(options)
    if options.caller or not options.session:
        raise MisuseError("name a session, or a note with --note ID and --tenant or --caller")
    if bool(options.blob) == bool(options.record) or (options.blob and options.field):
        raise MisuseError("name what to remove: --record SEQ, --record SEQ --field PATH, or --blob HASH")
    redactions = asyncio.run(_redact(options))
    if options.json:
        print_json(redactions)
        return 0
    for each in redactions:
        what = each.field or "all content"
        print_line(f"removed {what} of record {each.record} in {', '.join(each.sessions)}")
        print_line(f"  its SHA-256 was {each.digest}")
        for blob in each.kept_blobs:
            print_line(f"  blob {blob[:16]} stays: other records refer to it")
        if each.emptied_requests:
            requests = ", ".join(map(str, each.emptied_requests))
            print_line(f"  kept requests that repeat the conversation were removed from record {requests}")
        places = [RemainingText(session=each.session, records=each.found_in)] if each.found_in else []
        for place in (*places, *each.found_elsewhere):
            numbers = ", ".join(map(str, place.records))
            print_line(f"  the removed text, or a part of it, is also in {place.session}: record {numbers}")
        if not each.searched_all:
            print_line(
                "  not everything was searched: the text or the log is too long, or a session is damaged"
            )
        print_line(f"  head of {each.session}, to keep elsewhere: {each.head}")
    return 0


def _redact_note(options: argparse.Namespace) -> int:
    if options.record or options.blob or options.field:
        raise MisuseError("--note stands alone: name a note, or a record of a session")
    done = asyncio.run(_redact_note_in_store(options))
    if options.json:
        print_json(done)
        return 0
    print_line(f"removed the text of note {done.note}")
    for place in done.shown_in:
        print_line(f"  {place.session} showed it: removed from record {', '.join(map(str, place.records))}")
    for place in done.found_elsewhere:
        numbers = ", ".join(map(str, place.records))
        print_line(f"  the text, or a part of it, is also in {place.session}: record {numbers}")
    if not done.searched_all:
        print_line("  not everything was searched: the text or the log is too long, or a session is damaged")
    return 0


async def _redact_note_in_store(options: argparse.Namespace) -> NoteRedaction:
    async with use_log(options.store) as store:
        return await redact_note(
            store,
            options.note,
            tenant=tenant_of(options) or "",
            caller=options.caller,
            session=options.session or None,
            reason=options.reason,
            by=options.by,
        )


async def _redact(options: argparse.Namespace) -> tuple[Redaction, ...]:
    async with use_log(options.store) as store:
        await read_session(store, options.session, tenant_of(options))
        reason, by = options.reason, options.by
        if options.blob:
            return await redact_blob(store, options.session, options.blob, reason=reason, by=by)
        return (
            await redact_record(
                store, options.session, options.record, field=options.field, reason=reason, by=by
            ),
        )
