"""Branch a new session from a message of another: to try again, roll back, use another model, or skip damaged records.

--at takes a message (m4) or a record (12); `bridle show SESSION --as log` lists both. Without it, the fork shares all
records that pass their hash check. Nothing is copied or undone, and the old session does not change. Calls
that were running stay with the old session: if the position is in the middle of calls that may change
something, the fork starts after them.
"""

import argparse
import asyncio
from collections.abc import Iterator
from shlex import quote

import msgspec

from bridle.cli.format.printing import print_json, print_line
from bridle.cli.log_access import add_log_options, tenant_of, use_log
from bridle.cli.session_names import add_session_argument
from bridle.run.lineage import fork_session
from bridle.values.lineage import Fork
from bridle.values.text import escape_text
from bridle.watchers.console import shorten


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_session_argument(parser)
    place = parser.add_mutually_exclusive_group()
    place.add_argument(
        "--at", metavar="PLACE", help="share everything up to this message (m4) or record (12)"
    )
    place.add_argument(
        "--last-good", action="store_true", help="share everything that passes its hash check (default)"
    )
    parser.add_argument(
        "--as", dest="name", metavar="NAME", help="id of the new session (default: generated)"
    )
    parser.add_argument("-m", "--model", help="model of the new session")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_log_options(parser)


def execute(options: argparse.Namespace) -> int:
    made = asyncio.run(_fork_session(options))
    if options.json:
        print_json(msgspec.structs.asdict(made))
    else:
        for line in _format_fork(made):
            print_line(escape_text(line))
    return 0


def format_fork_place(made: Fork) -> Iterator[str]:
    """Lines that say where a fork starts, and what it does not undo."""
    where = f"record {made.at}" + (f" ({made.message})" if made.message else "")
    why = f"; not shared: {made.cut_reason}" if made.cut_reason else ""
    yield f"{made.session} starts after {where} of {made.parent}{why}"
    if made.at > made.requested_at:
        yield f"  not after record {made.requested_at}: calls that may change something were running there"
    if made.completed_actions:
        yield f"  {made.parent} did this afterwards; the fork does not undo it:"
        for act in made.completed_actions:
            yield f"    {act.call_id} {act.tool}({shorten(act.arguments)}) {act.outcome}"
        yield f"    to undo:  bridle session compensate {quote(made.parent)}"


def _format_fork(made: Fork) -> Iterator[str]:
    name = quote(made.session)
    yield from format_fork_place(made)
    yield f"  continue: bridle run --session {name} PROMPT"
    yield f"  or finish the current run: bridle resume {name}"
    yield f"  compare:  bridle session diff {quote(made.parent)} {name}"


async def _fork_session(options: argparse.Namespace) -> Fork:
    async with use_log(options.store) as store:
        return await fork_session(
            store, options.session, options.at, options.name, model=options.model, tenant=tenant_of(options)
        )
