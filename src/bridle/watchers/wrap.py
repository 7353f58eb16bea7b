"""Wraps streamed text between words, at the width of a terminal.

A terminal breaks a long line at its last column, in the middle of a word. Text arrives in pieces, so the last
word of a piece is held back until its end is known. Code is left alone: a line that is indented by four
spaces, or that stands between two fences, is passed on as it came.
"""

import re
import shutil
import unicodedata
from collections.abc import Callable

WIDTH_DEFAULT, WIDTH_MIN = 80, 20
WRAP_PIECE = re.compile(r"\n|[^\S\n]+|\S+")
FENCE = "```"
CODE_INDENT = 4


def terminal_width() -> int:
    return max(WIDTH_MIN, shutil.get_terminal_size((WIDTH_DEFAULT, 24)).columns)


def cell_count(text: str) -> int:
    """Number of terminal columns the text occupies."""
    return len(text) if text.isascii() else sum(map(letter_cells, text))


def letter_cells(letter: str) -> int:
    if unicodedata.combining(letter) or unicodedata.category(letter) in ("Cf", "Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in ("W", "F") else 1


def fit_cells(line: str, width: int) -> str:
    """Cut a line to a width in columns, with an ellipsis if something was cut."""
    if cell_count(line) <= width:
        return line
    kept, room = [], width - 1
    for letter in line:
        room -= letter_cells(letter)
        if room < 0:
            break
        kept.append(letter)
    return "".join(kept).rstrip() + "…" if width > 0 else ""


class WordWrap:
    """Breaks lines between words; `feed` returns text that can be written now, `flush` the rest."""

    def __init__(self, width: Callable[[], int] = terminal_width) -> None:
        self._width = width
        self._column = 0
        self._spaces = self._word = ""
        self._fenced = self._verbatim = False

    def feed(self, text: str) -> str:
        written = []
        for piece in WRAP_PIECE.findall(text):
            if piece == "\n":
                written.append(self._place_word() + self._spaces + "\n")
                self._start_line()
            elif piece.isspace():
                written.append(self._place_word())
                self._spaces += piece
            else:
                self._word += piece
        return "".join(written)

    def flush(self) -> str:
        """Return the word and spaces held back, at the end of a text."""
        rest = self._place_word() + self._spaces
        self._spaces = ""
        return rest

    def start_line(self) -> None:
        """Reset the column after the caller began a new line."""
        self._start_line()

    def _start_line(self) -> None:
        self._column, self._spaces, self._verbatim = 0, "", False

    def _place_word(self) -> str:
        if not self._word:
            return ""
        spaces, word = self._spaces, self._word
        self._spaces = self._word = ""
        if self._column == 0 and word.startswith(FENCE):
            self._fenced, self._verbatim = not self._fenced, True
        if self._column == 0 and len(spaces.expandtabs(CODE_INDENT)) >= CODE_INDENT:
            self._verbatim = True
        width, size = self._width(), cell_count(word)
        fits = self._column + len(spaces) + size <= width
        if fits or self._fenced or self._verbatim or self._column == 0:
            self._column += len(spaces) + size
            return spaces + word
        self._column = size
        return "\n" + word
