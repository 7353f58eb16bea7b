"""Undo what a session's last run did, most recent call first.

Only calls of tools that define a compensation can be undone. Each step is recorded before and after it runs,
so running the command again continues where it stopped and undoes nothing twice.
"""

import argparse
import asyncio
import sys
from contextlib import redirect_stdout

from bridle.cli.agent_options import add_toolkit_options, is_interactive, make_toolkit
from bridle.cli.format.printing import print_json, print_line
from bridle.cli.log_access import add_log_options, fold_state, read_session, tenant_of, use_log
from bridle.cli.session_names import add_session_argument
from bridle.config.tool_loader import load_tools
from bridle.ports.tool import Tool
from bridle.run.agent import Agent
from bridle.values.calls import Compensation
from bridle.values.errors import MisuseError
from bridle.values.text import escape_text
from bridle.watchers.console import shorten

from .approve import PLACEHOLDER_MODEL


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_session_argument(parser)
    parser.add_argument(
        "--tools",
        action="append",
        default=[],
        metavar="FILE.py|module",
        help="load the session's tools from this file or module; repeatable",
    )
    parser.add_argument(
        "--settled",
        action="append",
        default=[],
        metavar="CALL",
        help="id of an interrupted call that you have undone yourself; repeatable",
    )
    add_toolkit_options(parser)
    parser.add_argument("--list", action="store_true", help="only list what can be undone")
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    parser.add_argument("--json", action="store_true", help="print one JSON list")
    add_log_options(parser)


def execute(options: argparse.Namespace) -> int:
    tools = [*load_tools(options.tools), *make_toolkit(options)]
    with redirect_stdout(sys.stderr):
        found = asyncio.run(_compensate_session(options, tools))
    if options.json:
        print_json(found)
    else:
        for item in found:
            result = f": {shorten(item.result)}" if item.result else ""
            call = f"{item.tool}({escape_text(shorten(item.arguments))})"
            print_line(
                f"{item.state:<9} {item.reference:<7} {call}  by {item.compensating_tool}{escape_text(result)}"
            )
        if not found:
            print_line("nothing to undo")
    return 0 if options.list or all(item.state == "done" for item in found) else 1


async def _compensate_session(options: argparse.Namespace, tools: list[Tool]) -> tuple[Compensation, ...]:
    async with use_log(options.store) as store:
        state = fold_state(await read_session(store, options.session, tenant_of(options)))
        agent = Agent(PLACEHOLDER_MODEL, tools=tools, store=store)
        found = await agent.open_session(options.session).list_compensations(state)
        left = [item for item in found if item.state != "done"]
        if options.list or not left:
            return found
        if not tools:
            raise MisuseError(
                "the log does not contain code; give the session's tools with --tools FILE or --toolkit"
            )
        if not options.yes:
            _confirm_compensations(left)
        return await agent.compensate(options.session, settled=options.settled, tenant=tenant_of(options))


def _confirm_compensations(left: list[Compensation]) -> None:
    if not is_interactive():
        raise MisuseError(
            "undoing needs confirmation and there is no terminal; add --yes, or --list to only look"
        )
    for item in left:
        print_line(
            f"{item.tool}({escape_text(shorten(item.arguments))})  will be undone by {item.compensating_tool}",
            file=sys.stderr,
        )
    print_line("undo all of these, in this order? y/n: ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise MisuseError("nothing was undone")
