"""Server-sent events, from bytes in any slices.

The reader takes whatever the network delivers and returns the events that are complete.  It works
on bytes: a line ends at LF, CR or CRLF wherever the slices fall, so a slice may end inside a
character, inside a line ending or between two of them.  What is not complete is held in the slices
it came in and joined once, when the blank line that ends it arrives; no byte is looked at again and
again, and no event may grow beyond `EVENT_BYTES_MAX`.

It refuses to know what events mean: no sentinels, no names with a meaning.  `id:`, `retry:` and
comments are skipped, and so is an event without data.  Only where an object stands bare among the
events is it handed on as one: servers that fail halfway put their error there, outside of any event.

This is the hottest code of a streaming run, paid for every token.  Nearly every event is a name
and one line of data, so that shape is recognised as a whole and only others are read by lines.
"""

import re

from bridle.values.errors import Failure, ProviderError

EVENT_BYTES_MAX = 64 * 1024 * 1024
"""Twice the largest request a provider takes: real events carry whole files, but never this much."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_BLOCKS = re.compile(rb"(?:event: ([^\n]*)\n)?data: ([^\n]*)\n\n|((?:[^\n]+\n)*)\n")
"""Everything up to a blank line: a name and one line of data, or lines of any other kind."""

SseEvent = tuple[bytes, bytes]
"""The event's name (empty when it has none) and its data."""


class SseReader:
    __slots__ = ("_after_cr", "_held", "_held_size", "_untouched")

    def __init__(self) -> None:
        self._held: list[bytes] = []
        self._held_size = 0
        self._after_cr = False
        self._untouched = True

    def feed(self, data: bytes) -> list[SseEvent]:
        """The events these bytes completed, in order."""
        if self._after_cr or b"\r" in data:
            data = self._normalise_newlines(data)
        if b"\n\n" not in data and not self._completes_blank_line(data):
            self._hold_back(data)
            return []
        if self._held:
            data = b"".join((*self._held, data))
        end = data.rfind(b"\n\n") + 2
        self._held, self._held_size = [], 0
        if rest := data[end:]:
            self._hold_back(rest)
        start = 0
        if self._untouched:
            self._untouched = False
            start = len(_BYTE_ORDER_MARK) if data.startswith(_BYTE_ORDER_MARK) else 0
        blocks = _BLOCKS.findall(data, start, end)
        if len(data) > EVENT_BYTES_MAX and max(sum(map(len, block)) for block in blocks) > EVENT_BYTES_MAX:
            raise _event_too_large()
        return [
            event for name, said, other in blocks if (event := (name, said) if said else _parse_block(other))
        ]

    def close(self) -> list[SseEvent]:
        """The last event, when the sender ended without the blank line that should close it."""
        return self.feed(b"\n\n")

    def _completes_blank_line(self, data: bytes) -> bool:
        """Whether a blank line lies just where two slices meet."""
        return bool(self._held) and data.startswith(b"\n") and self._held[-1].endswith(b"\n")

    def _hold_back(self, data: bytes) -> None:
        if data:
            self._held.append(data)
            self._held_size += len(data)
            if self._held_size > EVENT_BYTES_MAX:
                raise _event_too_large()

    def _normalise_newlines(self, data: bytes) -> bytes:
        """CR and CRLF as LF.  A CR that ends a slice ends its line; an LF right after it says nothing."""
        if self._after_cr and data.startswith(b"\n"):
            data = data[1:]
            self._after_cr = False
        if data:
            self._after_cr = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _parse_block(block: bytes) -> SseEvent | None:
    name, data = b"", []
    for line in block.split(b"\n"):
        field, _, value = line.partition(b":")
        if field == b"data":
            data.append(value.removeprefix(b" "))
        elif field == b"event":
            name = value.removeprefix(b" ")
    said = b"\n".join(data) or (block if block.lstrip().startswith(b"{") else b"")
    return (name, said) if said else None


def _event_too_large() -> ProviderError:
    return ProviderError(
        Failure(
            kind="garbled",
            message=f"the provider sent an event of more than {EVENT_BYTES_MAX} bytes;"
            " nothing it says is that long, so the stream is not what it claims to be",
        )
    )
