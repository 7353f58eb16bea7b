"""Set two sessions beside each other: what they share, and what each said, did and cost after that.

Messages that say the same are told once.  On a screen of 100 columns or more the two stand side by side, on a
narrower one (or with --unified) one below the other, marked `-` for A and `+` for B.
"""

import argparse
import asyncio
import difflib
from collections.abc import Iterator, Sequence

from ..run.lineage import compare_sessions
from ..values.lineage import Comparison, Pair, Side
from ..values.message import Message
from ..values.text import escape_text
from ..watchers.console import counts, dollars, duration, plural
from .columns import cut, in_colour, padded, screen_width, styled, wrapped
from .log import as_json, told
from .places import add_across_option, add_store_option, add_tenant_option, open_log, tenant_of
from .printing import say

SIDE_BY_SIDE = 100
"""Columns from which two messages have room beside each other."""
LINES_MAX = 12
"""Of one message; --full shows all of them."""
MARKS = {"same": " ", "changed": "|", "only_a": "<", "only_b": ">"}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", metavar="A", help="a session")
    parser.add_argument("b", metavar="B", help="another one, perhaps forked from it")
    parser.add_argument("--unified", action="store_true", help="one below the other, on any screen")
    parser.add_argument("--full", action="store_true", help=f"whole messages, not {LINES_MAX} lines of each")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_tenant_option(parser)
    add_across_option(parser)
    add_store_option(parser)


def execute(options: argparse.Namespace) -> int:
    found = asyncio.run(_compare(options))
    if options.json:
        say(as_json(found))
        return 0
    width = screen_width()
    paper = Paper(
        width=width,
        beside=width >= SIDE_BY_SIDE and not options.unified,
        lines_max=1_000_000 if options.full else LINES_MAX,
    )
    for line in paper.written(found):
        say(line.rstrip(), styles=in_colour())
    return 0


async def _compare(options: argparse.Namespace) -> Comparison:
    store = open_log(options.store, to_read=True)
    try:
        return await compare_sessions(store, options.a, options.b, tenant=tenant_of(options))
    finally:
        await store.close()


class Paper:
    def __init__(self, *, width: int, beside: bool, lines_max: int) -> None:
        self._width, self._beside, self._lines_max = width, beside, lines_max
        self._colour = in_colour()
        self._half = (width - 3) // 2

    def written(self, found: Comparison) -> Iterator[str]:
        a, b = found.a, found.b
        yield from self._two(self._bold(a.session), self._bold(b.session), a.session, b.session)
        yield self._dim(_shared(found))
        for name, one, other in found.settings:
            yield from self._setting(name, one, other)
        if found.pairs:
            yield ""
        for pair in found.pairs:
            yield from self._pair(pair)
        yield ""
        yield from self._sums(a, b)

    def _two(self, one: str, other: str, bare_one: str, bare_other: str) -> Iterator[str]:
        """Two short things: beside each other, or marked."""
        if self._beside:
            yield f"{one}{' ' * max(0, self._half - len(bare_one))}   {other}"
        else:
            yield f"- {one}"
            yield f"+ {other}"

    def _setting(self, name: str, a: str, b: str) -> Iterator[str]:
        if "\n" in a or "\n" in b or len(a) + len(b) > self._width - len(name) - 8:
            yield f"{name}:"
            lines = difflib.unified_diff(a.splitlines(), b.splitlines(), lineterm="", n=1)
            for line in [*lines][2:]:
                yield self._marked(f"  {cut(line, self._width - 2)}", line[:1])
        else:
            yield f"{name}: {escape_text(a) or 'not there'} → {escape_text(b) or 'not there'}"

    def _pair(self, pair: Pair) -> Iterator[str]:
        if pair.how == "same":
            message = pair.a or pair.b
            assert message is not None
            yield self._dim("  " + cut(f"{_head(message)}  {told(message.parts)}", self._width - 2))
        elif self._beside:
            yield from self._rows(pair)
        else:
            for mark, message in (("-", pair.a), ("+", pair.b)):
                if message is not None:
                    for line in self._message(message, self._width - 2):
                        yield self._marked(f"{mark} {line}", mark)

    def _rows(self, pair: Pair) -> Iterator[str]:
        left = self._message(pair.a, self._half) if pair.a is not None else []
        right = self._message(pair.b, self._half) if pair.b is not None else []
        for at in range(max(len(left), len(right))):
            one = left[at] if at < len(left) else ""
            other = right[at] if at < len(right) else ""
            mark = MARKS[pair.how] if at == 0 else " "
            first = self._marked(padded(one, self._half), "-")
            yield f"{first} {mark} {self._marked(other, '+')}"

    def _message(self, message: Message, width: int) -> list[str]:
        body = [line for words in _words(message) for line in wrapped(words, width - 2, self._lines_max)]
        if len(body) > self._lines_max:
            more = len(body) - self._lines_max + 1
            body = [*body[: self._lines_max - 1], f"… {more} more lines; --full shows them"]
        return [cut(_head(message), width), *(f"  {line}" for line in body)]

    def _sums(self, a: Side, b: Side) -> Iterator[str]:
        rows = [
            ("since they parted", "", ""),
            ("  ended", a.ended, b.ended),
            ("  messages", f"{a.messages} in all", f"{b.messages} in all"),
            ("  calls", _calls(a), _calls(b)),
            ("  steps", f"{a.steps}", f"{b.steps}"),
            ("  tokens", counts(a.usage), counts(b.usage)),
            ("  cost", _usd(a), _usd(b)),
            ("  time", duration(a.seconds), duration(b.seconds)),
        ]
        names = max(len(name) for name, _, _ in rows) + 2
        half = (self._width - names - 2) // 2
        for name, one, other in rows:
            if self._beside or max(len(one), len(other)) <= half:
                yield f"{padded(name, names)}{padded(cut(one, half), half)}  {cut(other, half)}"
            else:
                yield self._marked(f"{padded(name, names)}- {cut(one, self._width - names - 2)}", "-")
                yield self._marked(f"{' ' * names}+ {cut(other, self._width - names - 2)}", "+")

    def _marked(self, line: str, mark: str) -> str:
        style = {"-": "red", "+": "green"}.get(mark)
        return styled(line, style, self._colour) if style else line

    def _bold(self, words: str) -> str:
        return styled(words, "bold", self._colour)

    def _dim(self, words: str) -> str:
        return styled(words, "dim", self._colour)


def _shared(found: Comparison) -> str:
    if not found.messages:
        return "they have nothing in common" if not found.records else "they part before the first message"
    last = f"m{found.messages}"
    if found.records:
        end = "" if found.pairs else ", and to the end"
        return f"they share {plural(found.records, 'record')}; alike up to {last}{end}"
    return f"they share no records, but say the same up to {last}"


def _head(message: Message) -> str:
    who = {"user": "you", "tool": "tools"}.get(message.role, message.role)
    model = f" · {message.origin.model}" if message.origin is not None else ""
    return f"{message.id} {who}{model}"


def _words(message: Message) -> Sequence[str]:
    """A message part by part, each beginning a line of its own."""
    return [words for part in message.parts if (words := told((part,)))]


def _calls(side: Side) -> str:
    return ", ".join(f"{count} {name}" if count > 1 else name for name, count in side.calls) or "none"


def _usd(side: Side) -> str:
    return dollars(None if side.usd is None else float(side.usd))
