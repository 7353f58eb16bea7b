"""Serve agents over HTTP: an API, event streams, health and metrics.

AGENTS is a Python file or module with agents, FILE.py:name, or an agent file (.toml). Runs belong to the server: a
client that disconnects does not end them, and at the next start they are resumed. Ctrl-C stops after the current
steps; Ctrl-C again stops at once.

--open shows the sessions in a browser: timeline, transcript, requests, cache, cost, branches, approvals, events. Only
the printed address opens them. Without AGENTS it shows the log with the runs of all processes as they happen and
runs no agent: you can answer approvals, cancel, steer, pause and fork.
"""

import argparse
import asyncio
import json
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from bridle.cli.agent_options import add_context_option
from bridle.cli.format.printing import print_line, print_text
from bridle.cli.log_access import add_store_option, store_path
from bridle.cli.option_values import make_count_parser, parse_port
from bridle.cli.session_names import add_session_argument
from bridle.config.agent_loader import find_agents_store, load_agents, load_context_maker
from bridle.config.tool_loader import load_reference, share_loaded_files
from bridle.serve.options import ServeOptions, check_options
from bridle.values.errors import MisuseError
from bridle.values.media import read_at_most

from .open_inspector import check_log, check_open_options, make_opener, make_token

PORT_DEFAULT = 8420
TOKEN_BYTES_MAX = 16 * 1024
TOKEN_VARIABLE = "BRIDLE_SERVE_TOKEN"  # noqa: S105 - the name of a variable
TOKEN_VISIBLE = (
    f"note: other users of this machine see a token in the command; use --token-file or ${TOKEN_VARIABLE}"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "agents",
        nargs="*",
        metavar="AGENTS",
        help="FILE.py, module, FILE.py:name or FILE.toml; none: only the log",
    )
    add(
        "--port",
        type=parse_port,
        help=f"0 chooses a free one (default {PORT_DEFAULT}; a free one with --open)",
    )
    add("--open", action="store_true", help="show the sessions in a browser")
    add_session_argument(parser, "--session", metavar="SESSION", help_="with --open: the session to show")
    add("--no-browser", action="store_true", help="with --open: print the address and open no browser")
    add("--host", default="127.0.0.1", help="address to listen on; others than loopback need a token")
    add(
        "--token",
        metavar="T",
        help=f"secret that requests must carry, visible to other users of the machine (default: ${TOKEN_VARIABLE})",
    )
    add("--token-file", type=Path, metavar="FILE", help="file that holds the token")
    add("--tokens", type=Path, metavar="FILE", help="TOML file of tokens with a tenant and rights for each")
    add(
        "--identify",
        metavar="FILE.py:NAME",
        help="function that proves who sends a request, or an object such as JsonWebTokens(…)",
    )
    add("--new-token", metavar="NAME", help="print a new token and its lines for FILE, then stop")
    add("--tenant", default="", metavar="T", help="tenant of the new token")
    add(
        "--rights",
        default="read,prompt",
        metavar="LIST",
        help="of the new token: read, prompt, approve, administer (default read,prompt)",
    )
    add(
        "--sessions",
        choices=("own", "tenant", "all"),
        default="own",
        help="sessions that the new token reaches (default own)",
    )
    add(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="accept this name in the Host header",
    )
    add(
        "--allow-origin",
        action="append",
        default=[],
        metavar="URL",
        help="accept web pages of this origin (CORS)",
    )
    add("--runs", type=make_count_parser(1), metavar="N", help="runs at the same time (default 200)")
    add(
        "--shutdown-seconds",
        type=make_count_parser(1),
        metavar="N",
        help="time for steps to end (default 10)",
    )
    add(
        "--no-resume",
        action="store_true",
        help="do not continue runs whose process ended, at the start or later",
    )
    add_context_option(parser)
    add(
        "--metric-label",
        action="append",
        default=[],
        choices=["agent", "tenant"],
        help="count runs, tokens, cost, calls of tools and open work by this; repeatable",
    )
    add("--mcp", action="store_true", help="be an MCP server on standard input and output, not on a port")
    add("--json", action="store_true", help="print the address as JSON; opens no browser")
    add_store_option(parser)


