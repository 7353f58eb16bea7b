"""All that the commands print goes through here, escaped: none of it can steer a terminal or hide.

One call is one line.  Text of our own that has several is for `say_lines`; what a model says at length is
prose.  Styles of our own are kept where the caller has put them round text that is escaped already.
"""

import re
import sys
from typing import TextIO

import msgspec

from bridle.values.text import escape_text, join_lines

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
    # Every second piece is a style.
    shown = "".join(piece if at % 2 else escape_text(piece, prose=prose) for at, piece in enumerate(pieces))
    print(shown, file=file or sys.stdout, end=end, flush=flush)


def print_text(words: str, *, file: TextIO | None = None, end: str = "\n", flush: bool = False) -> None:
    """Print text in which line ends and tabs are meant."""
    print(escape_text(words, prose=True), file=file or sys.stdout, end=end, flush=flush)


def print_json(data: object) -> None:
    """Print data as one line of JSON."""
    print(escape_text(msgspec.json.encode(data).decode()))


def write_raw(words: str) -> None:
    """A text exactly as it is, into a file or a pipe; what would steer a terminal is escaped on one."""
    sys.stdout.write(escape_text(words, prose=True) if sys.stdout.isatty() else words)


def print_error(words: str) -> None:
    """One line about what went wrong, for the person at the terminal."""
    print_line(f"bridle: {join_lines(words)}", file=sys.stderr)
