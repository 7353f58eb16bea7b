"""Begin a new session from a place in an old one: to try another way, to roll back, to ask another model,
or to go round what is corrupt.

A place is a message (m4) or a record (12); `bridle log SESSION` lists both.  Without one, or with
--last-good, the fork shares every record that is proved to be the one that was written.  Nothing is
copied, nothing is undone, and the old session stays as it is.  Calls that were under way belong to the
old session: a place in the middle of calls that may change something means the place behind them.
"""

import argparse
import asyncio
from collections.abc import Iterator
from shlex import quote

import msgspec

from bridle.cli.format.printing import print_json, print_line
from bridle.cli.log_access import add_across_option, add_store_option, add_tenant_option, open_log, tenant_of
from bridle.run.lineage import fork_session
from bridle.values.lineage import Fork
from bridle.values.text import escape_text
from bridle.watchers.console import shorten


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", help="its id, as `bridle sessions` lists it")
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--at", metavar="PLACE", help="share all up to this message (m4) or record (12)")
    place.add_argument("--last-good", action="store_true", help="share all that can be trusted (default)")
    parser.add_argument("--as", dest="name", metavar="NAME", help="what to call it (default: a new id)")
    parser.add_argument("-m", "--model", help="go on with this model when the fork is resumed or spoken to")
    add_tenant_option(parser)
    add_across_option(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_store_option(parser)


def execute(options: argparse.Namespace) -> int:
    made = asyncio.run(_fork_session(options))
    if options.json:
        print_json(msgspec.structs.asdict(made))
    else:
        for line in _format_fork(made):
            print_line(escape_text(line))
    return 0


def _format_fork(made: Fork) -> Iterator[str]:
    name = quote(made.session)
    where = f"record {made.at}" + (f" ({made.message})" if made.message else "")
    why = f"; left behind: {made.cut_reason}" if made.cut_reason else ""
    yield f"{made.session} goes on from {where} of {made.parent}{why}"
    if made.at > made.requested_at:
        yield f"  not from record {made.requested_at}: calls were under way there that may change something"
    if made.completed_actions:
        yield f"  {made.parent} did this after that, and it stays done:"
        for act in made.completed_actions:
            yield f"    {act.call_id} {act.tool}({shorten(act.arguments)}) {act.outcome}"
        yield f"    to undo it: bridle compensate {quote(made.parent)}"
    yield f"  go on:    bridle run --session {name} PROMPT"
    yield f"  or, with what was asked:  bridle resume {name}"
    yield f"  compare:  bridle diff {quote(made.parent)} {name}"


async def _fork_session(options: argparse.Namespace) -> Fork:
    store = open_log(options.store, to_read=True)
    try:
        return await fork_session(
            store, options.session, options.at, options.name, model=options.model, tenant=tenant_of(options)
        )
    finally:
        await store.close()
