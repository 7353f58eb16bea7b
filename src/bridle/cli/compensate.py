"""Undo what a session's last run did, last things first.

Only what a tool named a compensation for can be undone.  Each undoing is written down before
and after it runs, so that called again it goes on where it stopped and undoes nothing twice.
"""

import argparse
import asyncio
import sys
from contextlib import redirect_stdout

from ..core.undoing import compensations
from ..ports.tool import Tool
from ..run.agent import Agent
from ..values.compensation import Compensation
from ..values.errors import MisuseError
from ..values.text import escape_text
from ..watchers.console import brief
from .agents import somebody_is_there
from .approve import NO_MODEL
from .logs import fold, read_session
from .places import add_across_option, add_store_option, add_tenant_option, open_log, tenant_of
from .printing import say, say_json
from .toolfile import load_tools


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", help="its id, as `bridle sessions` lists it")
    parser.add_argument(
        "--tools", action="append", default=[], metavar="FILE.py|module", help="where the session's tools are"
    )
    parser.add_argument(
        "--settled",
        action="append",
        default=[],
        metavar="CALL",
        help="the id of a call in doubt that you have seen to yourself; may be given more than once",
    )
    parser.add_argument("--list", action="store_true", help="only tell what can be undone")
    parser.add_argument("--yes", action="store_true", help="do not ask first")
    parser.add_argument("--json", action="store_true", help="print one JSON list")
    add_tenant_option(parser)
    add_across_option(parser)
    add_store_option(parser)


def execute(options: argparse.Namespace) -> int:
    tools = load_tools(options.tools)
    with redirect_stdout(sys.stderr):
        found = asyncio.run(_undone(options, tools))
    if options.json:
        say_json(found)
    else:
        for item in found:
            told = f": {brief(item.result)}" if item.result else ""
            call = f"{item.tool}({escape_text(brief(item.arguments))})"
            say(f"{item.state:<9} {item.call_id:<7} {call}  by {item.by}{escape_text(told)}")
        if not found:
            say("there is nothing to undo")
    return 0 if options.list or all(item.state == "done" for item in found) else 1


async def _undone(options: argparse.Namespace, tools: list[Tool]) -> tuple[Compensation, ...]:
    store = open_log(options.store, to_read=True)
    try:
        state = fold(await read_session(store, options.session, tenant_of(options)))
        found = compensations(state)
        left = [item for item in found if item.state != "done"]
        if options.list or not left:
            return found
        if not options.tools:
            raise MisuseError("a log holds no code; name the file with the session's tools: --tools FILE")
        if not options.yes:
            _confirm(left)
        return await Agent(NO_MODEL, tools=tools, store=store).compensate(
            options.session, settled=options.settled, tenant=tenant_of(options)
        )
    finally:
        await store.close()


def _confirm(left: list[Compensation]) -> None:
    if not somebody_is_there():
        raise MisuseError("undoing changes things and nobody can be asked; add --yes, or --list to look")
    for item in left:
        say(
            f"{item.tool}({escape_text(brief(item.arguments))})  will be undone by {item.by}", file=sys.stderr
        )
    say("undo all of these, from the top? y/n: ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise MisuseError("nothing was undone")
