"""Reads the prompts of `bridle chat`: with prompt_toolkit or line editing on a terminal, else line by line."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Protocol

from bridle.cli.format.printing import print_line
from bridle.cli.log_access import data_folder

PROMPT_MARK, CONTINUED_MARK = "> ", ". "
CONTINUATION = "\\"
HISTORY_NAME = "chat_history"
INSTALL_HINT = "for editing, completion and a lasting history: pip install 'bridle[cli]'"


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

    def __init__(self, hint: str) -> None:
        self.hint = hint
        with suppress(ImportError):  # not on every system
            import_module("readline")

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


def open_prompt_input(commands: Mapping[str, str], *, interactive: bool) -> PromptInput:
    """The best input there is; `commands`, each with its meaning, are completed at the start of a line."""
    if not interactive:
        return PipeInput()
    if os.environ.get("TERM") == "dumb":
        return LineInput(hint="")
    try:
        module = import_module(".toolkit_input", __package__)
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("prompt_toolkit"):
            raise
        return LineInput(INSTALL_HINT)
    made: PromptInput = module.ToolkitInput(commands, data_folder() / HISTORY_NAME)
    return made
