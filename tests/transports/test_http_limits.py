"""What a provider sends besides its answer is limited: headers that repeat, trailers, extensions of chunks."""

import asyncio
import tracemalloc

import pytest

from bridle.transports.http1 import HEAD_BYTES_MAX, ResponseHeaders, _index_names
from bridle.values.errors import ProviderError
from tests.suite.growth import assert_growth
from tests.transports.local_server import read, start_server

HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
ENDLESS = {
    "trailers": (HEAD + b"2\r\nhi\r\n0\r\n", b"a: b\r\n" * 5_000),
    "one trailer": (HEAD + b"2\r\nhi\r\n0\r\na: ", b"a" * 30_000),
    "an extension of a chunk": (HEAD + b"2\r\nhi\r\n3;a=", b"a" * 30_000),
}
SENT_MAX = 64 * 1024 * 1024


@pytest.mark.parametrize("kind", ENDLESS)
def test_what_follows_the_body_has_a_limit(kind):
    start, piece = ENDLESS[kind]
    sent = []

    async def flood(reader, writer):
        writer.write(start)
        while sum(sent) < SENT_MAX:
            writer.write(piece)
            sent.append(len(piece))
            await writer.drain()

    tracemalloc.start()
    try:
        with start_server(flood) as server, pytest.raises(ProviderError, match="its trailers are too long"):
            asyncio.run(read(server.url))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(sent) < SENT_MAX, "all of it was read"
    assert most < 100 * HEAD_BYTES_MAX


def test_short_trailers_are_read_and_not_kept():
    async def answer(reader, writer):
        writer.write(HEAD + b"2\r\nhi\r\n0\r\nx-checksum: 1\r\n\r\n")

    with start_server(answer) as server:
        assert asyncio.run(read(server.url))[-1] == b"hi"


def test_repeated_headers_cost_what_others_cost():
    def prepare(count):
        names, values = [b"a"] * count, [b"b"] * count

        def index():
            _index_names.cache_clear()
            return ResponseHeaders(names, values)["a"]

        return index

    assert_growth(prepare, 4_000, 24_000, 20.0)
    assert ResponseHeaders([b"A", b"b", b"a"], [b"1", b"2", b"3"])["a"] == "1, 3"
