"""Filters the texts inside JSON that a model writes, as they read after decoding.

A structured answer may spell a character as an escape (`ann\\u0040example.org`), and the letter of an escape is no
letter of the text (`\\nann@example.org`). So every string is decoded, filtered alone, and encoded again. Text
outside strings, such as prose before the JSON, is filtered as it is.
"""

import json
import re
from collections.abc import Callable

from .text_filter import PatternFilter, TextFilter

_ESCAPE = r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\."
_STRING_TOKEN = re.compile(rf'{_ESCAPE}|[^"\\]+|"', re.DOTALL)
_OPEN_ESCAPE = re.compile(
    r"\\(?:u[0-9a-fA-F]{0,3}|u[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u[0-9a-fA-F]{0,3})?)?)?\Z"
)
_SURROGATE = re.compile("[\ud800-\udfff]")


class JsonTextFilter:
    """Applies a text filter to each string of a JSON text that arrives in pieces."""

    def __init__(self, make_filter: Callable[[], TextFilter | None], before: str = "") -> None:
        """`before` is the text of this JSON that was filtered earlier."""
        self._make_filter, self._filter = make_filter, make_filter() or PatternFilter(())
        self._is_string = False
        self._escape = ""
        """Beginning of an escape, to be continued by the next piece."""
        for token in re.findall(r'\\.|"', before, re.DOTALL):
            if not self._is_string or len(token) == 1:
                self._is_string ^= token.endswith('"')

    def feed(self, text: str) -> str:
        text, self._escape = self._escape + text, ""
        pieces, at = list[str](), 0
        while at < len(text):
            if self._is_string:
                at = self._feed_string(text, at, pieces)
            else:
                quote = text.find('"', at)
                pieces.append(self._filter.feed(text[at : quote if quote >= 0 else None]))
                at = self._pass_quote(quote, pieces) if quote >= 0 else len(text)
        return "".join(pieces)

    def finish(self) -> str:
        rest, self._escape = self._escape, ""
        final = self._filter.feed(rest) + self._filter.finish()
        return _encode(final) if self._is_string else final

    def _feed_string(self, text: str, at: int, pieces: list[str]) -> int:
        """Filter the string from this place on; returns the place after what was read."""
        if text[at] == '"':
            return self._pass_quote(at, pieces)
        if opened := _OPEN_ESCAPE.match(text, at):
            self._escape = opened[0]
            return len(text)
        token = _STRING_TOKEN.match(text, at)
        assert token is not None
        pieces.append(_encode(self._filter.feed(_decode(token[0]))))
        return token.end()

    def _pass_quote(self, at: int, pieces: list[str]) -> int:
        final = self._filter.finish()
        pieces += (_encode(final) if self._is_string else final, '"')
        self._filter, self._is_string = self._make_filter() or PatternFilter(()), not self._is_string
        return at + 1


def _decode(token: str) -> str:
    try:
        # guard: filter-decodes-escapes
        return str(json.loads(f'"{token}"')) if token.startswith("\\") else token
    except ValueError:
        return token


def _encode(text: str) -> str:
    encoded = json.dumps(text, ensure_ascii=False)[1:-1]
    return _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", encoded)
