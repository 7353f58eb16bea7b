"""Filters of a model's text, applied before the text is shown, recorded or sent on.

A hook with a method `text_filter` makes one filter per reply. Text whose end could be the beginning of a match
is held back until the next piece arrives, so that nothing is shown that a later piece would have redacted.
"""

import functools
import re
from collections.abc import Callable, Sequence
from typing import Protocol

from bridle.values.base import Value
from bridle.values.message import Message, Text, ToolResult, ViewChange


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


class TextPattern(Value):
    """A kind of text to redact or to block."""

    name: str
    pattern: str
    """Regular expression of a match."""
    open_end: str
    """Regular expression of text at the end of a piece that could become a match."""
    check: Callable[[str], bool] | None = None
    """Further condition of a match."""


class PatternFilter:
    """Replaces every match by the name of its pattern, or raises `TextBlocked`."""

    def __init__(self, patterns: Sequence[TextPattern], *, block: bool = False) -> None:
        self._patterns, self._block, self._held = tuple(patterns), block, ""

    def feed(self, text: str) -> str:
        held = self._held + text
        end = min((_find_open_end(each, held) for each in self._patterns), default=len(held))
        # A match that reaches over the end is complete only with the text that follows.
        for each in self._patterns:
            for found in compile_pattern(each.pattern).finditer(held):
                if found.start() < end < found.end() or found.end() == len(held):
                    end = min(end, found.start())
        self._held = held[end:]
        return self.replace(held[:end])

    def finish(self) -> str:
        held, self._held = self._held, ""
        return self.replace(held)

    def replace(self, text: str) -> str:
        """The text with every match replaced."""
        for each in self._patterns:
            text = compile_pattern(each.pattern).sub(functools.partial(self._mark, each), text)
        return text

    def _mark(self, pattern: TextPattern, found: re.Match[str]) -> str:
        if pattern.check is not None and not pattern.check(found[0]):
            return found[0]
        if self._block:
            raise TextBlocked(f"the reply contains: {pattern.name}")
        return f"[{pattern.name}]"


def _find_open_end(pattern: TextPattern, text: str) -> int:
    found = compile_pattern(f"(?:{pattern.open_end})$").search(text)
    return found.start() if found else len(text)


def compile_pattern(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def edit_texts(messages: Sequence[Message], edit: Callable[[str], str]) -> tuple[ViewChange, ...]:
    """Edits for every text of the messages, tool results included, that `edit` changes."""
    edits = []
    for message in messages:
        for part_at, part in enumerate(message.parts):
            inner = part.parts if isinstance(part, ToolResult) else (part,)
            for inner_at, each in enumerate(inner):
                if isinstance(each, Text) and (new := edit(each.text)) != each.text:
                    at = inner_at if isinstance(part, ToolResult) else -1
                    edits.append(ViewChange(message=message.id, part=part_at, inner=at, text=new))
    return tuple(edits)
