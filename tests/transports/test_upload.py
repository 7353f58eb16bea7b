"""Long bodies: every byte arrives once and in order, with its length announced, and nothing is copied."""

import asyncio
import tracemalloc
from typing import Any

import pytest

from bridle.transports.http1 import (
    FIRST_PIECE_BYTES,
    PIECE_BYTES,
    UPLOAD_THRESHOLD_BYTES,
    Http1Connection,
)
from tests.transports.local_server import answer_whole, read, start_server

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
    with start_server(answer_whole) as server:
        status, _, answer = asyncio.run(read(server.url, body=body))
    assert (status, answer) == (200, b"hello")
    head, _, sent = server.requests[0].partition(b"\r\n\r\n")
    assert f"content-length: {size}" in head.decode().lower()
    assert b"chunked" not in head.lower()
    assert sent == body


class Wire:
    """A transport that keeps what is written to it, and answers when it has all of it."""

    def __init__(self, connection, size):
        self.connection, self.left, self.pieces = connection, size, []

    def write(self, piece):
        self.pieces.append(piece)
        self.left -= len(piece)
        if self.left <= 0:
            self.connection.data_received(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")

    def is_closing(self):
        return False


@pytest.mark.parametrize("size", [size for size in SIZES if size >= UPLOAD_THRESHOLD_BYTES])
def test_pieces_are_slices_of_the_body_and_the_first_is_small(size):
    body = body_of(size)

    async def send():
        connection = Http1Connection(asyncio.get_running_loop())
        wire: Any = Wire(connection, size)
        connection.transport = wire
        await connection.request(b"", body)
        return wire.pieces

    tracemalloc.start()
    pieces = asyncio.run(send())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert b"".join(pieces) == body
    assert len(pieces[0]) == FIRST_PIECE_BYTES
    assert all(piece.obj is body for piece in pieces[1:])
    assert max(map(len, pieces)) <= PIECE_BYTES
    assert size < 100_000 or peak < size / 2


def test_an_answer_before_the_end_of_the_upload_is_read_and_the_connection_not_used_again():
    async def refuse_early(reader, writer):
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
        await writer.drain()
        await asyncio.Event().wait()

    async def main():
        for _ in range(2):
            assert (await read(server.url, body=b"x" * 30_000_000))[::2] == (413, b"no")

    with start_server(refuse_early, listens=False) as server:
        asyncio.run(main())
        assert server.opened == 2
