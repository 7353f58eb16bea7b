"""Texts of the help besides the arguments: the overview of all commands, examples and exit codes."""

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from textwrap import fill

import msgspec

from bridle.values.base import Value

HELP_WIDTH = 80
HELP_FILE = Path(__file__).with_name("help.toml")


class HelpTable(Value):
    """The file help.toml."""

    groups: dict[str, tuple[str, ...]]
    """Names of commands, by the title of their group."""
    examples: dict[str, tuple[tuple[str, str], ...]]
    """By command: lines to type, each with what it does."""
    exit_codes: dict[str, str]
    exit_codes_of: dict[str, dict[str, str]]
    """By command: codes that have a meaning of their own there."""


@cache
def load_help() -> HelpTable:
    return msgspec.convert(tomllib.loads(HELP_FILE.read_text(encoding="utf-8")), HelpTable)


def make_overview(commands: Mapping[str, str]) -> str:
    """The help of `bridle`, from the commands and what each does."""
    width = max(map(len, commands))
    lines = ["usage: bridle COMMAND [options]", ""]
    lines += ["A model-agnostic agent harness: one log, a pure core, a byte-stable wire.", ""]
    for title, names in load_help().groups.items():
        lines += [f"{title}:", *(f"  {name:<{width}}  {commands[name]}" for name in names), ""]
    return "\n".join(
        [
            *lines,
            "`bridle help COMMAND` explains a command, with examples. Without a model and an",
            'API key, the simulator answers:  bridle run "What is 17 * 23 minus 100?"',
            "",
            "Exit codes: 0 success, 1 no answer or something was found, 2 something to",
            "correct (one line says what), 130 stopped with Ctrl-C.",
        ]
    )


def make_epilog(command: str) -> str:
    """The end of the help of a command: examples and exit codes."""
    examples = [f"  # {what}\n  {line}" for line, what in load_help().examples[command]]
    codes = [
        fill(f"{code:>5}  {meaning}", HELP_WIDTH, subsequent_indent=" " * 7)
        for code, meaning in list_exit_codes(command).items()
    ]
    return "\n".join(["examples:", "\n\n".join(examples), "", "exit codes:", *codes])


def list_exit_codes(command: str) -> dict[str, str]:
    """Meaning of each exit code of a command."""
    table = load_help()
    return {**table.exit_codes, **table.exit_codes_of.get(command, {})}


def wrap_description(words: str) -> str:
    """Wrap paragraphs to 80 columns; indented blocks stay unchanged."""
    return "\n\n".join(
        block
        if any(line.startswith(" ") for line in block.splitlines())
        else fill(block, HELP_WIDTH, break_on_hyphens=False, break_long_words=False)
        for block in words.strip().split("\n\n")
    )
