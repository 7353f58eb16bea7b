"""The `bridle` command: loads the module of one subcommand and reports expected errors in one line.

The overview of all commands imports next to nothing, so that it is there at once.
"""

import io
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, Any

from bridle import __version__

if TYPE_CHECKING:
    import argparse

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
    "eval": "run a suite of tasks, score it, compare it with a baseline",
    "check": "list the waiting sessions that new code cannot continue",
    "lint": "find code that makes prompts uncacheable",
    "cost": "show spending by session, model, tool, day or tenant",
    "budgets": "show shared budgets: spent and reserved",
    "verify": "check that the log is what was written",
    "gc": "remove old sessions and unused content",
    "backup": "copy the log while it is in use",
    "restore": "put a copy in the place of the log",
    "audit": "show who decided what, when, and under which policy",
    "export": "write a session as lines of JSON",
    "import": "read an exported session, verified",
    "redact": "remove content from a record or a note, and record why",
    "erase": "remove what the log has of one caller",
    "serve": "serve agents over HTTP: API, event streams, metrics",
    "worker": "perform runs of agents that were started on Temporal",
    "gateway": "budgets, fallback and the log between any client and any provider",
    "inspect": "show sessions in a browser: timeline, transcript, cost",
    "sim": "serve simulated providers on a local port",
    "wire": "check the codecs against recorded provider traffic",
    "init": "write a starter project: agent, tools, test, policy",
    "config": "show the settings in force and where each comes from",
    "doctor": "check the installation, settings, keys and the log",
    "models": "list models: context, prices, abilities",
    "mcp": "show what MCP servers offer: tools, resources, prompts",
    "completion": "print a completion script for bash, zsh or fish",
}
GROUPS = {
    "start": ("init", "run", "chat"),
    "continue": ("resume", "approvals", "approve", "reject", "compensate", "fork"),
    "control": ("cancel", "steer", "pause"),
    "look": ("inspect", "sessions", "show", "tail", "log", "diff", "replay", "raw", "cost", "cache", "audit"),
    "manage": (
        "memory",
        "budgets",
        "verify",
        "gc",
        "backup",
        "restore",
        "export",
        "import",
        "redact",
        "erase",
    ),
    "serve": ("serve", "gateway", "worker"),
    "test": ("eval", "check", "lint", "lock", "sim", "wire"),
    "set up": ("config", "doctor", "models", "mcp", "completion"),
}
"""Commands by the title of their group in the list of all."""
FIRST_COMMANDS = ("init", "run", "chat", "resume", "approvals", "show", "cost", "serve")
"""The commands that `bridle` alone lists."""
SETUP_COMMANDS = ("init", "config", "doctor", "models", "mcp", "completion")
CONTROL_COMMANDS = ("cancel", "steer", "pause")
STORAGE_COMMANDS = ("verify", "gc", "backup", "restore", "audit", "export", "redact", "erase")
HIDDEN_COMMANDS = ("candidates",)
"""Commands for the completion scripts, not for people."""
COMMAND_MODULES = {
    **{name: f"commands.setup.{name}" for name in (*SETUP_COMMANDS, *HIDDEN_COMMANDS)},
    **{name: f"commands.storage.{name}" for name in STORAGE_COMMANDS},
    **{name: f"commands.replay.{name}" for name in ("replay", "raw")},
    **{name: f"commands.control.{name}" for name in CONTROL_COMMANDS},
    **{name: f"commands.serving.{name}" for name in ("serve", "gateway", "inspect", "worker")},
    "eval": "commands.evals.eval",
    "import": "commands.storage.import_session",
    "chat": "chat.command",
    "show": "show.command",
    "tail": "show.tail",
}
"""Modules of the commands that are not in the folder commands."""

EXIT_MISUSE, EXIT_CANCELLED, EXIT_PIPE = 2, 130, 141


