"""Reads a JSON array that arrives over time, from bytes in chunks of any size.

Some servers stream one long array of objects instead of events. The reader returns each object when its
closing brace has arrived, as the SSE reader returns events, and knows if the array was closed. It scans
quotes, escapes and brackets only, each byte once, and does not parse the elements; anything between them is
skipped.
"""

import re

from bridle.values.errors import Failure, ProviderError

ELEMENT_BYTES_MAX = 64 * 1024 * 1024
"""The same limit as for one event of a stream; real elements are far smaller."""

_STRING_TOKEN = re.compile(rb'["\\]')
_STRUCTURE_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|(["\[\]{}])', re.DOTALL)
"""Matches a complete string at once; of an incomplete one, only the opening quote."""
_OPENING_BRACKETS, _CLOSING_BRACKETS = b"[{", b"]}"


class JsonArrayReader:
    def __init__(self) -> None:
        self._held: list[bytes] = []
        self._held_size = 0
        self._depth = 0
        self._in_string = self._escaped = False
        self.closed = False
        """True if the closing bracket of the array has arrived."""

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """Return the elements completed by these bytes, in order, each without a name."""
        elements: list[tuple[bytes, bytes]] = []
        at, start = 0, 0
        if self._escaped and data:
            at, self._escaped = 1, False
        while not self.closed:
            found = (_STRING_TOKEN if self._in_string else _STRUCTURE_TOKEN).search(data, at)
            if found is None:
                break
            at = found.end()
            token = found.group() if self._in_string else found[1]
            if token is None:
                continue
            if token == b"\\":
                self._escaped = at == len(data)
                at += 1
            elif token == b'"':
                self._in_string = not self._in_string
            elif token in _OPENING_BRACKETS:
                self._depth += 1
                if self._depth == 2:
                    start = at - 1
            elif token in _CLOSING_BRACKETS:
                self._depth -= 1
                self.closed = self._depth <= 0
                if self._depth == 1:
                    elements.append((b"", b"".join((*self._held, data[start:at]))))
                    self._held, self._held_size = [], 0
        if self._depth >= 2:
            self._hold_back(data[start:])
        return elements

    def close(self) -> list[tuple[bytes, bytes]]:
        """Return nothing: an incomplete element is dropped."""
        return []

    def _hold_back(self, data: bytes) -> None:
        self._held.append(data)
        self._held_size += len(data)
        if self._held_size > ELEMENT_BYTES_MAX:
            raise ProviderError(
                Failure(
                    kind="garbled",
                    message=f"the provider sent an element of more than {ELEMENT_BYTES_MAX} bytes;"
                    " no real event is that long, so this is probably not an event stream",
                )
            )
