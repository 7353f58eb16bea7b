"""Binary event streams as one large cloud frames them, from bytes in any slices.

Each message is length, length of headers, checksum, headers, payload, checksum.  The reader checks
lengths and checksums and returns, like the reader of server-sent events, a name and data for each
message that is complete.  The name is the type of the event, or of the exception when the sender
reports one.  It refuses to know what is in a payload.
"""

from struct import Struct
from zlib import crc32

from ..values.errors import Failure, ProviderError

MESSAGE_BYTES_MAX = 64 * 1024 * 1024
"""As for server-sent events: no real message comes near it."""

_PRELUDE = Struct(">III")
_CHECKSUM = Struct(">I")
_STRING_LENGTH = Struct(">H")
_STRING = 7
_SIZES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
"""Bytes of a header's value by its type; strings and byte arrays carry their length."""


class EventStreamReader:
    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """The messages these bytes completed, in order."""
        self._buffer += data
        events: list[tuple[bytes, bytes]] = []
        start = 0
        while len(self._buffer) - start >= _PRELUDE.size:
            total, headers, checksum = _PRELUDE.unpack_from(self._buffer, start)
            prelude = self._buffer[start : start + _PRELUDE.size - _CHECKSUM.size]
            if crc32(prelude) != checksum or not headers + 16 <= total <= MESSAGE_BYTES_MAX:
                raise _garbled("a message does not begin as one must")
            if len(self._buffer) - start < total:
                break
            events.append(_message(bytes(self._buffer[start : start + total]), headers))
            start += total
        del self._buffer[:start]
        return events

    def close(self) -> list[tuple[bytes, bytes]]:
        """Nothing: a message that is not complete is none."""
        return []


def _message(message: bytes, headers: int) -> tuple[bytes, bytes]:
    end = len(message) - _CHECKSUM.size
    if crc32(message[:end]) != _CHECKSUM.unpack_from(message, end)[0]:
        raise _garbled("a message does not match its checksum")
    payload_at = _PRELUDE.size + headers
    named = _headers(message[_PRELUDE.size : payload_at])
    name = named.get(b":exception-type") or named.get(b":error-code") or named.get(b":event-type", b"")
    return name, message[payload_at:end]


def _headers(data: bytes) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    at = 0
    while at < len(data):
        name = data[at + 1 : at + 1 + data[at]]
        at += 1 + len(name)
        kind = data[at] if at < len(data) else -1
        at += 1
        size = _SIZES.get(kind, -1)
        if size < 0:
            if kind not in (_STRING - 1, _STRING) or at + _STRING_LENGTH.size > len(data):
                raise _garbled("a message has a header of no known type")
            size = _STRING_LENGTH.unpack_from(data, at)[0]
            at += _STRING_LENGTH.size
        found[name] = data[at : at + size]
        at += size
    return found


def _garbled(what: str) -> ProviderError:
    return ProviderError(Failure(kind="garbled", message=f"the provider's event stream is damaged: {what}"))
