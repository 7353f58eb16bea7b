"""Long bodies: every byte arrives once and in order, with its length announced, and nothing is copied."""

import asyncio
import tracemalloc

import pytest
from local_server import read, serving, whole

from bridle.transports.http import FIRST_PIECE_BYTES, PIECE_BYTES, UPLOAD_THRESHOLD_BYTES, BodyUpload

SIZES = (
    UPLOAD_THRESHOLD_BYTES - 1,
    UPLOAD_THRESHOLD_BYTES,
    FIRST_PIECE_BYTES + PIECE_BYTES,
    FIRST_PIECE_BYTES + 2 * PIECE_BYTES + 1,
)


def body_of(size):
    numbers = b"".join(b"%d," % number for number in range(size // 4))
    return (numbers + b"." * size)[:size]


@pytest.mark.parametrize("size", SIZES)
def test_a_body_arrives_as_it_was_given(size):
    body = body_of(size)
    with serving(whole) as server:
        status, _, answer = asyncio.run(read(server.url, body=body))
    assert (status, answer) == (200, b"hello")
    head, _, sent = server.requests[0].partition(b"\r\n\r\n")
    assert f"content-length: {size}" in head.decode().lower()
    assert b"chunked" not in head.lower()
    assert sent == body


class Wire:
    """Where a body is written to."""

    def __init__(self):
        self.pieces = []

    async def write(self, chunk):
        self.pieces.append(chunk)


@pytest.mark.parametrize("size", SIZES)
def test_pieces_are_windows_and_the_first_is_small(size):
    body, wire = body_of(size), Wire()
    tracemalloc.start()
    asyncio.run(BodyUpload(body).write_with_length(wire, size))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert b"".join(wire.pieces) == body
    assert len(wire.pieces[0]) == FIRST_PIECE_BYTES
    assert all(piece.obj is body for piece in wire.pieces)
    assert max(map(len, wire.pieces)) <= PIECE_BYTES
    assert size < 100_000 or peak < size / 2


def test_it_can_be_read_again():
    upload = BodyUpload(b"abc")
    assert upload.size == 3
    assert upload.decode() == "abc"
    assert asyncio.run(upload.as_bytes()) == b"abc"
