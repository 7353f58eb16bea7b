"""The network: real sockets on this machine, answers whole, streamed, cut, stalled and wrong."""

import asyncio
import gc
import random
import threading
from collections import Counter

import pytest

from bridle import __version__
from bridle.transports.http import Deadlines, HttpTransport
from bridle.transports.http1 import BUFFER_BYTES_MAX
from bridle.values.errors import ProviderError
from tests.suite.patience import PATIENCE_SECONDS
from tests.transports.local_server import (
    KEY,
    answer_nothing,
    answer_streamed,
    answer_whole,
    answer_without_end,
    list_left_open,
    list_open_files,
    make_answer,
    make_outgoing,
    read,
    start_server,
)


@pytest.fixture(autouse=True)
def nothing_left_behind(monkeypatch, caplog):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    before = list_open_files()
    yield
    gc.collect()  # what nobody closed complains now, and a warning is an error
    assert list_left_open(before) == Counter()  # what an earlier test left may go meanwhile
    assert not caplog.records, caplog.text


def read_failure(url, deadlines=None, **request):
    with pytest.raises(ProviderError) as caught:
        asyncio.run(read(url, deadlines, **request))
    error = caught.value
    assert "\n" not in str(error)
    assert KEY not in str(error)
    assert error.__cause__ is None
    assert error.__context__ is None, "aiohttp's exceptions carry the request and its headers"
    return error.failure


def test_a_whole_answer():
    with start_server(answer_whole) as server:
        status, headers, body = asyncio.run(read(server.url, body=b'{"a":1}', headers=(("X-Mine", "yes"),)))
    assert (status, body) == (200, b"hello")
    assert headers["content-length"] == "5"
    assert headers["x-two"] == "a, b"
    head, _, sent = server.requests[0].partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /v1/messages HTTP/1.1"
    assert sent == b'{"a":1}'
    fields = {line.partition(": ")[0].lower(): line.partition(": ")[2] for line in lines[1:]}
    assert fields["user-agent"] == f"bridle/{__version__}"
    assert fields["authorization"] == f"Bearer {KEY}"
    assert fields["x-mine"] == "yes"
    assert fields["accept-encoding"] == "identity"


