"""Begin a new session from a record of an old one: to try another way, or to go round what is corrupt.

Nothing is copied and the old session stays as it is.  With --last-good (or no number) the fork shares every
record that is proved to be the one that was written.
"""

import argparse
import asyncio

import msgspec

from ..run.loading import Fork, fork_session
from .places import add_store_option, open_log


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", help="its id, as `bridle sessions` lists it")
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--at", type=int, metavar="N", help="share the first N records")
    place.add_argument("--last-good", action="store_true", help="share all that can be trusted (default)")
    parser.add_argument("--as", dest="name", metavar="NAME", help="what to call it (default: a new id)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_store_option(parser)


def execute(options: argparse.Namespace) -> int:
    made = asyncio.run(_fork(options))
    if options.json:
        print(msgspec.json.encode({"session": made.session, "at": made.at, "lost": made.lost}).decode())
    else:
        why = f"; left behind: {made.lost}" if made.lost else ""
        print(f"{made.session} goes on from record {made.at} of {options.session}{why}")
    return 0


async def _fork(options: argparse.Namespace) -> Fork:
    store = open_log(options.store, to_read=True)
    try:
        return await fork_session(store, options.session, options.at, options.name)
    finally:
        await store.close()
