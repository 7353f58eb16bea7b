"""Compare two sessions: what they share, and what each said, did and cost afterwards.

Equal messages are shown once. On a terminal with 100 columns or more the sessions are side by side; on a
narrower one, or with --unified, one below the other, marked `-` for A and `+` for B.
"""

import argparse
import asyncio
import difflib
from collections.abc import Iterator, Sequence

from bridle.cli.format.columns import (
    apply_style,
    fit_line,
    is_color_output,
    pad_text,
    screen_width,
    wrap_text,
)
from bridle.cli.format.printing import print_line
from bridle.cli.log_access import add_log_options, tenant_of, use_log
from bridle.cli.session_names import add_session_argument
from bridle.run.lineage import compare_sessions
from bridle.values.lineage import ComparedSession, Comparison, Pair
from bridle.values.message import Message
from bridle.values.text import escape_text
from bridle.watchers.console import format_count, format_dollars, format_duration, format_usage

from .log import encode_json, format_parts

SIDE_BY_SIDE_WIDTH = 100
"""Columns from which two messages fit side by side."""
MESSAGE_LINES_MAX = 12
"""Lines shown of one message; --full shows all."""
PAIR_MARKS = {"same": " ", "changed": "|", "only_a": "<", "only_b": ">"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_session_argument(parser, "a", metavar="A", help_="first session")
    add_session_argument(parser, "b", metavar="B", help_="second session")
    parser.add_argument("--unified", action="store_true", help="show one below the other on any screen")
    parser.add_argument(
        "--full", action="store_true", help=f"show whole messages instead of {MESSAGE_LINES_MAX} lines each"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_log_options(parser)


def execute(options: argparse.Namespace) -> int:
    found = asyncio.run(_read_comparison(options))
    if options.json:
        print_line(encode_json(found))
        return 0
    width = screen_width()
    paper = ComparisonPrinter(
        width=width,
        beside=width >= SIDE_BY_SIDE_WIDTH and not options.unified,
        lines_max=1_000_000 if options.full else MESSAGE_LINES_MAX,
    )
    for line in paper.format_comparison(found):
        print_line(line.rstrip(), styles=is_color_output())
    return 0


async def _read_comparison(options: argparse.Namespace) -> Comparison:
    async with use_log(options.store) as store:
        return await compare_sessions(store, options.a, options.b, tenant=tenant_of(options))


class ComparisonPrinter:
    def __init__(self, *, width: int, beside: bool, lines_max: int) -> None:
        self._width, self._side_by_side, self._lines_max = width, beside, lines_max
        self._colour = is_color_output()
        self._column_width = (width - 3) // 2

    def format_comparison(self, found: Comparison) -> Iterator[str]:
        a, b = found.a, found.b
        yield from self._format_headings(self._bold(a.session), self._bold(b.session), a.session, b.session)
        yield self._dim(_describe_shared(found))
        for name, one, other in found.settings:
            yield from self._format_setting(name, one, other)
        if found.pairs:
            yield ""
        for pair in found.pairs:
            yield from self._format_pair(pair)
        yield ""
        yield from self._format_totals(a, b)

    def _format_headings(self, one: str, other: str, bare_one: str, bare_other: str) -> Iterator[str]:
        """Two short texts, side by side or marked."""
        if self._side_by_side:
            yield f"{one}{' ' * max(0, self._column_width - len(bare_one))}   {other}"
        else:
            yield f"- {one}"
            yield f"+ {other}"

    def _format_setting(self, name: str, a: str, b: str) -> Iterator[str]:
        if "\n" in a or "\n" in b or len(a) + len(b) > self._width - len(name) - 8:
            yield f"{name}:"
            lines = difflib.unified_diff(a.splitlines(), b.splitlines(), lineterm="", n=1)
            for line in [*lines][2:]:
                yield self._color_by_mark(f"  {fit_line(line, self._width - 2)}", line[:1])
        else:
            yield f"{name}: {escape_text(a) or '(none)'} → {escape_text(b) or '(none)'}"

    def _format_pair(self, pair: Pair) -> Iterator[str]:
        if pair.kind == "same":
            message = pair.a or pair.b
            assert message is not None
            yield self._dim(
                "  "
                + fit_line(f"{_message_heading(message)}  {format_parts(message.parts)}", self._width - 2)
            )
        elif self._side_by_side:
            yield from self._format_columns(pair)
        else:
            for mark, message in (("-", pair.a), ("+", pair.b)):
                if message is not None:
                    for line in self._format_message(message, self._width - 2):
                        yield self._color_by_mark(f"{mark} {line}", mark)

    def _format_columns(self, pair: Pair) -> Iterator[str]:
        left = self._format_message(pair.a, self._column_width) if pair.a is not None else []
        right = self._format_message(pair.b, self._column_width) if pair.b is not None else []
        for at in range(max(len(left), len(right))):
            one = left[at] if at < len(left) else ""
            other = right[at] if at < len(right) else ""
            mark = PAIR_MARKS[pair.kind] if at == 0 else " "
            first = self._color_by_mark(pad_text(one, self._column_width), "-")
            yield f"{first} {mark} {self._color_by_mark(other, '+')}"

    def _format_message(self, message: Message, width: int) -> list[str]:
        body = [
            line for words in _part_texts(message) for line in wrap_text(words, width - 2, self._lines_max)
        ]
        if len(body) > self._lines_max:
            more = len(body) - self._lines_max + 1
            body = [*body[: self._lines_max - 1], f"… {more} more lines; --full shows them"]
        return [fit_line(_message_heading(message), width), *(f"  {line}" for line in body)]

    def _format_totals(self, a: ComparedSession, b: ComparedSession) -> Iterator[str]:
        rows = [
            ("after the common part", "", ""),
            ("  ended", a.end, b.end),
            ("  messages", f"{a.messages} total", f"{b.messages} total"),
            ("  calls", _format_calls(a), _format_calls(b)),
            ("  steps", f"{a.steps}", f"{b.steps}"),
            ("  tokens", format_usage(a.usage), format_usage(b.usage)),
            ("  cost", _format_usd(a), _format_usd(b)),
            ("  time", format_duration(a.seconds), format_duration(b.seconds)),
        ]
        names = max(len(name) for name, _, _ in rows) + 2
        half = (self._width - names - 2) // 2
        for name, one, other in rows:
            if self._side_by_side or max(len(one), len(other)) <= half:
                yield f"{pad_text(name, names)}{pad_text(fit_line(one, half), half)}  {fit_line(other, half)}"
            else:
                yield self._color_by_mark(
                    f"{pad_text(name, names)}- {fit_line(one, self._width - names - 2)}", "-"
                )
                yield self._color_by_mark(f"{' ' * names}+ {fit_line(other, self._width - names - 2)}", "+")

    def _color_by_mark(self, line: str, mark: str) -> str:
        style = {"-": "red", "+": "green"}.get(mark)
        return apply_style(line, style, self._colour) if style else line

    def _bold(self, words: str) -> str:
        return apply_style(words, "bold", self._colour)

    def _dim(self, words: str) -> str:
        return apply_style(words, "dim", self._colour)


def _describe_shared(found: Comparison) -> str:
    if not found.messages:
        return "no common records" if not found.records else "different from the first message on"
    last = f"m{found.messages}"
    if found.records:
        end = "" if found.pairs else ", and to the end"
        return f"{format_count(found.records, 'record')} shared; equal up to {last}{end}"
    return f"no shared records; equal messages up to {last}"


def _message_heading(message: Message) -> str:
    who = {"user": "you", "tool": "tools"}.get(message.role, message.role)
    model = f" · {message.origin.model}" if message.origin is not None else ""
    return f"{message.id} {who}{model}"


def _part_texts(message: Message) -> Sequence[str]:
    """The parts of a message, each on its own line."""
    return [words for part in message.parts if (words := format_parts((part,)))]


def _format_calls(side: ComparedSession) -> str:
    return ", ".join(f"{count} {name}" if count > 1 else name for name, count in side.calls) or "none"


def _format_usd(side: ComparedSession) -> str:
    return format_dollars(None if side.usd is None else float(side.usd))