COMMANDS_THAT_SHOW_RUNS = ("run", "chat", "resume")
LOGGERS_OF_RUNS = ("bridle.failures", "bridle.tools")
"""They would write in the middle of a screen that shows the same."""


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(
                errors="backslashreplace"
            )  # an unprintable character must not stop the command
    try:
        code = _dispatch(given)
        if sys.stdout is not None:
            sys.stdout.flush()  # a closed pipe shows here, not while Python exits
        return code
    except KeyboardInterrupt:
        return EXIT_CANCELLED
    except BrokenPipeError:
        # The reader closed the pipe. Without this, Python reports it again while flushing at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_PIPE
    except OSError as error:
        _print_error(f"cannot write the output: {error.strerror or error}")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


@contextmanager
def _silence_loggers() -> Iterator[None]:
    loggers = [import_module("logging").getLogger(name) for name in LOGGERS_OF_RUNS]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger in loggers:
            logger.disabled = False


def _dispatch(given: list[str]) -> int:
    if given == ["help", "--all"]:
        print(list_all_commands())
        return 0
    if given[:1] == ["help"] and len(given) > 1:
        given = [given[1], "--help"]
    if not given or given[0] in ("-h", "--help", "help"):
        print(make_overview())
        return 0
    if given[0] in ("-V", "--version"):
        print(f"bridle {__version__}")
        return 0
    name, *rest = given
    errors = import_module("bridle.values.errors")
    try:
        with _silence_loggers() if name in COMMANDS_THAT_SHOW_RUNS else nullcontext():
            return _run_command(name, rest)
    except errors.BridleError as error:
        _print_error(str(error))
        return EXIT_MISUSE


def _run_command(name: str, rest: list[str]) -> int:
    if name not in COMMANDS and name not in HIDDEN_COMMANDS:
        near = import_module("difflib").get_close_matches(name, COMMANDS, n=1)
        hint = f"; did you mean `bridle {near[0]}`?" if near else "; `bridle help --all` lists the commands"
        _print_error(f"unknown command {name!r}{hint}")
        return EXIT_MISUSE
    parser = make_parser(name)
    options = parser.parse_args(rest)
    # The help does not read the settings, so it does not load their modules.
    with import_module(".configured_options", __package__).apply_configuration(parser, options):
        if hasattr(options, "session_arguments"):
            import_module(".session_names", __package__).complete_session_names(options)
        code: int = _load_command(name).execute(options)
    return code


def _print_error(message: str) -> None:
    import_module(".format.printing", __package__).print_error(message)


def make_overview() -> str:
    """The help of `bridle` alone: the commands of the first weeks."""
    return "\n".join(
        [
            "usage: bridle COMMAND [options]",
            "",
            "A model-agnostic agent harness: one log, a pure core, a byte-stable wire.",
            "",
            *_list_rows(FIRST_COMMANDS),
            "",
            "`bridle help --all` lists all commands, `bridle help COMMAND` explains one, with",
            "examples. Without a model and an API key, the simulator answers:",
            "",
            '  bridle run "What is 17 * 23 minus 100?"',
        ]
    )


def list_all_commands() -> str:
    """All commands in groups, and the exit codes that most of them share."""
    lines = ["usage: bridle COMMAND [options]", ""]
    for title, names in GROUPS.items():
        lines += [f"{title}:", *_list_rows(names), ""]
    return "\n".join(
        [
            *lines,
            "`bridle help COMMAND` explains a command, with examples.",
            "",
            "Exit codes: 0 success, 1 no answer or something was found, 2 something to",
            "correct (one line says what), 130 stopped with Ctrl-C.",
        ]
    )


def _list_rows(names: Sequence[str]) -> list[str]:
    width = max(map(len, names))
    return [f"  {name:<{width}}  {COMMANDS[name]}" for name in names]


def make_parser(name: str) -> "argparse.ArgumentParser":
    """The argument parser of a command; its description is the docstring of the command's module."""
    module = _load_command(name)
    make: type[argparse.ArgumentParser] = import_module(".help_texts", __package__).OneLineParser
    parser = make(prog=f"bridle {name}", description=module.__doc__)
    module.add_arguments(parser)
    return parser


def _load_command(name: str) -> Any:
    return import_module(f".{COMMAND_MODULES.get(name, f'commands.{name}')}", __package__)


if __name__ == "__main__":
    raise SystemExit(main())
