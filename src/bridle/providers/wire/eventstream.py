"""Binary event streams as one large cloud frames them, both ways.

Each message is length, length of headers, checksum, headers, payload, checksum.  The reader takes bytes
in any slices, checks lengths and checksums and hands out each message that is complete: its name, its
payload, and whether the sender reports trouble with it.  The name is the type of the event, or of the
exception, or the code of an error; an error says its words in a header, and they are handed out like a
payload.  `framed` writes what the reader reads.  Neither knows what is in a payload.
"""

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from bridle.values.errors import Failure, ProviderError

from .json import dumps

CONTENT_TYPE = "application/vnd.amazon.eventstream"
MESSAGE_BYTES_MAX = 64 * 1024 * 1024
"""As for server-sent events: no real message comes near it."""

_PRELUDE = Struct(">III")
_LENGTHS = Struct(">II")
_CHECKSUM = Struct(">I")
_STRING_LENGTH = Struct(">H")
_FRAME_OVERHEAD = _PRELUDE.size + _CHECKSUM.size
"""What a message has beside headers and payload."""
_STRING = 7
_SIZES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
"""Bytes of a header's value by its type; strings and byte arrays carry their length."""
_HEADER_CACHE_SIZE = 64
"""A stream has a handful of different headers and thousands of messages."""


class EventFrame(NamedTuple):
    name: bytes
    data: bytes
    failed: bool = False
    """Whether this is an exception or an error, and no event."""


class EventStreamReader:
    def __init__(self) -> None:
        self._buffer = bytearray()
        self._needed = _PRELUDE.size

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """Names and payloads of the messages these bytes completed, in order."""
        return [(frame.name, frame.data) for frame in self.frames(data)]

    def frames(self, data: bytes) -> list[EventFrame]:
        """The messages these bytes completed, in order."""
        self._buffer += data
        if len(self._buffer) < self._needed:
            return []
        whole = bytes(self._buffer)
        view = memoryview(whole)
        frames: list[EventFrame] = []
        start, end = 0, len(whole)
        self._needed = _PRELUDE.size
        while end - start >= _PRELUDE.size:
            total, headers, checksum = _PRELUDE.unpack_from(whole, start)
            prelude = view[start : start + _LENGTHS.size]
            if crc32(prelude) != checksum or not headers + _FRAME_OVERHEAD <= total <= MESSAGE_BYTES_MAX:
                raise _garbled_error("a message does not begin as one must")
            if end - start < total:
                self._needed = total
                break
            checked = start + total - _CHECKSUM.size
            if crc32(view[start:checked]) != _CHECKSUM.unpack_from(whole, checked)[0]:
                raise _garbled_error("a message does not match its checksum")
            payload_at = start + _PRELUDE.size + headers
            name, failed, words = _classify_headers(whole[start + _PRELUDE.size : payload_at])
            payload = whole[payload_at:checked]
            frames.append(EventFrame(name, payload or words, failed))
            start += total
        del self._buffer[:start]
        return frames

    def close(self) -> list[tuple[bytes, bytes]]:
        """Nothing: a message that is not complete is none."""
        return []


def encode_frame(headers: Sequence[tuple[str, str]], payload: bytes) -> bytes:
    """One message, its headers as strings in the order given."""
    named = b"".join(_encode_header(name.encode(), value.encode()) for name, value in headers)
    lengths = _LENGTHS.pack(_FRAME_OVERHEAD + len(named) + len(payload), len(named))
    message = b"".join((lengths, _CHECKSUM.pack(crc32(lengths)), named, payload))
    return message + _CHECKSUM.pack(crc32(message))


def encode_event(name: str, payload: bytes) -> bytes:
    """An event with a JSON payload, under the headers such events have."""
    kind = ((":event-type", name), (":content-type", "application/json"), (":message-type", "event"))
    return encode_frame(kind, payload)


def _encode_header(name: bytes, value: bytes) -> bytes:
    return b"%c%b%c%b%b" % (len(name), name, _STRING, _STRING_LENGTH.pack(len(value)), value)


@lru_cache(maxsize=_HEADER_CACHE_SIZE)
def _classify_headers(headers: bytes) -> tuple[bytes, bool, bytes]:
    """The name of a message, whether it reports trouble, and what stands for a payload it may not have."""
    named = _parse_headers(headers)
    trouble = named.get(b":exception-type") or named.get(b":error-code")
    failed = bool(trouble) or named.get(b":message-type") in (b"exception", b"error")
    said = named.get(b":error-message")
    words = dumps({"message": said.decode("utf-8", "replace")}) if said else b""
    return trouble or named.get(b":event-type", b""), failed, words


def _parse_headers(data: bytes) -> dict[bytes, bytes]:
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
                raise _garbled_error("a message has a header of no known type")
            size = _STRING_LENGTH.unpack_from(data, at)[0]
            at += _STRING_LENGTH.size
        found[name] = data[at : at + size]
        at += size
    return found


def _garbled_error(what: str) -> ProviderError:
    return ProviderError(Failure(kind="garbled", message=f"the provider's event stream is damaged: {what}"))
