"""Reads server-sent events from bytes in chunks of any size.

The reader takes the chunks of the network and returns the complete events. It works on bytes: a line ends at
LF, CR or CRLF wherever the chunks are split, so a chunk may end inside a character, inside a line ending or
between two of them. Incomplete data is held in the chunks it arrived in and joined once, when the blank line
that ends it arrives; no byte is scanned repeatedly, and no event may exceed `EVENT_BYTES_MAX`.

The reader does not interpret events: no sentinels, no special names. `id:`, `retry:` and comments are
skipped, and so is an event without data. A bare JSON object between events is returned as an event: servers
that fail halfway write their error there.

This is the hottest code of a streaming run, executed for every token. Nearly every event is one line of data,
with or without a name, like the events around it; so events of that form are split together, others line by line.
"""

from bridle.values.errors import Failure, ProviderError

EVENT_BYTES_MAX = 64 * 1024 * 1024
"""Twice the largest request a provider accepts: real events carry whole files, but never this much."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_CR, _LF = b"\r\n"
"""Integers: searching bytes for bytes with `in` raises and clears an exception inside CPython."""

SseEvent = tuple[bytes, bytes]
"""The event's name (empty if it has none) and its data."""


class SseReader:
    __slots__ = ("_after_cr", "_held", "_held_size", "_untouched")

    def __init__(self) -> None:
        self._held: list[bytes] = []
        self._held_size = 0
        self._after_cr = False
        self._untouched = True

    def feed(self, data: bytes) -> list[SseEvent]:
        """Return the events completed by these bytes, in order."""
        if self._after_cr or _CR in data:
            data = self._normalise_newlines(data)
        if self._held:
            if data.find(b"\n\n") < 0 and not self._completes_blank_line(data):
                self._hold_back(data)
                return []
            data = b"".join((*self._held, data))
            self._held, self._held_size = [], 0
        blank_line = data.rfind(b"\n\n")
        if blank_line < 0:
            self._hold_back(data)
            return []
        start, end = 0, blank_line + len(b"\n\n")
        if end < len(data):
            self._hold_back(data[end:])
        if self._untouched:
            self._untouched = False
            start = len(_BYTE_ORDER_MARK) if data.startswith(_BYTE_ORDER_MARK) else 0
        if len(data) <= EVENT_BYTES_MAX and (events := _split_uniform_events(data[start:end])):
            return events
        blocks = data[start:end].split(b"\n\n")
        if len(data) > EVENT_BYTES_MAX and max(map(len, blocks)) > EVENT_BYTES_MAX:
            raise _event_too_large()
        return [event for block in blocks if (event := _parse_block(block.lstrip(b"\n") + b"\n"))]

    def close(self) -> list[SseEvent]:
        """Return the last event if the stream ended without the final blank line."""
        return self.feed(b"\n\n") if self._held else []

    def _completes_blank_line(self, data: bytes) -> bool:
        """Return True if a blank line is formed where two chunks meet."""
        return data.startswith(b"\n") and self._held[-1].endswith(b"\n")

    def _hold_back(self, data: bytes) -> None:
        if data:
            self._held.append(data)
            self._held_size += len(data)
            if self._held_size > EVENT_BYTES_MAX:
                raise _event_too_large()

    def _normalise_newlines(self, data: bytes) -> bytes:
        """Convert CR and CRLF to LF, also if a CRLF is split between two chunks."""
        if self._after_cr and data.startswith(b"\n"):
            data = data[1:]
            self._after_cr = False
        if data:
            self._after_cr = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _split_uniform_events(data: bytes) -> list[SseEvent] | None:
    """Return the events if each is one line of data, and all have a name or none has; None otherwise."""
    if data.startswith(b"data: "):
        texts = data[6:-2].split(b"\n\ndata: ")
        events = [(b"", text) for text in texts if text and _LF not in text]
        return events if len(events) == len(texts) else None
    if not data.startswith(b"event: "):
        return None
    events = []
    for block in data[7:-2].split(b"\n\nevent: "):
        name, _, text = block.partition(b"\ndata: ")
        if not text or _LF in text or _LF in name:
            return None
        events.append((name, text))
    return events


def _parse_block(block: bytes) -> SseEvent | None:
    name, data = b"", []
    for line in block.split(b"\n"):
        field, _, value = line.partition(b":")
        if field == b"data":
            data.append(value.removeprefix(b" "))
        elif field == b"event":
            name = value.removeprefix(b" ")
    text = b"\n".join(data) or (block if block.lstrip().startswith(b"{") else b"")
    return (name, text) if text else None


def _event_too_large() -> ProviderError:
    return ProviderError(
        Failure(
            kind="garbled",
            message=f"the provider sent an event of more than {EVENT_BYTES_MAX} bytes;"
            " no real event is that long, so this is probably not an event stream",
        )
    )
