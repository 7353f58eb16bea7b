"""Prints everything the commands print, escaped, so that no text can control the terminal or hide."""

import re
import sys
from typing import TextIO

import msgspec

from bridle.values.text import escape_text, join_lines
from bridle.watchers.wrap import WordWrap

STYLE_PATTERN = re.compile(r"(\x1b\[(?:0|1|2|3[1236])m)")


def print_line(
    words: str = "",
    *,
    file: TextIO | None = None,
    end: str = "\n",
    flush: bool = False,
    styles: bool = False,
    prose: bool = False,
) -> None:
    """Print one line."""
    pieces = STYLE_PATTERN.split(words) if styles else [words]
    # Odd pieces are styles.
    # guard: printed-text-escaped
    shown = "".join(piece if at % 2 else escape_text(piece, prose=prose) for at, piece in enumerate(pieces))
    print(shown, file=file or sys.stdout, end=end, flush=flush)


def print_text(words: str, *, file: TextIO | None = None, end: str = "\n", flush: bool = False) -> None:
    """Print text and keep its line breaks and tabs."""
    print(escape_text(words, prose=True), file=file or sys.stdout, end=end, flush=flush)


def print_json(data: object) -> None:
    """Print data as one line of JSON."""
    print(escape_text(msgspec.json.encode(data).decode()))


def write_raw(words: str) -> None:
    """Write text unchanged to a file or pipe; on a terminal, control characters are escaped."""
    sys.stdout.write(escape_text(words, prose=True) if sys.stdout.isatty() else words)


def print_error(words: str) -> None:
    """Print an error to standard error in one line, which a terminal gets wrapped between words."""
    line = escape_text(f"bridle: {join_lines(words)}")
    if sys.stderr is not None and sys.stderr.isatty():
        wrap = WordWrap()
        line = wrap.feed(line) + wrap.flush()
    print_text(line, file=sys.stderr)