def test_pieces_are_handed_out_when_they_arrive():
    go_on = threading.Event()

    async def stepwise(reader, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
        await writer.drain()
        await asyncio.get_running_loop().run_in_executor(None, go_on.wait, PATIENCE_SECONDS)
        writer.write(b"3\r\ntwo\r\n0\r\n\r\n")

    async def main(url):
        async with HttpTransport().open(make_outgoing(url)) as answer:
            pieces = answer.chunks()
            assert await anext(pieces) == b"one"
            go_on.set()
            assert [piece async for piece in pieces] == [b"two"]

    with start_server(stepwise) as server:
        asyncio.run(main(server.url))


def test_a_finished_answer_gives_its_connection_back():
    async def main(url):
        for _ in range(5):
            assert (await read(url))[2] == b"one two three"

    with start_server(answer_streamed) as server:
        asyncio.run(main(server.url))
        assert (server.opened, len(server.requests)) == (1, 5)


def test_a_connection_with_unread_data_is_not_used_again():
    """Its reading is paused, so the next response would never be read."""
    bodies = iter(
        (b"x" * BUFFER_BYTES_MAX, b"ok")
    )  # with its head, the first is too much when its end arrives

    async def answer_all(reader, writer):
        body = next(bodies)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    async def main(url):
        async with HttpTransport().open(make_outgoing(url)) as answer:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not answer._connection.is_complete:
                    await asyncio.sleep(0)
            assert answer._connection._is_paused
        assert (await read(url))[2] == b"ok"

    with start_server(answer_all) as server:
        asyncio.run(main(server.url))
        assert server.opened == 2


def test_a_large_body_goes_out_whole_and_a_status_is_not_an_error():
    async def refuse(reader, writer):
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")

    with start_server(refuse) as server:
        assert asyncio.run(read(server.url, body=b"x" * 3_000_000))[::2] == (413, b"no")
        assert server.requests[0].endswith(b"\r\n\r\n" + b"x" * 3_000_000)


def test_a_redirect_is_an_answer_like_any_other():
    with start_server(
        make_answer(b"HTTP/1.1 307 Go\r\nLocation: http://x/\r\nContent-Length: 0\r\n\r\n")
    ) as server:
        assert asyncio.run(read(server.url))[0] == 307


def test_what_arrived_before_the_cut_is_handed_out_first():
    async def main(url):
        async with HttpTransport().open(make_outgoing(url)) as answer:
            while answer._connection.is_open:  # until the end is known here, and nothing read yet
                await asyncio.sleep(0)
            pieces = answer.chunks()
            assert await anext(pieces) == b"half"
            with pytest.raises(ProviderError, match="in the middle of its answer") as caught:
                await anext(pieces)
            assert caught.value.failure.kind == "cut"

    with start_server(make_answer(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nhalf")) as server:
        asyncio.run(main(server.url))


@pytest.mark.parametrize(
    ("said", "kind", "words"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nhalf", "cut", "in the middle of its answer"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n", "cut", "in the middle"),
        (b"", "cut", "closed the connection before it answered"),
        (b"HTTP/1.1 200 OK\r\nContent-", "cut", "before it answered"),
        (b"SSH-2.0-OpenSSH_9.9\r\n", "garbled", "does not speak HTTP/1.1"),
    ],
)
def test_an_answer_that_breaks_off_or_is_none(said, kind, words):
    with start_server(make_answer(said)) as server:
        failure = read_failure(server.url)
    assert failure.kind == kind
    assert words in failure.message
    assert f"127.0.0.1:{server.port}" in failure.message


def test_no_bytes_raise_another_error():
    dice = random.Random(7)
    good = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n"
    good += b"5\r\nhello\r\n0\r\n\r\n"
    answers = []
    for _ in range(150):
        text = bytearray(good[: dice.randrange(len(good) + 1)])
        for _ in range(dice.randrange(4)):
            text[dice.randrange(len(text)) if text else 0 : 0] = bytes([dice.randrange(256)])
        answers.append(bytes(text))
    playing = iter(answers)

    async def answer(reader, writer):
        await make_answer(next(playing))(reader, writer)

    async def main(url):
        kinds = set()
        for _ in answers:
            try:
                await read(url)
            except ProviderError as error:
                kinds.add(error.failure.kind)
        return kinds

    with start_server(answer) as server:
        assert asyncio.run(main(server.url)) <= {"cut", "garbled"}


@pytest.mark.parametrize(
    ("answer", "deadlines", "word"),
    [
        (answer_nothing, Deadlines(first_byte_seconds=0.05), "first_byte_seconds"),
        (answer_without_end, Deadlines(idle_seconds=0.05), "idle_seconds"),
    ],
)
def test_a_stalled_answer_is_given_up_and_the_deadline_is_named(answer, deadlines, word):
    with start_server(answer) as server:
        failure = read_failure(server.url, deadlines)
        server.wait_until(lambda server: server.open == 0)
    assert failure.kind == "timeout"
    assert f"sent nothing for 0.05 s ({word})" in failure.message


async def answer_by_bytes(reader, writer):
    writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
    while True:
        writer.write(b".")
        await writer.drain()
        await asyncio.sleep(0)


@pytest.mark.parametrize("answer", [answer_by_bytes, answer_nothing])
def test_an_answer_that_takes_too_long_as_a_whole_is_given_up_and_not_asked_for_again(answer):
    with start_server(answer) as server:
        failure = read_failure(server.url, Deadlines(total_seconds=0.05))
        server.wait_until(lambda server: server.open == 0)
    assert (failure.kind, failure.should_retry) == ("timeout", False)
    assert "had not finished after 0.05 s (total_seconds)" in failure.message


def test_without_deadlines_nothing_is_given_up():
    async def two(reader, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\none")
        await asyncio.sleep(0)
        writer.write(b"two")

    never = Deadlines(connect_seconds=None, first_byte_seconds=None, idle_seconds=None, total_seconds=None)
    with start_server(two) as server:
        assert asyncio.run(read(server.url, never))[-1] == b"onetwo"


@pytest.mark.parametrize("head", [b"Transfer-Encoding: chunked", b"Connection: close"])
def test_headers_alone_are_not_the_first_byte(head):
    async def headers_only(reader, writer):
        writer.write(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\n")
        await answer_nothing(reader, writer)

    with start_server(headers_only) as server:
        failure = read_failure(server.url, Deadlines(first_byte_seconds=0.05, idle_seconds=0.01))
    assert "first_byte_seconds" in failure.message


def test_a_server_that_does_not_read_is_given_up_too():
    async def deaf(reader, writer):
        await asyncio.Event().wait()

    with start_server(deaf, listens=False) as server:
        failure = read_failure(server.url, Deadlines(first_byte_seconds=0.05), body=b"x" * 30_000_000)
    assert failure.kind == "timeout"


def test_a_connection_that_never_comes_about_is_given_up():
    with start_server(
        answer_nothing, listens=False
    ) as server:  # it accepts, and TLS then waits for words that never come
        failure = read_failure(server.url.replace("http:", "https:"), Deadlines(connect_seconds=0.05))
        server.wait_until(lambda server: (server.opened, server.open) == (1, 0))
    assert failure.kind == "timeout"
    assert f"no connection to 127.0.0.1:{server.port} within 0.05 s (connect_seconds)" in failure.message


def test_a_slow_reader_is_not_the_servers_fault():
    go_on = threading.Event()

    async def two(reader, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\none")
        await asyncio.get_running_loop().run_in_executor(None, go_on.wait, PATIENCE_SECONDS)
        writer.write(b"two")

    async def main(url):
        loop = asyncio.get_running_loop()
        tell = loop.time
        async with HttpTransport().open(make_outgoing(url)) as answer:
            pieces = answer.chunks()
            assert await anext(pieces) == b"one"
            loop.time = lambda: tell() + 10 * Deadlines().idle_seconds  # hours pass, and nobody asks for more
            for _ in range(10):
                await asyncio.sleep(0)
            go_on.set()
            assert await anext(pieces) == b"two"

    with start_server(two) as server:
        asyncio.run(main(server.url))


def free_port():
    with start_server(answer_whole) as server:
        return server.port


def test_an_unreachable_server_is_a_failure():
    port = free_port()
    failure = read_failure(f"http://127.0.0.1:{port}/v1")
    assert failure.kind == "unreachable"
    assert failure.message == (
        f"cannot reach 127.0.0.1:{port}: connection refused;"
        " is the server running, and is the base URL right?"
    )


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://no-such-host.invalid/v1", "cannot find no-such-host.invalid:80"),
        ("htp://127.0.0.1/v1", "'htp://127.0.0.1/v1' is not a web address"),
        ("127.0.0.1:80/v1", "is not a web address"),
        ("http://", "is not a web address"),
        ("http://127.0.0.1:99999/", "is not a web address"),
        ("http://user:pass@127.0.0.1:1/", "127.0.0.1:1"),
        ("http://a..b/", "a..b:80"),
        ("", "is not a web address"),
    ],
)
def test_addresses_that_lead_nowhere(url, words):
    failure = read_failure(url)
    assert words in failure.message
    assert "pass@" not in failure.message
    assert failure.kind in ("unreachable", "invalid")


def test_a_header_that_cannot_be_sent():
    with start_server(answer_whole) as server:
        failure = read_failure(server.url, headers=(("x-api-key", f"{KEY}\r\nX-Evil: 1"),))
        assert server.opened == 0
    assert failure.kind == "invalid"
    assert failure.should_retry is False


def test_a_plain_server_is_not_https():
    with start_server(make_answer(b"HTTP/1.1 400 Bad Request\r\n\r\n"), listens=False) as server:
        failure = read_failure(server.url.replace("http:", "https:"))
    assert failure.kind == "unreachable"
    assert f"no TLS with 127.0.0.1:{server.port}" in failure.message
    assert "http://" in failure.message


def test_a_proxy_from_the_environment_is_used_but_never_for_this_machine(monkeypatch):
    with start_server(answer_whole) as proxy, start_server(answer_whole) as server:
        monkeypatch.setenv("HTTP_PROXY", f"http://me:pw@127.0.0.1:{proxy.port}")
        assert asyncio.run(read("http://models.example/v1"))[2] == b"hello"
        assert asyncio.run(read(server.url))[2] == b"hello"
    head = proxy.requests[0].decode()
    assert head.startswith("POST http://models.example/v1 HTTP/1.1\r\n")
    assert "Proxy-Authorization: Basic bWU6cHc=" in head
    assert len(proxy.requests) == len(server.requests) == 1


def test_no_proxy_is_obeyed_and_an_unreachable_proxy_is_named(monkeypatch):
    port = free_port()
    monkeypatch.setenv("HTTP_PROXY", f"http://me:pw@127.0.0.1:{port}")
    failure = read_failure("http://models.example/v1")
    assert failure.message.startswith(f"cannot reach the proxy 127.0.0.1:{port}: connection refused")
    assert "pw" not in failure.message
    monkeypatch.setenv("NO_PROXY", "invalid")
    assert "cannot find models.invalid:80" in read_failure("http://models.invalid/v1").message


def test_a_redirect_that_came_through_a_proxy_is_not_followed(monkeypatch):
    redirect = b"HTTP/1.1 307 Go\r\nLocation: http://x.invalid/\r\nContent-Length: 0\r\n\r\n"
    with start_server(make_answer(redirect)) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        assert asyncio.run(read("http://api.invalid/v1"))[0] == 307
    assert len(proxy.requests) == 1
