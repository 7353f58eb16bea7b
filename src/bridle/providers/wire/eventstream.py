"""Reads and writes the binary event streams of AWS.

Each message consists of length, length of headers, checksum, headers, payload, checksum. The reader takes
bytes in chunks of any size, checks lengths and checksums and returns each complete message: its name, its
payload, and a flag for errors. The name is the type of the event or of the exception, or an error code; the
text of an error comes in a header and is returned like a payload. `encode_frame` writes what the reader
reads. Payloads are not interpreted.
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
"""The same limit as for server-sent events; real messages are far smaller."""

_PRELUDE = Struct(">III")
_LENGTHS = Struct(">II")
_CHECKSUM = Struct(">I")
_STRING_LENGTH = Struct(">H")
_FRAME_OVERHEAD = _PRELUDE.size + _CHECKSUM.size
"""Bytes of a message besides headers and payload."""
_STRING = 7
_SIZES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
"""Size of a header's value by its type; strings and byte arrays carry their length."""
_HEADER_CACHE_SIZE = 64
"""A stream has a handful of different headers and thousands of messages."""


class EventFrame(NamedTuple):
    name: bytes
    data: bytes
    failed: bool = False
    """True if this is an exception or an error rather than an event."""


class EventStreamReader:
    def __init__(self) -> None:
        self._buffer = bytearray()
        self._needed = _PRELUDE.size

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """Return names and payloads of the messages completed by these bytes, in order."""
        return [(frame.name, frame.data) for frame in self.frames(data)]

    def frames(self, data: bytes) -> list[EventFrame]:
        """Return the messages completed by these bytes, in order."""
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
                raise _garbled_error("a message has an invalid prelude")
            if end - start < total:
                self._needed = total
                break
            checked = start + total - _CHECKSUM.size
            if crc32(view[start:checked]) != _CHECKSUM.unpack_from(whole, checked)[0]:
                raise _garbled_error("a message does not match its checksum")
            payload_at = start + _PRELUDE.size + headers
            name, failed, error_payload = _classify_headers(whole[start + _PRELUDE.size : payload_at])
            payload = whole[payload_at:checked]
            frames.append(EventFrame(name, payload or error_payload, failed))
            start += total
        del self._buffer[:start]
        return frames

    def close(self) -> list[tuple[bytes, bytes]]:
        """Return nothing: an incomplete message is dropped."""
        return []


def encode_frame(headers: Sequence[tuple[str, str]], payload: bytes) -> bytes:
    """Encode one message, its headers as strings in the order given."""
    named = b"".join(_encode_header(name.encode(), value.encode()) for name, value in headers)
    lengths = _LENGTHS.pack(_FRAME_OVERHEAD + len(named) + len(payload), len(named))
    message = b"".join((lengths, _CHECKSUM.pack(crc32(lengths)), named, payload))
    return message + _CHECKSUM.pack(crc32(message))


def encode_event(name: str, payload: bytes) -> bytes:
    """Encode an event with a JSON payload and the headers of such events."""
    kind = ((":event-type", name), (":content-type", "application/json"), (":message-type", "event"))
    return encode_frame(kind, payload)


def _encode_header(name: bytes, value: bytes) -> bytes:
    return b"%c%b%c%b%b" % (len(name), name, _STRING, _STRING_LENGTH.pack(len(value)), value)


@lru_cache(maxsize=_HEADER_CACHE_SIZE)
def _classify_headers(headers: bytes) -> tuple[bytes, bool, bytes]:
    """Return the name of a message, True if it is an error, and a payload made from its error header."""
    named = _parse_headers(headers)
    error_name = named.get(b":exception-type") or named.get(b":error-code")
    failed = bool(error_name) or named.get(b":message-type") in (b"exception", b"error")
    text = named.get(b":error-message")
    error_payload = dumps({"message": text.decode("utf-8", "replace")}) if text else b""
    return error_name or named.get(b":event-type", b""), failed, error_payload


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
                raise _garbled_error("a message has a header of unknown type")
            size = _STRING_LENGTH.unpack_from(data, at)[0]
            at += _STRING_LENGTH.size
        found[name] = data[at : at + size]
        at += size
    return found


def _garbled_error(problem: str) -> ProviderError:
    return ProviderError(
        Failure(kind="garbled", message=f"the provider's event stream is damaged: {problem}")
    )
