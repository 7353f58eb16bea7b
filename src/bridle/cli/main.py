"""The `bridle` command: loads the module of one subcommand and reports expected errors in one line."""

import argparse
import difflib
import io
import os
import shutil
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

from bridle import __version__
from bridle.cli.configured_options import apply_configuration
from bridle.cli.format.printing import print_error, print_line, print_text
from bridle.cli.help_texts import HELP_WIDTH, make_epilog, make_overview, wrap_description
from bridle.values.errors import BridleError

COMMANDS = {
    "run": "run an agent on a prompt",
    "chat": "talk with an agent, prompt after prompt",
    "resume": "continue an unfinished session",
    "approvals": "list tool calls that need approval",
    "approve": "approve a tool call",
    "reject": "reject a tool call",
    "cancel": "end a run of another process",
    "steer": "send a message to a run of another process",
    "pause": "stop a run of another process after its step",
    "compensate": "undo what a run did",
    "sessions": "list recent sessions",
    "show": "show what happened in a session",
    "tail": "follow a session while another process runs it",
    "log": "list the messages of a session, or its tree of forks",
    "fork": "branch a new session from a message of another",
    "diff": "compare two sessions",
    "replay": "replay a session offline, or compare it with a changed agent",
    "raw": "show the requests that were sent, byte for byte",
    "memory": "list, add and remove notes of a tenant or session",
    "cache": "show prompt-cache hits and explain misses",
    "lock": "detect changes of tools and instructions",
    "lint": "find code that makes prompts uncacheable",
    "cost": "show spending by session, model, tool, day or tenant",
    "budgets": "show shared budgets: spent and reserved",
    "verify": "check that the log is what was written",
    "gc": "remove old sessions and unused content",
    "backup": "copy the log while it is in use",
    "audit": "show who decided what, when, and under which policy",
    "export": "write a session as lines of JSON",
    "import": "read an exported session, verified",
    "redact": "remove content from a record, and record why",
    "sim": "serve simulated providers on a local port",
    "wire": "check the codecs against recorded provider traffic",
    "init": "write a starter project: agent, tools, test, policy",
    "config": "show the settings in force and where each comes from",
    "doctor": "check the installation, settings, keys and the log",
    "models": "list models: context, prices, abilities",
    "mcp": "show what MCP servers offer: tools, resources, prompts",
    "completion": "print a completion script for bash, zsh or fish",
}
SETUP_COMMANDS = ("init", "config", "doctor", "models", "mcp", "completion")
CONTROL_COMMANDS = ("cancel", "steer", "pause")
STORAGE_COMMANDS = ("verify", "gc", "backup", "audit", "export", "redact")
HIDDEN_COMMANDS = ("candidates",)
"""Commands for the completion scripts, not for people."""
COMMAND_MODULES = {
    **{name: f"commands.setup.{name}" for name in (*SETUP_COMMANDS, *HIDDEN_COMMANDS)},
    **{name: f"commands.storage.{name}" for name in STORAGE_COMMANDS},
    **{name: f"commands.replay.{name}" for name in ("replay", "raw")},
    **{name: f"commands.control.{name}" for name in CONTROL_COMMANDS},
    "import": "commands.storage.import_session",
    "chat": "chat.command",
    "show": "show.command",
    "tail": "show.tail",
}
"""Modules of the commands that are not in the folder commands."""

EXIT_MISUSE, EXIT_CANCELLED = 2, 130


class OneLineParser(argparse.ArgumentParser):
    """Reports a wrong argument in one line instead of printing the usage; its help ends with examples."""

    def error(self, message: str) -> NoReturn:
        print_error(f"{message}; see `{self.prog} --help`")
        raise SystemExit(EXIT_MISUSE)

    def _get_formatter(self) -> argparse.HelpFormatter:
        width = min(HELP_WIDTH, shutil.get_terminal_size().columns)
        return argparse.RawDescriptionHelpFormatter(self.prog, width=width - 2)

    def format_help(self) -> str:
        _, command, *_ = self.prog.split()
        self.description, self.epilog = wrap_description(self.description or ""), make_epilog(command)
        return super().format_help()


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(
                errors="backslashreplace"
            )  # an unprintable character must not stop the command
    try:
        return _dispatch(given)
    except BridleError as error:
        print_error(str(error))
        return EXIT_MISUSE
    except KeyboardInterrupt:
        return EXIT_CANCELLED
    except BrokenPipeError:
        # The reader closed the pipe. Without this, Python reports it again while flushing at exit.
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
        print_text(make_overview(COMMANDS))
        return 0
    if given[0] in ("-V", "--version"):
        print_line(f"bridle {__version__}")
        return 0
    name, *rest = given
    if name not in COMMANDS and name not in HIDDEN_COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"; did you mean `bridle {near[0]}`?" if near else "; `bridle --help` lists the commands"
        print_error(f"unknown command {name!r}{hint}")
        return EXIT_MISUSE
    parser = make_parser(name)
    options = parser.parse_args(rest)
    with apply_configuration(parser, options):
        code: int = _load_command(name).execute(options)
    return code


def make_parser(name: str) -> argparse.ArgumentParser:
    """The argument parser of a command; its description is the docstring of the command's module."""
    module = _load_command(name)
    parser = OneLineParser(
        prog=f"bridle {name}",
        description=module.__doc__,
    )
    module.add_arguments(parser)
    return parser


def _load_command(name: str) -> Any:
    return import_module(f".{COMMAND_MODULES.get(name, f'commands.{name}')}", __package__)


if __name__ == "__main__":
    raise SystemExit(main())
