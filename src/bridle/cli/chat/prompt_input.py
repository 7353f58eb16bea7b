"""Reads the prompts of `bridle chat`: with prompt_toolkit or line editing on a terminal, else line by line."""

import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Protocol

from bridle.cli.format.printing import print_line

PROMPT_MARK, CONTINUED_MARK = "> ", ". "
CONTINUATION = "\\"


class EndOfInput(Exception):
    """The user leaves: end of the input, or Ctrl-C at an empty prompt."""


class PromptInput(Protocol):
    hint: str
    """A line about what is missing; empty if nothing is."""

    def read(self) -> str:
        """The next prompt; raises `EndOfInput`."""
        ...


class PipeInput:
    """Lines of a pipe or a file."""

    hint = ""

    def read(self) -> str:
        return join_continued(iter(sys.stdin.readline, ""))


class LineInput:
    """Lines of a terminal, with the line editing and the history that Python has."""

    hint = "for multi-line input, completion and history over sessions: pip install 'bridle[cli]'"

    def __init__(self) -> None:
        with suppress(ImportError):  # not on every system
            importlib.import_module("readline")

    def read(self) -> str:
        try:
            return join_continued(self._lines())
        except KeyboardInterrupt:
            print_line(file=sys.stderr)
            raise EndOfInput from None

    def _lines(self) -> Iterator[str]:
        mark = PROMPT_MARK
        while True:
            try:
                line = input(mark)
            except EOFError:
                print_line(file=sys.stderr)
                return
            yield line
            mark = CONTINUED_MARK


def join_continued(lines: Iterator[str]) -> str:
    """The next line, with the lines after it as long as they end in a backslash."""
    taken: list[str] = []
    for line in lines:
        whole = line.rstrip("\r\n")
        taken.append(whole.removesuffix(CONTINUATION))
        if not whole.endswith(CONTINUATION):
            break
    if not taken:
        raise EndOfInput
    return "\n".join(taken)


def open_prompt_input(*, interactive: bool, words: Sequence[str]) -> PromptInput:
    """The best input there is; `words` are completed at the start of a line."""
    return LineInput() if interactive else PipeInput()
