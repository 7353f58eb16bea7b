"""Filters of a model's text, applied before the text is shown, recorded or sent on.

A hook with a method `text_filter` makes one filter per reply. Text whose end could be the beginning of a match
is held back until the next piece arrives, so that nothing is shown that a later piece would have redacted.
"""

import re
from collections.abc import Callable, Sequence
from typing import Protocol

from bridle.values.base import Value
from bridle.values.errors import MisuseError
from bridle.values.message import Message, Text, ToolResult, ViewChange

LOOKBEHIND_CHARACTERS = 64
"""Characters before a match that its pattern can look at."""
EMPTIED_TEXT = "[…]"
"""Text of a part whose whole text is redacted with that of another part; providers reject empty texts."""


class TextBlocked(Exception):
    """Raised by a text filter: the reply is abandoned and the run ends as `refused`."""


class TextFilter(Protocol):
    """Filters the text of one reply, piece by piece."""

    def feed(self, text: str) -> str:
        """The filtered text that is final; the rest is held back."""
        ...

    def finish(self) -> str:
        """The filtered text that was held back."""
        ...


class TextPattern(Value, kw_only=True, gc=True):
    """A kind of text to redact or to block."""

    name: str
    pattern: str
    """Regular expression of a match."""
    open_end: str
    """Regular expression of text at the end of a piece that could become a match."""
    check: Callable[[str], bool] | None = None
    """Further condition of a match."""

    def __post_init__(self) -> None:
        for field, given in (("pattern", self.pattern), ("open_end", self.open_end)):
            try:
                compile_pattern(given)
            except re.error as error:
                raise MisuseError(f"{field} of {self.name!r} is no regular expression: {error}") from None


class PatternFilter:
    """Replaces every match by the name of its pattern, or raises `TextBlocked`.

    The result does not depend on the pieces in which the text arrives: patterns are matched against the
    original text, from left to right, and a match counts once nothing that follows can change it. Among
    matches that begin at the same place the first pattern wins.
    """

    def __init__(self, patterns: Sequence[TextPattern], *, block: bool = False) -> None:
        self._patterns, self._block = tuple(patterns), block
        self._text, self._at = "", 0

    def feed(self, text: str) -> str:
        self._text += text
        end = min((_find_open_start(each, self._text, self._at) for each in self._patterns), default=None)
        return self._take(len(self._text) if end is None else end)

    def finish(self) -> str:
        final = self._take(len(self._text))
        self._text, self._at = "", 0
        return final

    def replace(self, text: str) -> str:
        """The text with every match replaced."""
        whole = PatternFilter(self._patterns, block=self._block)
        return whole.feed(text) + whole.finish()

    def _take(self, end: int) -> str:
        """The filtered text up to `end`, or up to the end of a match that begins before it."""
        text, at, pieces = self._text, self._at, list[str]()
        matches = [_find_match(each, text, at, end) for each in self._patterns]
        while found := [(match, place) for place, match in enumerate(matches) if match]:
            (start, stop), first = min(found, key=lambda each: (each[0][0], each[1]))
            name = self._patterns[first].name
            if self._block:
                raise TextBlocked(f"the reply contains: {name}")
            pieces += (text[at:start], f"[{name}]")
            at = stop
            for match, place in found:
                if match[0] < at:
                    matches[place] = _find_match(self._patterns[place], text, at, end)
        pieces.append(text[at:end])
        at = max(at, end)
        kept = max(at - LOOKBEHIND_CHARACTERS, 0)
        self._text, self._at = text[kept:], at - kept
        return "".join(pieces)


def _find_match(pattern: TextPattern, text: str, at: int, end: int) -> tuple[int, int] | None:
    """Start and end of the first match that passes the check of the pattern and begins before `end`."""
    expression = compile_pattern(pattern.pattern)
    while (found := expression.search(text, at)) and found.start() < end:
        if pattern.check is None:
            return found.span()
        # A number before or after the data may be part of the match: "2 4111 1111 1111 1111".
        for stop in range(found.end(), found.start(), -1):
            if text[stop - 1 : stop + 1].isalnum() and stop < found.end():
                continue
            shorter = expression.fullmatch(text, found.start(), stop)
            if shorter and pattern.check(shorter[0]):
                return shorter.span()
        at = found.start() + 1
    return None


def _find_open_start(pattern: TextPattern, text: str, at: int) -> int:
    """Start of the text at the end that could become a match, or another one, with the text that follows."""
    opened = compile_pattern(rf"(?:{pattern.open_end})\Z").search(text, at)
    start = opened.start() if opened else len(text)
    expression = compile_pattern(pattern.pattern)
    while (found := expression.search(text, at)) and found.start() < start:
        if found.end() == len(text):
            return found.start()
        at = found.start() + 1 if pattern.check else found.end()
    return start


def compile_pattern(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def edit_texts(messages: Sequence[Message], edit: Callable[[str], str]) -> tuple[ViewChange, ...]:
    """Edits for every text of the messages, tool results included, that `edit` changes."""
    return _edit_each(messages, lambda texts: [edit(text) for text in texts])


def edit_joined_texts(
    messages: Sequence[Message], make_filter: Callable[[], TextFilter]
) -> tuple[ViewChange, ...]:
    """Edits for the texts of the messages; those of a message or of a tool result are filtered as one text."""

    def edit(texts: list[str]) -> list[str]:
        joined = make_filter()
        filtered = [joined.feed(text) for text in texts]
        filtered[-1] += joined.finish()
        if "".join(filtered) == "".join(texts):
            return texts
        return [text or (EMPTIED_TEXT if old else "") for text, old in zip(filtered, texts, strict=True)]

    return _edit_each(messages, edit)


def _edit_each(messages: Sequence[Message], edit: Callable[[list[str]], list[str]]) -> tuple[ViewChange, ...]:
    """Edits by a function of all texts of a message, and of all texts of a tool result."""
    edits = []
    for message in messages:
        own = [(at, -1, part.text) for at, part in enumerate(message.parts) if isinstance(part, Text)]
        inner = [
            [(at, place, each.text) for place, each in enumerate(part.parts) if isinstance(each, Text)]
            for at, part in enumerate(message.parts)
            if isinstance(part, ToolResult)
        ]
        for places in filter(None, (own, *inner)):
            edited = edit([text for _, _, text in places])
            for (part_at, inner_at, old), new in zip(places, edited, strict=True):
                if new != old:
                    edits.append(ViewChange(message=message.id, part=part_at, inner=inner_at, text=new))
    return tuple(edits)
