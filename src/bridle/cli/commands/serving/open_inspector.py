"""Opens the inspector in a browser: the part of `bridle serve` behind --open.

Other users of this machine reach its ports too. A token lets the browser in; only the printed address has it.
"""

import argparse
import secrets
import threading
from collections.abc import Callable
from urllib.parse import quote

import msgspec

from bridle.cli.format.printing import print_text
from bridle.cli.log_access import read_session, use_log
from bridle.tools.process.open_browser import open_privately
from bridle.values.errors import MisuseError


def check_open_options(options: argparse.Namespace) -> None:
    """Raise `MisuseError` for options that exclude each other."""
    if not options.open:
        for name in ("session", "no_browser"):
            if getattr(options, name):
                raise MisuseError(
                    f"--{name.replace('_', '-')} needs --open, which shows sessions in a browser"
                )
        return
    for name in ("mcp", "tokens", "identify"):
        if getattr(options, name):
            raise MisuseError(f"--open lets the browser in with one token; leave out --{name}")


async def check_log(options: argparse.Namespace) -> None:
    """Fail in one line if there is no log, or no such session in it."""
    async with use_log(options.store) as store:
        if options.session:
            await read_session(store, options.session)


def make_token(given: str) -> str:
    """The token of the options, or a new one."""
    return given or secrets.token_urlsafe(24)


def make_opener(options: argparse.Namespace, token: str) -> Callable[[str], None]:
    """A function that prints the address of the inspector once the server is ready, and opens it."""

    def print_ready(url: str) -> None:
        place = f"/session/{quote(options.session, safe='')}" if options.session else "/"
        address = f"{url}/#token={quote(token, safe='')}&{place}"
        if options.json:
            print_text(msgspec.json.encode({"url": address}).decode(), flush=True)
            return
        print_text(f"inspector at {address} (Ctrl-C stops it)", flush=True)
        if not options.no_browser:
            threading.Thread(target=open_privately, args=(address,), daemon=True).start()

    return print_ready
