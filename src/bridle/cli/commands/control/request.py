"""Options and output of the commands that send a request to a run of another process."""

import argparse
import asyncio
from typing import Literal

from bridle.cli.commands.approve import answerer_name
from bridle.cli.format.printing import print_json, print_line
from bridle.cli.log_access import add_log_options, format_resume, tenant_of, use_log
from bridle.cli.option_values import make_count_parser
from bridle.cli.session_names import add_session_argument
from bridle.run.control.requests import WAIT_SECONDS_DEFAULT, ControlOutcome, SessionControl

DONE = {"cancel": "cancelled", "pause": "will pause after its current step", "steer": "has the message"}


def add_request_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add_session_argument(parser)
    add("--by", default="", help="name of the person who asks (default: your login name); recorded")
    add(
        "--wait-seconds",
        type=make_count_parser(0),
        default=int(WAIT_SECONDS_DEFAULT),
        metavar="N",
        help="time to wait until the run takes the request (default: 30)",
    )
    add("--json", action="store_true", help="print the outcome as JSON")
    add_log_options(parser)


def send_request(
    options: argparse.Namespace, action: Literal["cancel", "pause", "steer"], text: str = ""
) -> int:
    """Send the request and print what became of it; 1 if the run has not taken it yet."""
    outcome = asyncio.run(_send(options, action, text))
    taken = outcome.status == "taken"
    if options.json:
        print_json(outcome)
    elif taken:
        print_line(f"{options.session}: {DONE[action]} (record {outcome.record})")
    else:
        print_line(f"{options.session}: sent; the process that runs it has not taken the request yet")
        print_line(f"if that process is stuck: {format_resume(options, options.session, '--take-over')}")
    return 0 if taken else 1


async def _send(options: argparse.Namespace, action: str, text: str) -> ControlOutcome:
    async with use_log(options.store) as store:
        control = SessionControl(store, options.session, tenant=tenant_of(options))
        by, wait = answerer_name(options), float(options.wait_seconds)
        if action == "steer":
            return await control.steer(text, by=by, wait_seconds=wait)
        if action == "pause":
            return await control.pause(by=by, wait_seconds=wait)
        return await control.cancel(by=by, wait_seconds=wait)
