"""Reads the prompts of `bridle chat`: with prompt_toolkit or line editing on a terminal, else line by line."""

import os
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Protocol

from bridle.cli.format.printing import print_line
from bridle.cli.log_access import data_folder

PROMPT_MARK, CONTINUED_MARK = "> ", ". "
CONTINUATION = "\\"
HISTORY_NAME = "chat_history"
LINE_HISTORY_NAME = "chat_lines"
HISTORY_MODE = 0o600
HISTORY_LINES_MAX = 1_000
INSTALL_HINT = "to edit several lines and complete /commands: pip install 'bridle[cli]'"
LEAVE_HINT = "Ctrl-C again, or Ctrl-D, leaves"


class EndOfInput(Exception):
    """The user leaves: end of the input, or Ctrl-C twice at a prompt."""


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
    """Lines of a terminal, with Python's own line editing and a history that lasts."""

    def __init__(self, history: Path, hint: str = "") -> None:
        """`history` is the file of earlier lines."""
        self.hint, self._interrupts = hint, LeavingInterrupts()
        self._history: Path | None = history
        try:
            self._load_history(import_module("readline"), history)
        except ImportError:  # not on every system: without it, there is no line editing
            self._history = None
        except OSError as error:
            self.hint = format_history_error(error, history)
            self._history = None

    def read(self) -> str:
        while True:
            try:
                return self._interrupts.end_with(join_continued(self._lines()))
            except KeyboardInterrupt:
                print_line(file=sys.stderr)
                self._interrupts.count()

    def _lines(self) -> Iterator[str]:
        mark = PROMPT_MARK
        while True:
            try:
                line = input(mark)
            except EOFError:
                print_line(file=sys.stderr)
                return
            if self._history is not None and line.strip():
                with self._history.open("a", encoding="utf-8") as file:
                    file.write(f"{line}\n")
            yield line
            mark = CONTINUED_MARK

    def _load_history(self, editor: ModuleType, path: Path) -> None:
        prepare_history(path)
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines()[-HISTORY_LINES_MAX:]:
            editor.add_history(line)


class LeavingInterrupts:
    """Ctrl-C at the prompt: the first drops the line, the second without a prompt in between leaves."""

    def __init__(self) -> None:
        self._is_second = False

    def count(self) -> None:
        """Raises `EndOfInput` at the second one."""
        if self._is_second:
            raise EndOfInput
        self._is_second = True
        print_line(LEAVE_HINT, file=sys.stderr)

    def end_with(self, prompt: str) -> str:
        """Start to count again, unless the prompt is empty; return the prompt."""
        self._is_second = self._is_second and not prompt.strip()
        return prompt


def prepare_history(path: Path) -> None:
    """Make the file of earlier prompts, readable by the user only; raises `OSError`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(HISTORY_MODE)


def format_history_error(error: OSError, path: Path) -> str:
    return f"the history is not kept: {error.strerror or error}: {path}"


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
    """Open the best input available here. `commands` maps names, completed at the start of a line, to meanings."""
    if not interactive:
        return PipeInput()
    if os.environ.get("TERM") == "dumb":
        return LineInput(data_folder() / LINE_HISTORY_NAME)
    try:
        module = import_module(".toolkit_input", __package__)
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("prompt_toolkit"):
            raise
        return LineInput(data_folder() / LINE_HISTORY_NAME, INSTALL_HINT)
    made: PromptInput = module.ToolkitInput(commands, data_folder() / HISTORY_NAME)
    return made
