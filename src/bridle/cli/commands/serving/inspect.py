"""Show sessions in a browser: timeline, transcript, requests, cache, cost, branches, approvals, events.

Starts a server on this machine that only the printed address opens, and shows the log of --store with the runs of all
processes as they happen. It runs no agent: you can answer approvals, cancel, steer, pause and fork. Ctrl-C stops it.
`bridle serve` shows the same pages beside its agents.
"""

import argparse
import asyncio
import secrets
import threading
from urllib.parse import quote

import msgspec

from bridle.cli.commands.serving.serve import load_server, print_stopping
from bridle.cli.format.printing import print_text
from bridle.cli.log_access import add_store_option, read_session, store_path, use_log
from bridle.cli.option_values import parse_port
from bridle.cli.session_names import add_session_argument
from bridle.serve.options import ServeOptions
from bridle.tools.process.open_browser import open_privately


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add_session_argument(parser, nargs="?", metavar="SESSION", help_="session to open (default: the list)")
    add("--port", type=parse_port, default=0, help="port of the server (default: a free one)")
    add("--no-open", action="store_true", help="print the address and open no browser")
    add("--json", action="store_true", help="print the address as JSON; opens no browser")
    add_store_option(parser)


def execute(options: argparse.Namespace) -> int:
    process = load_server()
    asyncio.run(_check_log(options))
    # Other users of this machine reach its ports too; the token in the address is what lets a browser in.
    token = secrets.token_urlsafe(24)
    # guard: inspect-needs-token
    serving = ServeOptions(token=token, resumes_runs=False)
    listening = process.open_socket(serving.host, options.port)

    def print_ready(url: str) -> None:
        place = f"/session/{quote(options.session, safe='')}" if options.session else "/"
        address = f"{url}/#token={token}&{place}"
        if options.json:
            print_text(msgspec.json.encode({"url": address}).decode(), flush=True)
            return
        print_text(f"inspector at {address} (Ctrl-C stops it)", flush=True)
        if not options.no_open:
            threading.Thread(target=open_privately, args=(address,), daemon=True).start()

    place = store_path(options.store)
    asyncio.run(process.serve_agents({}, place, serving, listening, print_ready, print_stopping))
    return 0


async def _check_log(options: argparse.Namespace) -> None:
    """Fail in one line if there is no log, or no such session in it."""
    async with use_log(options.store) as store:
        if options.session:
            await read_session(store, options.session)
