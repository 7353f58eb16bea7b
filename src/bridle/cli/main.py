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

from .command_table import (
    COMMAND_MODULES,
    COMMANDS,
    DEFAULT_SUBCOMMANDS,
    FIRST_COMMANDS,
    GROUPS,
    HIDDEN_COMMANDS,
    REPLACED_COMMANDS,
    SUBCOMMANDS,
    VIEWS,
    describe_command,
    find_view,
)

if TYPE_CHECKING:
    import argparse

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
        given = [*given[1:], "--help"]
    if not given or given[0] in ("-h", "--help", "help"):
        print(make_overview())
        return 0
    if given[0] in ("-V", "--version"):
        print(f"bridle {__version__}")
        return 0
    problem = _find_wrong_word(given)
    if problem:
        _print_error(problem)
        return EXIT_MISUSE
    name, rest = split_command(given)
    if name in SUBCOMMANDS:
        print(make_group_overview(name))
        return 0 if rest else EXIT_MISUSE  # a pipeline that forgot the second word must not pass
    errors = import_module("bridle.values.errors")
    try:
        with _silence_loggers() if name in COMMANDS_THAT_SHOW_RUNS else nullcontext():
            return _run_command(name, rest)
    except errors.BridleError as error:
        _print_error(str(error))
        return EXIT_MISUSE


def _find_wrong_word(given: list[str]) -> str:
    """Why the first words name no command, and what to type; empty if they do."""
    name, *rest = given
    if name in REPLACED_COMMANDS:
        return f"`bridle {name}` is now `bridle {REPLACED_COMMANDS[name]}`"
    find_near = import_module("difflib").get_close_matches
    if name not in COMMANDS and name not in HIDDEN_COMMANDS:
        near = find_near(name, COMMANDS, n=1)
        hint = f"; did you mean `bridle {near[0]}`?" if near else "; `bridle help --all` lists the commands"
        return f"unknown command {name!r}{hint}"
    known = SUBCOMMANDS.get(name, {})
    if not known or name in DEFAULT_SUBCOMMANDS or not rest or rest[0] in (*known, "-h", "--help"):
        return ""
    near = find_near(rest[0], known, n=1)
    hint = f"did you mean `bridle {name} {near[0]}`?" if near else f"choose one of: {', '.join(known)}"
    return f"`bridle {name}` has no {rest[0]!r}; {hint}"


def split_command(given: list[str]) -> tuple[str, list[str]]:
    """The name of the command, which may have several words, and its arguments.

    The name of a group alone stands for its overview.
    """
    name, *rest = given
    if name in SUBCOMMANDS:
        if rest and rest[0] in SUBCOMMANDS[name]:
            return f"{name} {rest[0]}", rest[1:]
        if rest[:1] in (["-h"], ["--help"]) or name not in DEFAULT_SUBCOMMANDS:
            return name, rest
        return f"{name} {DEFAULT_SUBCOMMANDS[name]}", rest
    view = find_view(rest) if name == "show" else ""
    return (f"show --as {view}" if view in VIEWS else name), rest


def _run_command(name: str, rest: list[str]) -> int:
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
        listed = [each for name in names for each in (name, *_list_subcommands(name))]
        lines += [f"{title}:", *_list_rows(listed), ""]
    return "\n".join(
        [
            *lines,
            "`bridle help COMMAND` explains a command, with examples.",
            "",
            "Exit codes: 0 success, 1 no answer or something was found, 2 something to",
            "correct (one line says what), 130 stopped with Ctrl-C.",
        ]
    )


def make_group_overview(group: str) -> str:
    """The help of a command that consists of others."""
    return "\n".join(
        [
            f"usage: bridle {group} COMMAND [options]",
            "",
            *_list_rows(_list_subcommands(group)),
            "",
            f"`bridle help {group} COMMAND` explains one, with examples.",
        ]
    )


def _list_subcommands(name: str) -> list[str]:
    return [f"{name} {word}" for word in SUBCOMMANDS.get(name, ())]


def _list_rows(names: Sequence[str]) -> list[str]:
    width = max(map(len, names))
    return [f"  {name:<{width}}  {describe_command(name)}" for name in names]


def make_parser(name: str) -> "argparse.ArgumentParser":
    """The argument parser of a command; its description is the docstring of the command's module."""
    module = _load_command(name)
    make: type[argparse.ArgumentParser] = import_module(".help_texts", __package__).OneLineParser
    parser = make(prog=f"bridle {name}", description=module.__doc__)
    module.add_arguments(parser)
    if name.startswith("show --as "):
        parser.add_argument("--as", dest="view", help=import_module("argparse").SUPPRESS)
        parser.set_defaults(uses_latest=True)
    return parser


def _load_command(name: str) -> Any:
    return import_module(f".{COMMAND_MODULES.get(name, f'commands.{name}')}", __package__)


if __name__ == "__main__":
    raise SystemExit(main())
