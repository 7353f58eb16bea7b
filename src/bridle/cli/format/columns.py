"""Fits text into columns: display width, cutting, wrapping, tables."""

import re
import shutil
import sys
from collections.abc import Iterable, Sequence

from bridle.values.text import escape_text, join_lines
from bridle.watchers.console import STYLES, is_color_wanted
from bridle.watchers.wrap import cell_count, fit_cells, letter_cells

WIDTH_DEFAULT, WIDTH_MIN = 100, 40
"""Width of output that does not go to a terminal, and minimum width of a terminal."""


def screen_width() -> int:
    """Width from COLUMNS, else of the terminal."""
    return max(WIDTH_MIN, shutil.get_terminal_size((WIDTH_DEFAULT, 24)).columns)


def display_width(words: str) -> int:
    """Columns that a text occupies."""
    return cell_count(words)


def fit_line(words: str, width: int) -> str:
    """Text as one line of at most `width` columns, with … where it is cut."""
    return trim_line(escape_text(join_lines(words)), width)


def trim_line(line: str, width: int) -> str:
    """Like `fit_line`, but keeps spaces as they are."""
    return fit_cells(line, width)


def pad_text(words: str, width: int, *, right: bool = False) -> str:
    space = " " * max(0, width - display_width(words))
    return space + words if right else words + space


def wrap_text(words: str, width: int, lines_max: int) -> list[str]:
    """Wrap text to `width`, between words if possible; the last line ends in … if text is left out."""
    lines: list[str] = []
    for paragraph in escape_text(words, prose=True).expandtabs(4).split("\n"):
        line = ""
        for word in re.findall(r"\s*\S+", paragraph):
            if display_width(line + word) <= width:
                line += word
                continue
            if line:
                lines.append(line)
            *whole, line = split_cells(word.lstrip() if line else word, width)
            lines.extend(whole)
            if len(lines) > lines_max:
                break
        lines.append(line)
        if len(lines) > lines_max:
            return [*lines[: lines_max - 1], fit_line(f"{lines[lines_max - 1]} …", width)]
    return lines


def apply_style(words: str, style: str, colour: bool) -> str:  # noqa: FBT001
    return f"\x1b[{STYLES[style]}m{escape_text(words)}\x1b[0m" if colour and words.strip() else words


def is_color_output() -> bool:
    return sys.stdout.isatty() and is_color_wanted()


def format_table(rows: Sequence[Sequence[str]], right: Iterable[int] = ()) -> list[str]:
    """Rows as aligned lines; the columns in `right` are right-aligned."""
    flush, rows = set(right), [[*map(escape_text, row)] for row in rows]
    widths = [max(display_width(row[at]) for row in rows) for at in range(len(rows[0]))] if rows else []
    lines = []
    for row in rows:
        sized = enumerate(zip(row, widths, strict=True))
        words = (pad_text(word, width, right=at in flush) for at, (word, width) in sized)
        lines.append("  ".join(words).rstrip())
    return lines


def shorten_stem(stem: str, width_max: int) -> str:
    """The lines of a tree before its text; only their end if they are too long."""
    return stem if len(stem) <= width_max else "…" + stem[1 - width_max :]


def split_cells(word: str, width: int) -> list[str]:
    """Split a text into pieces that fit, exactly where they are full."""
    pieces, piece, room = [], "", width
    for letter in word:
        if letter_cells(letter) > room:
            pieces.append(piece)
            piece, room = "", width
        piece += letter
        room -= letter_cells(letter)
    return [*pieces, piece]
