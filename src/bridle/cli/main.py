"""`bridle`: find the command, load only that one, turn every expected error into one line.

Exit codes: 0 it worked · 1 the run ended without an answer · 2 something you can put
right (said in one line) · 130 cancelled with Ctrl-C.
"""

import argparse
import difflib
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from textwrap import fill
from typing import Any, NoReturn

from bridle import __version__
from bridle.cli.format.printing import print_error, print_line, print_text
from bridle.values.errors import BridleError

COMMANDS = {
    "run": "put a prompt to an agent and watch it work",
    "resume": "go on with a session that was left unfinished",
    "approvals": "list the calls that wait for a person",
    "approve": "let such a call run",
    "reject": "keep such a call from running",
    "compensate": "undo what a run did",
    "sessions": "list what was run, newest first",
    "show": "tell what happened in a session",
    "log": "list the places of a session, or the tree of its branches",
    "fork": "begin a new session from a place in an old one",
    "diff": "set two sessions beside each other",
    "memory": "read and write what tenants and sessions have noted",
    "cache": "explain what the prompt cache gave and what it missed",
    "lock": "keep tools and instructions from changing by accident",
    "lint": "find what makes the beginning of prompts change",
    "cost": "tell what was spent, and on what",
    "budgets": "tell what is spent and set aside of shared budgets",
    "sim": "simulate every provider on a port of this machine",
    "wire": "put recorded provider traffic to the codecs",
}

EXIT_MISUSE, EXIT_CANCELLED = 2, 130
HELP_WIDTH = 80


class OneLineParser(argparse.ArgumentParser):
    """One line instead of a page when an argument is wrong."""

    def error(self, message: str) -> NoReturn:
        print_error(f"{message}; see `{self.prog} --help`")
        raise SystemExit(EXIT_MISUSE)


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a letter nobody can show is no reason to stop
    try:
        return _dispatch(given)
    except BridleError as error:
        print_error(str(error))
        return EXIT_MISUSE
    except KeyboardInterrupt:
        return EXIT_CANCELLED
    except BrokenPipeError:
        # Whoever read us has left.  Python would complain once more while flushing at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        print_error(f"cannot write the output: {error.strerror or error}")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _dispatch(given: list[str]) -> int:
    if given[:1] == ["help"] and len(given) > 1:
        given = [given[1], "--help"]
    if not given or given[0] in ("-h", "--help", "help"):
        print_text(_make_overview())
        return 0
    if given[0] in ("-V", "--version"):
        print_line(f"bridle {__version__}")
        return 0
    name, *rest = given
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"; did you mean `bridle {near[0]}`?" if near else "; `bridle --help` lists the commands"
        print_error(f"there is no command {name!r}{hint}")
        return EXIT_MISUSE
    code: int = _load_command(name).execute(make_parser(name).parse_args(rest))
    return code


def make_parser(name: str) -> argparse.ArgumentParser:
    """The argument parser of a command; its description is the docstring of the command's module."""
    module = _load_command(name)
    parser = OneLineParser(
        prog=f"bridle {name}",
        description=_wrap_help(module.__doc__ or ""),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.add_arguments(parser)
    return parser


def _load_command(name: str) -> Any:
    return import_module(f".commands.{name}", __package__)


def _wrap_help(words: str) -> str:
    """As wide as a small screen; what is indented is to be typed, and stays as it is."""
    return "\n\n".join(
        block
        if any(line.startswith(" ") for line in block.splitlines())
        else fill(block, HELP_WIDTH, break_on_hyphens=False, break_long_words=False)
        for block in words.strip().split("\n\n")
    )


def _make_overview() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {what}" for name, what in COMMANDS.items()]
    return "\n".join(
        [
            "usage: bridle COMMAND [options]",
            "",
            "A model-agnostic agent harness: one log, a pure core, a byte-stable wire.",
            "",
            *lines,
            "",
            "`bridle help COMMAND` explains a command.  With no model and no key, a",
            'simulated model answers:  bridle run "What is 17 * 23 minus 100?"',
        ]
    )


if __name__ == "__main__":
    raise SystemExit(main())
