"""The HTTP/1.1 connection: framing, reuse, compression and limits, over real sockets."""

import asyncio
import gzip
import zlib
from base64 import b64encode

import pytest

from bridle.transports import http1, pool
from bridle.transports.http import HttpTransport
from bridle.transports.pool import find_pool
from bridle.values.errors import ProviderError
from tests.transports.local_server import answer_whole, make_outgoing, read, start_server

OK = b"HTTP/1.1 200 OK\r\n"


def make_answer(*pieces, close=False):
    async def answer(reader, writer):
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        if close:
            writer.close()
            raise ConnectionError

    return answer


@pytest.mark.parametrize(
    ("pieces", "close", "expected"),
    [
        ((OK + b"Content-Length: 5\r\n\r\nhello",), False, b"hello"),
        ((OK + b"Content-Length: 0\r\n\r\n",), False, b""),
        ((OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhel", b"lo\r\n0\r\n\r\n"), False, b"hello"),
        ((OK + b"Transfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nX-T: 1\r\n\r\n",), False, b"hello"),
        ((b"HTTP/1.1 100 Continue\r\nX-A: b\r\n\r\n" + OK + b"Content-Length: 2\r\n\r\nhi",), False, b"hi"),
        ((b"HTTP/1.1 103 Early Hints\r\n\r\n", OK + b"Content-Length: 2\r\n\r\nhi"), False, b"hi"),
        ((OK + b"\r\nuntil the end",), True, b"until the end"),
        ((b"HTTP/1.0 200 OK\r\n\r\nold",), True, b"old"),
        ((b"HTTP/1.1 204 No Content\r\n\r\n",), False, b""),
    ],
)
def test_every_framing_of_a_response_is_read_to_its_end(pieces, close, expected):
    with start_server(make_answer(*pieces, close=close)) as server:
        assert asyncio.run(read(server.url))[2] == expected


@pytest.mark.parametrize(
    ("said", "kind", "words"),
    [
        (
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
            "garbled",
            "another protocol",
        ),
        (OK + b"X-Long: " + b"a" * http1.HEAD_BYTES_MAX + b"\r\n\r\n", "garbled", "headers are too long"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", "garbled", "does not speak HTTP/1.1"),
        (OK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello", "garbled", "does not speak HTTP/1.1"),
        (
            OK + b"Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello",
            "garbled",
            "compressed answer is damaged",
        ),
    ],
)
def test_what_is_no_response_is_one_line(said, kind, words):
    with start_server(make_answer(said, close=True)) as server, pytest.raises(ProviderError) as caught:
        asyncio.run(read(server.url))
    assert caught.value.failure.kind == kind and words in caught.value.failure.message


def compress_answer(data):
    return OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(data) + data


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress])
def test_a_compressed_answer_is_decompressed(pack):
    with start_server(make_answer(compress_answer(pack(b"hello " * 1000)))) as server:
        assert asyncio.run(read(server.url))[2] == b"hello " * 1000


def test_a_compressed_answer_is_handed_out_in_bounded_pieces():
    size = 40 * http1.INFLATED_BYTES_MAX

    async def main(url):
        async with HttpTransport().open(make_outgoing(url)) as answer:
            return [len(piece) async for piece in answer.chunks()]

    with start_server(make_answer(compress_answer(gzip.compress(b"\0" * size)))) as server:
        lengths = asyncio.run(main(server.url))
    assert sum(lengths) == size and max(lengths) <= http1.INFLATED_BYTES_MAX


def test_a_compressed_answer_that_ends_early_is_cut():
    half = gzip.compress(bytes(range(256)) * 200)[:200]
    with start_server(make_answer(compress_answer(half))) as server, pytest.raises(ProviderError) as caught:
        asyncio.run(read(server.url))
    assert caught.value.failure.kind == "cut"


@pytest.mark.parametrize(
    "said",
    [
        OK + b"Content-Length: 2\r\nConnection: close\r\n\r\nhi",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi",
        OK + b"Content-Length: 2\r\n\r\nhi" + OK + b"Content-Length: 4\r\n\r\nevil",
    ],
    ids=["closing", "old", "answers that were not asked for"],
)
def test_a_connection_that_cannot_serve_again_is_not_used_again(said):
    async def main(url):
        for _ in range(3):
            assert (await read(url))[2] == b"hi"

    with start_server(make_answer(said)) as server:
        asyncio.run(main(server.url))
        assert server.opened == 3


def test_an_idle_connection_that_the_server_ended_or_spoke_on_is_not_used_again():
    async def speak_later(reader, writer):
        await answer_whole(reader, writer)
        await writer.drain()
        await said.wait()
        writer.write(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")

    async def main():
        assert (await read(server.url))[2] == b"hello"
        idle = next(iter(find_pool(asyncio.get_running_loop())._idle.values()))[0]
        server._loop.call_soon_threadsafe(said.set)
        while idle.is_open:
            await asyncio.sleep(0)
        assert (await read(server.url))[2] == b"hello"
        assert server.opened == 2

    said = asyncio.Event()
    with start_server(speak_later) as server:
        asyncio.run(main())


def test_idle_connections_are_closed_after_their_time(monkeypatch):
    monkeypatch.setattr(pool, "KEEP_CONNECTION_SECONDS", 0.01)

    async def main():
        assert (await read(server.url))[2] == b"hello"
        kept = find_pool(asyncio.get_running_loop())._idle
        while kept:
            await asyncio.sleep(0)
        await asyncio.sleep(0)  # the socket is closed in the next turn of the loop
        server.wait_until(lambda server: server.open == 0)

    with start_server(answer_whole) as server:
        asyncio.run(main())


def test_a_reader_that_is_slow_stops_the_socket_and_gets_everything():
    size = 20 * http1.BUFFER_BYTES_MAX

    async def much(reader, writer):
        writer.write(OK + b"Content-Length: %d\r\n\r\n" % size)
        for _ in range(20):
            writer.write(b"x" * http1.BUFFER_BYTES_MAX)
            await writer.drain()

    async def main(url):
        async with HttpTransport().open(make_outgoing(url)) as answer:
            connection = answer._connection
            while not connection._is_paused:
                await asyncio.sleep(0)
            for _ in range(1000):
                await asyncio.sleep(0)
            assert connection._buffered < 4 * http1.BUFFER_BYTES_MAX
            return sum([len(piece) async for piece in answer.chunks()])

    with start_server(much) as server:
        assert asyncio.run(main(server.url)) == size


def test_a_user_in_the_address_is_sent_as_basic_authorization_unless_there_is_a_key():
    async def main():
        url = server.url.replace("//", "//ann:p%40w@")
        await read(url)
        async with HttpTransport().open(
            make_outgoing(url).__class__(method="GET", url=url, headers=(), body=b"")
        ) as answer:
            assert [piece async for piece in answer.chunks()] == [b"hello"]

    with start_server(answer_whole) as server:
        asyncio.run(main())
    first, second = (request.decode().lower() for request in server.requests)
    assert first.count("authorization:") == 1 and "authorization: bearer" in first
    assert f"authorization: basic {b64encode(b'ann:p@w').decode()}".lower() in second
    assert "get /v1/messages http/1.1" in second and "ann" not in second.splitlines()[0]


@pytest.mark.parametrize(
    "header",
    [
        ("a b", "x"),
        ("", "x"),
        ("x-ä", "x"),
        ("x", "a\0b"),
        ("Content-Length", "3"),
        ("transfer-encoding", "chunked"),
    ],
)
def test_a_header_that_would_change_the_request_is_refused_before_a_connection(header):
    with start_server(answer_whole) as server:
        with pytest.raises(ProviderError) as caught:
            asyncio.run(read(server.url, headers=(header,)))
        assert server.opened == 0
    assert caught.value.failure.kind == "invalid"


def test_ports_hosts_and_queries_are_in_the_head():
    async def main():
        await read(server.url + "?a=b%20c&d=ü#part")

    with start_server(answer_whole) as server:
        asyncio.run(main())
    lines = server.requests[0].decode().split("\r\n")
    assert lines[0] == "POST /v1/messages?a=b%20c&d=%C3%BC HTTP/1.1"
    assert f"host: 127.0.0.1:{server.port}" in lines


def test_headers_are_a_mapping_with_lower_names_and_joined_repeats():
    head = (
        OK + b"X-A: 1\r\nx-b: caf\xc3\xa9 \xff\r\nContent-Length: 0\r\nX-a: 2\r\nX-Empty:\r\nx-A: 3\r\n\r\n"
    )
    expected = {"x-a": "1, 2, 3", "x-b": "café \ufffd", "content-length": "0", "x-empty": ""}
    with start_server(make_answer(head)) as server:
        headers = asyncio.run(read(server.url))[1]
    assert headers == expected
    assert [*headers.items()] == [*expected.items()], "in the order of the response"
    assert (len(headers), "x-a" in headers, "X-A" in headers) == (4, True, False)
    assert (headers.get("x-a"), headers.get("x-c"), headers.get("x-c", "")) == ("1, 2, 3", None, "")
    with pytest.raises(KeyError):
        headers["x-c"]


def test_a_trailer_is_no_header():
    pieces = (OK + b"X-A: 1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX-A: 2\r\nX-T: 3\r\n\r\n",)
    with start_server(make_answer(*pieces)) as server:
        assert asyncio.run(read(server.url))[1] == {"x-a": "1", "transfer-encoding": "chunked"}


FRAMINGS = (
    (OK + b"X-A: 1\r\nContent-Length: 5\r\n\r\nhello", 200, {"x-a": "1", "content-length": "5"}, b"hello"),
    (
        OK + b"Transfer-Encoding: chunked\r\n\r\n2;a=b\r\nhi\r\n0\r\nX-T: 1\r\n\r\n",
        200,
        {"transfer-encoding": "chunked"},
        b"hi",
    ),
    (b"HTTP/1.1 204 No Content\r\nX-B: 2\r\n\r\n", 204, {"x-b": "2"}, b""),
    (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", 404, {"content-length": "0"}, b""),
    (
        b"HTTP/1.1 100 Continue\r\nX-C: 3\r\n\r\n" + OK + b"Content-Length: 2\r\n\r\nok",
        200,
        {"content-length": "2"},
        b"ok",
    ),
)


def test_a_connection_reads_every_framing_after_every_other():
    """The parser is used again, too: nothing of one response may reach the next."""
    order = [each for first in FRAMINGS for second in FRAMINGS for each in (first, second)]
    heads = iter([head for head, *_ in order])

    async def answer(reader, writer):
        writer.write(next(heads))

    async def main(url):
        return [await read(url) for _ in order]

    with start_server(answer) as server:
        assert asyncio.run(main(server.url)) == [tuple(expected) for _, *expected in order]
        assert server.opened == 1


def test_an_unread_body_is_not_part_of_the_next_response():
    async def exchange_twice(url):
        transport = HttpTransport()
        async with transport.open(make_outgoing(url)) as unread:
            assert unread.status == 200
        async with transport.open(make_outgoing(url)) as answer:
            return b"".join([chunk async for chunk in answer.chunks()])

    with start_server(answer_whole) as server:
        assert asyncio.run(exchange_twice(server.url)) == b"hello"
        assert server.opened == 1
