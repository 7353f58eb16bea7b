"""A JSON array that arrives over time, from bytes in any slices.

Some servers stream one long array of objects instead of events.  The reader hands out each object
when its last brace has arrived, as the reader of server-sent events hands out events, and knows
whether the array was closed.  It looks at quotes, escapes and brackets only, at each byte once, and
refuses to know what is inside an element; anything between the elements is passed over.
"""

import re

from bridle.values.errors import Failure, ProviderError

ELEMENT_BYTES_MAX = 64 * 1024 * 1024
"""As for one event of a stream: nothing real comes near it."""

_STRING_TOKEN = re.compile(rb'["\\]')
_STRUCTURE_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|(["\[\]{}])', re.DOTALL)
"""Strings that are complete are passed over at one go; one that is not has its first quote found."""
_OPENING_BRACKETS, _CLOSING_BRACKETS = b"[{", b"]}"


class JsonArrayReader:
    def __init__(self) -> None:
        self._held: list[bytes] = []
        self._held_size = 0
        self._depth = 0
        self._in_string = self._escaped = False
        self.closed = False
        """Whether the bracket that ends the array has arrived."""

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """The elements these bytes completed, in order, each without a name."""
        elements: list[tuple[bytes, bytes]] = []
        at, start = 0, 0
        if self._escaped and data:
            at, self._escaped = 1, False
        while not self.closed:
            found = (_STRING_TOKEN if self._in_string else _STRUCTURE_TOKEN).search(data, at)
            if found is None:
                break
            at = found.end()
            mark = found.group() if self._in_string else found[1]
            if mark is None:
                continue
            if mark == b"\\":
                self._escaped = at == len(data)
                at += 1
            elif mark == b'"':
                self._in_string = not self._in_string
            elif mark in _OPENING_BRACKETS:
                self._depth += 1
                if self._depth == 2:
                    start = at - 1
            elif mark in _CLOSING_BRACKETS:
                self._depth -= 1
                self.closed = self._depth <= 0
                if self._depth == 1:
                    elements.append((b"", b"".join((*self._held, data[start:at]))))
                    self._held, self._held_size = [], 0
        if self._depth >= 2:
            self._hold_back(data[start:])
        return elements

    def close(self) -> list[tuple[bytes, bytes]]:
        """Nothing: an element without its end is no element."""
        return []

    def _hold_back(self, data: bytes) -> None:
        self._held.append(data)
        self._held_size += len(data)
        if self._held_size > ELEMENT_BYTES_MAX:
            raise ProviderError(
                Failure(
                    kind="garbled",
                    message=f"the provider sent an element of more than {ELEMENT_BYTES_MAX} bytes;"
                    " nothing it says is that long, so the stream is not what it claims to be",
                )
            )
