"""Prompts with prompt_toolkit (`bridle[cli]`): several lines, completion of /commands, and a lasting history."""

from collections.abc import Mapping
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import ColorDepth

from bridle.watchers.console import is_color_wanted

from .prompt_input import (
    CONTINUATION,
    CONTINUED_MARK,
    PROMPT_MARK,
    EndOfInput,
    LeavingInterrupts,
    format_history_error,
    prepare_history,
)

MENU_LINES = 4


class ToolkitInput:
    def __init__(self, commands: Mapping[str, str], history: Path) -> None:
        """`commands` are completed, each with its meaning; `history` is the file of earlier prompts."""
        self.hint, self._interrupts = "", LeavingInterrupts()
        completer = WordCompleter(list(commands), meta_dict=dict(commands), sentence=True)
        self._session: PromptSession[str] = PromptSession(
            message=PROMPT_MARK,
            multiline=True,
            prompt_continuation=CONTINUED_MARK,
            history=self._open_history(history),
            completer=completer,
            complete_while_typing=Condition(lambda: get_app().current_buffer.text.startswith("/")),
            key_bindings=_make_bindings(),
            color_depth=None if is_color_wanted() else ColorDepth.DEPTH_1_BIT,
            reserve_space_for_menu=MENU_LINES,
        )

    def read(self) -> str:
        while True:
            try:
                return self._interrupts.end_with(self._session.prompt())
            except EOFError:
                raise EndOfInput from None
            except KeyboardInterrupt:
                self._interrupts.count()

    def _open_history(self, path: Path) -> History:
        try:
            prepare_history(path)
        except OSError as error:
            self.hint = format_history_error(error, path)
            return InMemoryHistory()
        return FileHistory(path)


def _make_bindings() -> KeyBindings:
    """Enter sends, except after a backslash; Alt-Enter starts a new line."""
    bindings = KeyBindings()

    @bindings.add("enter")
    def send(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.text_before_cursor.endswith(CONTINUATION):
            buffer.delete_before_cursor()
            buffer.newline(copy_margin=False)
        else:
            buffer.validate_and_handle()

    @bindings.add("escape", "enter")
    def start_line(event: KeyPressEvent) -> None:
        event.current_buffer.newline(copy_margin=False)

    return bindings
