"""What a program wrote, kept within a bound: its beginning and its end.

A program may write more than there is memory for.  The middle is what goes, because the
beginning says what was going on and the end how it came out; how much is missing is said
where it is missing.  No character is cut in two.
"""

CONTINUATION_MASK = 0b1100_0000
CONTINUATION_BITS = 0b1000_0000
"""The first two bits of every byte of a character in UTF-8 but its first."""
CHARACTER_BYTES_MAX = 4


class CapturedOutput:
    def __init__(self, bytes_max: int) -> None:
        self._head_max = bytes_max // 2
        self._tail_max = bytes_max - self._head_max
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0
        """All the bytes that came."""

    def take(self, data: bytes) -> None:
        self.total += len(data)
        room = self._head_max - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._tail_max:  # not at every byte too many: moving the rest has its price
            del self._tail[: -self._tail_max]

    def text(self) -> str:
        tail = bytes(self._tail[-self._tail_max :])
        missing = self.total - len(self._head) - len(tail)
        if not missing:
            return (bytes(self._head) + tail).decode(errors="replace")
        first, last = _trim_broken_end(bytes(self._head)), _trim_broken_start(tail)
        missing = self.total - len(first) - len(last)
        return (
            f"{first.decode(errors='replace')}\n[… {missing:,} bytes left out …]\n"
            f"{last.decode(errors='replace')}"
        )


def _trim_broken_end(data: bytes) -> bytes:
    """Without a character at the end whose rest is missing."""
    for back in range(1, min(CHARACTER_BYTES_MAX, len(data)) + 1):
        byte = data[-back]
        if byte & CONTINUATION_MASK != CONTINUATION_BITS:
            length = 1 if byte < 0b1000_0000 else 2 if byte < 0b1110_0000 else 3 if byte < 0b1111_0000 else 4
            return data[:-back] if length > back else data
    return data


def _trim_broken_start(data: bytes) -> bytes:
    """Without the rest of a character whose start is missing."""
    for start in range(min(CHARACTER_BYTES_MAX, len(data))):
        if data[start] & CONTINUATION_MASK != CONTINUATION_BITS:
            return data[start:]
    return data
