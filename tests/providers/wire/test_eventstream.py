"""Binary event streams: framed, checked, in any slices."""

from base64 import b64encode
from struct import pack
from zlib import crc32

import pytest

from bridle.providers import load_codec
from bridle.providers.wire.eventstream import EventFrame, EventStreamReader, encode_event
from bridle.providers.wire.eventstream import encode_frame as written
from bridle.values.errors import ProviderError
from bridle.values.model import Endpoint, Model
from bridle.values.request import Request

FRAMED = {"content-type": "application/vnd.amazon.eventstream"}


def make_frame(payload, **headers):
    named = b"".join(
        pack("B", len(name) + 1)
        + b":"
        + name.replace("_", "-").encode()
        + b"\x07"
        + pack(">H", len(value))
        + value
        for name, value in headers.items()
    )
    prelude = pack(">II", len(named) + len(payload) + 16, len(named))
    message = prelude + pack(">I", crc32(prelude)) + named + payload
    return message + pack(">I", crc32(message))


def read(body, size):
    reader = EventStreamReader()
    return [event for at in range(0, len(body), size) for event in reader.feed(body[at : at + size])]


def test_messages_in_any_slices():
    body = (
        make_frame(b"one", message_type=b"event", event_type=b"chunk")
        + make_frame(b"")
        + make_frame(b"{}", message_type=b"exception", exception_type=b"throttlingException")
    )
    expected = [(b"chunk", b"one"), (b"", b""), (b"throttlingException", b"{}")]
    for size in range(1, len(body) + 1):
        assert read(body, size) == expected


def test_headers_of_every_type_are_stepped_over():
    others = (
        b"\x01a\x00" + b"\x01b\x02x" + b"\x01c\x04xxxx" + b"\x01d\x06\x00\x02xx" + b"\x01e\x09" + b"x" * 16
    )
    name = b"\x0b:event-type\x07\x00\x02hi"
    prelude = pack(">II", len(others + name) + 16, len(others + name))
    message = prelude + pack(">I", crc32(prelude)) + others + name
    assert EventStreamReader().feed(message + pack(">I", crc32(message))) == [(b"hi", b"")]


@pytest.mark.parametrize("place", [0, 5, 9, 14, -1])
def test_a_damaged_message_is_noticed(place):
    body = bytearray(make_frame(b"payload", event_type=b"chunk"))
    body[place] ^= 0x55
    with pytest.raises(ProviderError) as damaged:
        EventStreamReader().feed(bytes(body))
    assert damaged.value.failure.kind == "garbled"


def test_a_header_of_no_known_type_is_noticed():
    with pytest.raises(ProviderError):
        read(_with_headers(b"\x01a\x63"), 1_000)


def _with_headers(headers):
    prelude = pack(">II", len(headers) + 16, len(headers))
    message = prelude + pack(">I", crc32(prelude)) + headers
    return message + pack(">I", crc32(message))


def chunk(event):
    return make_frame(b'{"bytes":"' + b64encode(event) + b'"}', message_type=b"event", event_type=b"chunk")


def test_the_events_inside_are_the_same_as_in_any_stream():
    asked = Request(model=Model(id="m", endpoint=Endpoint(name="here", family="anthropic")))
    body = (
        chunk(b'{"type":"message_start","message":{"id":"msg_1","usage":{}}}')
        + chunk(b'{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}')
        + chunk(b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hi"}}')
    )
    whole = load_codec("anthropic").new_decoder(asked, 200, FRAMED)
    assert [delta.text for delta in whole.feed(body)] == ["hi"]
    whole.feed(chunk(b'{"type":"message_stop"}'))
    assert whole.close().text == "hi"
    cut = load_codec("anthropic").new_decoder(asked, 200, FRAMED)
    cut.feed(body + b"\x00\x00")
    with pytest.raises(ProviderError) as ended:
        cut.close()
    assert ended.value.failure.kind == "cut"
    broken = load_codec("anthropic").new_decoder(asked, 200, FRAMED)
    slow = make_frame(
        b'{"message":"Too many tokens"}', message_type=b"exception", exception_type=b"throttlingException"
    )
    with pytest.raises(ProviderError) as ended:
        broken.feed(body + slow)
    assert ended.value.failure.kind == "rate_limited"
    assert ended.value.failure.message == "Too many tokens"


def test_what_is_written_is_what_another_writer_writes():
    headers = [(":event-type", "chunk"), (":message-type", "event")]
    assert written(headers, b"one") == make_frame(b"one", event_type=b"chunk", message_type=b"event")
    assert EventStreamReader().frames(encode_event("Tōkyō", b"{}")) == [EventFrame("Tōkyō".encode(), b"{}")]


def test_trouble_is_told_apart_from_events():
    body = (
        written([(":message-type", "event"), (":event-type", "oddException")], b"1")
        + written([(":message-type", "exception"), (":exception-type", "slow")], b"2")
        + written([(":message-type", "error"), (":error-code", "bad"), (":error-message", 'say "oh"')], b"")
        + written([(":message-type", "error")], b"")
    )
    assert EventStreamReader().frames(body) == [
        EventFrame(b"oddException", b"1"),
        EventFrame(b"slow", b"2", failed=True),
        EventFrame(b"bad", b'{"message":"say \\"oh\\""}', failed=True),
        EventFrame(b"", b"", failed=True),
    ]
