"""The help of a command: its arguments, examples and exit codes."""

import argparse
import shutil
import tomllib
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from textwrap import fill
from typing import NoReturn

import msgspec

from bridle.cli.format.printing import print_error
from bridle.values.base import Value

from .main import EXIT_MISUSE

HELP_WIDTH = 80
HELP_FILE = Path(__file__).with_name("help.toml")


class HelpTable(Value, kw_only=True):
    """The file help.toml."""

    examples: dict[str, tuple[tuple[str, str], ...]]
    """By command: lines to type, each with what it does."""
    exit_codes: dict[str, str]
    exit_codes_of: dict[str, dict[str, str]]
    """By command: codes that have a meaning of their own there."""


@cache
def load_help() -> HelpTable:
    return msgspec.convert(tomllib.loads(HELP_FILE.read_text(encoding="utf-8")), HelpTable)


class OneLineParser(argparse.ArgumentParser):
    """Reports a wrong argument in one line instead of printing the usage; its help ends with examples."""

    def error(self, message: str) -> NoReturn:
        unknown = message.partition("unrecognized arguments: ")[2].split()
        for word in unknown:
            near = get_close_matches(word.partition("=")[0], self._option_string_actions, n=1)
            if word.startswith("-") and near:
                message = f"unknown option {word.partition('=')[0]}; did you mean {near[0]}?"
                break
        print_error(f"{message}; see `{self.prog} --help`")
        raise SystemExit(EXIT_MISUSE)

    def _get_formatter(self) -> argparse.HelpFormatter:
        width = min(HELP_WIDTH, shutil.get_terminal_size().columns)
        return argparse.RawDescriptionHelpFormatter(self.prog, width=width - 2)

    def format_help(self) -> str:
        command = self.prog.removeprefix("bridle ")
        self.description, self.epilog = wrap_description(self.description or ""), make_epilog(command)
        return super().format_help()


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