def execute(options: argparse.Namespace) -> int:
    if options.new_token is not None:
        print_new_token(options)
        return 0
    check_open_options(options)
    process = load_server()
    check_secrets(options)
    is_only_log = options.open and not options.agents
    if is_only_log:
        asyncio.run(check_log(options))
    token = make_token(read_token(options)) if options.open else read_token(options)
    limits = {"runs_max": options.runs, "shutdown_seconds": options.shutdown_seconds}
    # guard: inspect-needs-token
    serving = check_options(
        ServeOptions(
            host=options.host,
            token=token,
            allowed_hosts=tuple(options.allow_host),
            allowed_origins=tuple(options.allow_origin),
            resumes_runs=not options.no_resume and not is_only_log,
            metric_labels=tuple(options.metric_label),
            **{name: value for name, value in limits.items() if value is not None},
        ),
        has_identify=options.tokens is not None or options.identify is not None,
    )
    with share_loaded_files():  # the functions and the agents see one class of context
        agents = load_agents(options.agents)
        identify = load_identify(options)
        make_context = load_context_maker(options.context) if options.context else None
    own = None if options.store or "BRIDLE_STORE" in os.environ else find_agents_store(agents)
    place = store_path(options.store) if own is None else own
    if options.mcp:
        if make_context is not None:
            raise MisuseError(
                "--context is for a server on a port: an MCP client has no tenant and no caller"
            )
        load_server("bridle.serve.mcp").serve_agents(agents, place, serving)
        return 0
    port = options.port if options.port is not None else 0 if options.open else PORT_DEFAULT
    listening = process.open_socket(options.host, port)

    def print_ready(url: str) -> None:
        shown = (
            msgspec.json.encode({"url": url}).decode()
            if options.json
            else f"serving at {url} (Ctrl-C stops it)"
        )
        print_text(shown, flush=True)

    asyncio.run(
        process.serve_agents(
            agents,
            place,
            serving,
            listening,
            make_opener(options, token) if options.open else print_ready,
            print_stopping,
            identify,
            make_context,
        )
    )
    return 0


def check_secrets(options: argparse.Namespace) -> None:
    """Raise `MisuseError` for two ways to prove who sends a request."""
    ways = {"--tokens": options.tokens, "--identify": options.identify}
    given = [name for name, value in ways.items() if value is not None]
    if len(given) == 2:
        raise MisuseError("give --tokens or --identify, not both")
    if given and options.mcp:
        raise MisuseError(
            f"{given[0]} is for a server on a port; with --mcp, the program that starts it is the client"
        )
    if given and (
        options.token is not None or options.token_file is not None or TOKEN_VARIABLE in os.environ
    ):
        raise MisuseError(
            f"give {given[0]} or one token for everyone (--token, --token-file, ${TOKEN_VARIABLE}), not both"
        )


def load_identify(options: argparse.Namespace) -> Any:
    """The `identify` of a file of tokens, or the one that --identify names; None without both."""
    if options.tokens is not None:
        return load_server("bridle.serve.identifiers.token_file").TokenFile(options.tokens)
    if options.identify is None:
        return None
    found = load_reference(options.identify)
    if not callable(found) or isinstance(found, type):
        kind = f"the class {found.__name__}" if isinstance(found, type) else type(found).__name__
        raise MisuseError(
            f"{options.identify} is not a function that proves who sends a request but {kind};"
            " name a function of the request, or an object that you made, such as JsonWebTokens(…)"
        )
    return found


def print_new_token(options: argparse.Namespace) -> None:
    module = load_server("bridle.serve.identifiers.token_file")
    rights = tuple(each.strip() for each in options.rights.split(",") if each.strip())
    token, entry = module.make_token(options.tenant, rights, options.sessions)
    if options.json:
        shown = {"name": options.new_token, "token": token, "entry": msgspec.to_builtins(entry)}
        print_text(msgspec.json.encode(shown).decode())
        return
    print_line(f"the token, shown once: {token}")
    print_line("add to the file of --tokens:")
    print_line(f"[tokens.{json.dumps(options.new_token)}]")  # also a string of TOML
    for name in ("id", "hash", "tenant", "rights", "sessions"):
        print_line(f"{name} = {json.dumps(getattr(entry, name))}")


def load_server(module: str = "bridle.serve.process") -> Any:
    """The module that runs a server; raises `MisuseError` if its packages are missing."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name not in ("starlette", "uvicorn", "mcp"):
            raise
        extras = "mcp,serve" if error.name == "mcp" else "serve"
        raise MisuseError(
            f"serving needs packages that are not installed: pip install 'bridle[{extras}]'"
        ) from None


def print_stopping(runs: int) -> None:
    about = (
        f"stopping; {runs} run{' ends after its step and is' if runs == 1 else 's end after their step and are'}"
        " resumed at the next start"
        if runs
        else "stopping"
    )
    print_line(f"{about} (Ctrl-C again: at once)", file=sys.stderr)


def read_token(options: argparse.Namespace) -> str:
    """The token of the option, the file or the environment; raises `MisuseError` for two of them."""
    if options.token is not None and options.token_file is not None:
        raise MisuseError("give --token or --token-file, not both")
    if options.token_file is None:
        if options.token is not None:
            sys.stderr.write(f"{TOKEN_VISIBLE}\n")
        return str(options.token if options.token is not None else os.environ.get(TOKEN_VARIABLE, ""))
    try:
        token = read_at_most(options.token_file, TOKEN_BYTES_MAX).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise MisuseError(f"cannot read the token file {str(options.token_file)!r}: {error}") from None
    if not token:
        raise MisuseError(f"the token file {str(options.token_file)!r} is empty")
    return token
