"""The simulator's server over real sockets: allowed clients, and the limits of a request."""

import asyncio
import json

import pytest

from bridle.sim.server import serve_simulator
from bridle.sim.server_limits import ServerLimits
from bridle.sim.simulator import Simulator

PATIENCE_SECONDS = 10
"""Upper bound of every wait; a passing run reaches none of them."""
BODY = json.dumps(
    {"model": "claude-sonnet-5", "max_tokens": 50, "messages": [{"role": "user", "content": "!say hello"}]}
).encode()
HEADERS = {
    "Host": "127.0.0.1",
    "Content-Type": "application/json",
    "anthropic-version": "2023-06-01",
    "x-api-key": "sim",
    "Connection": "close",
}
ADDRESSES = {
    "anthropic": "/v1/messages",
    "bedrock_converse": "/model/anthropic.claude-sonnet-5/converse",
    "gemini": "/v1beta/models/gemini-3.5-flash:generateContent",
    "openai_chat": "/v1/chat/completions",
    "openai_responses": "/v1/responses",
}


def head(path="/v1/messages", body=BODY, **changes):
    """The head of a request; a header that is None is left out, several are a list."""
    headers = {
        **HEADERS,
        "Content-Length": str(len(body)),
        **{k.replace("_", "-"): v for k, v in changes.items()},
    }
    lines = [f"POST {path} HTTP/1.1"]
    for name, value in headers.items():
        lines += [
            f"{name}: {one}" for one in (value if isinstance(value, list) else [value]) if one is not None
        ]
    return "\r\n".join([*lines, "", ""]).encode()


def exchange(*pieces, limits=None, simulator=None):
    """Everything the server says to a client that sends these pieces and then waits."""

    async def talk():
        async with serve_simulator(simulator or Simulator(), limits=limits) as url:
            reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
            try:
                for piece in pieces:
                    writer.write(piece)
                    await writer.drain()
                return await asyncio.wait_for(reader.read(), PATIENCE_SECONDS)
            finally:
                writer.close()

    return asyncio.run(talk())


def parse_answer(answer):
    start, _, body = answer.partition(b"\r\n\r\n")
    return int(start.split()[1]), body


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:8090", "localhost", "LOCALHOST:1", "[::1]:8090", "127.0.0.2"]
)
def test_names_of_this_machine_are_answered(host):
    status, body = parse_answer(exchange(head(Host=host) + BODY))
    assert status == 200
    assert b"hello" in body


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8090",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "evil.example@127.0.0.1",
        "localhost:8090.evil.example",
        "10.0.0.1",
        "",
        None,
    ],
)
def test_a_foreign_host_name_is_refused_in_one_line(host):
    simulator = Simulator()
    status, body = parse_answer(exchange(head(Host=host) + BODY, simulator=simulator))
    assert status in (400, 421)
    assert body.count(b"\n") <= 1
    assert b"hello" not in body
    assert simulator.refusals == [], "nobody was asked"


def test_a_second_host_is_refused():
    status, body = parse_answer(exchange(head(Host=["127.0.0.1", "evil.example"]) + BODY))
    assert status in (400, 421)
    assert b"hello" not in body


@pytest.mark.refusals
@pytest.mark.parametrize("family", ADDRESSES)
@pytest.mark.parametrize(
    "content_type",
    ["text/plain", "application/x-www-form-urlencoded", None, "text/plain; x=application/json"],
)
def test_a_body_that_is_not_said_to_be_json_is_refused_in_the_familys_words(family, content_type):
    simulator = Simulator()
    path = ADDRESSES[family]
    status, body = parse_answer(exchange(head(path, Content_Type=content_type) + BODY, simulator=simulator))
    assert status == (400 if family.startswith("openai") else 415)
    told = json.loads(body)
    assert "application/json" in told.get("error", told)["message"]
    (refusal,) = simulator.refusals
    assert refusal.family == family


@pytest.mark.parametrize("content_type", ["application/json; charset=utf-8", "Application/JSON"])
def test_json_is_json_with_parameters_and_in_capitals(content_type):
    assert parse_answer(exchange(head(Content_Type=content_type) + BODY))[0] == 200


def test_a_request_without_a_body_needs_no_content_type():
    asked = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nanthropic-version: 2023-06-01\r\nConnection: close\r\n\r\n"
    assert parse_answer(exchange(asked))[0] == 200


SLOW = ServerLimits(header_seconds=0.05, body_seconds=0.05)


@pytest.mark.parametrize("pieces", [[b"P"], [b"POST /v1/mess"], [head()[:-1]], [head()[:-4], b"\r\n"]])
def test_a_head_that_does_not_end_is_given_up(pieces):
    assert parse_answer(exchange(*pieces, limits=SLOW))[0] == 408


def test_a_client_that_says_nothing_is_hung_up_on():
    assert exchange(limits=SLOW) == b""


def test_a_byte_does_not_restart_the_timeout():
    """A client that sends one byte at a time, for as long as it is let."""

    async def drip():
        async with serve_simulator(Simulator(), limits=SLOW) as url:
            reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
            answer = asyncio.ensure_future(reader.read())
            writer.write(head()[:-4] + b"\r\nx-long: ")
            while not answer.done():
                writer.write(b"x")
                await asyncio.wait([answer], timeout=0.005)
            writer.close()
            return answer

    answer = asyncio.run(asyncio.wait_for(drip(), PATIENCE_SECONDS))
    assert answer.exception() is not None or parse_answer(answer.result())[0] == 408


@pytest.mark.parametrize("joined", [True, False])
def test_the_second_head_on_a_connection_is_timed_too(joined):
    async def talk():
        limits = ServerLimits(header_seconds=0.05, idle_seconds=0.2 if joined else 60)
        async with serve_simulator(Simulator(), limits=limits) as url:
            reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
            writer.write(head(Connection="keep-alive") + BODY + (b"POST /v1" if joined else b""))
            first = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE_SECONDS)
            writer.write(b"" if joined else b"POST /v1")
            rest = await asyncio.wait_for(reader.read(), PATIENCE_SECONDS)
            writer.close()
            return first, rest

    first, rest = asyncio.run(talk())
    assert first.startswith(b"HTTP/1.1 200 ")
    assert joined or b"HTTP/1.1 408 " in rest


def test_empty_lines_before_a_head_do_not_restart_the_timeout():
    async def drip():
        async with serve_simulator(Simulator(), limits=SLOW) as url:
            reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
            answer = asyncio.ensure_future(reader.read())
            while not answer.done():
                writer.write(b"\r\n\r\n")
                await asyncio.wait([answer], timeout=0.005)
            writer.close()
            return answer

    answer = asyncio.run(asyncio.wait_for(drip(), PATIENCE_SECONDS))
    assert answer.exception() is not None or parse_answer(answer.result())[0] in (400, 408)


@pytest.mark.parametrize("sent", [b"", b"{", BODY[:-1]])
def test_a_body_that_does_not_arrive_is_given_up(sent):
    status, body = parse_answer(exchange(head(), sent, limits=SLOW))
    assert status == 408
    assert body.count(b"\n") == 1


def test_a_head_may_be_so_long_and_no_longer():
    limits = ServerLimits(header_bytes=2_000)
    fits = head(x_long="x" * (2_000 + 4 - len(head(x_long=""))))
    assert len(fits) == 2_004
    assert parse_answer(exchange(fits + BODY, limits=limits))[0] == 200
    longer = fits.replace(b"x-long: ", b"x-long: x")
    assert parse_answer(exchange(longer + BODY, limits=limits))[0] == 431
    assert parse_answer(exchange(longer[:-2], limits=limits))[0] == 431


@pytest.mark.parametrize("at", range(1, 5))
def test_a_head_whose_end_is_split_is_counted_right(at):
    long = BODY[:-1] + b" " * 5_000 + b"}"
    asked = head(body=long) + long
    cut = len(head(body=long)) - at

    async def talk():
        async with serve_simulator(Simulator(), limits=ServerLimits(header_bytes=600)) as url:
            reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
            writer.transport.set_write_buffer_limits(0)
            writer.write(asked[:cut])
            for _ in range(20):
                await asyncio.sleep(0)
            writer.write(asked[cut:])
            answer = await asyncio.wait_for(reader.read(), PATIENCE_SECONDS)
            writer.close()
            return answer

    assert parse_answer(asyncio.run(talk()))[0] == 200


@pytest.mark.refusals
@pytest.mark.parametrize("family", ADDRESSES)
@pytest.mark.parametrize("declared", [True, False])
def test_a_body_that_is_too_large_is_not_read_to_its_end(family, declared):
    limits = ServerLimits(body_bytes=1_000, body_seconds=0.2)
    path = ADDRESSES[family]
    if declared:
        pieces = [head(path, Content_Length="40000000")]
    else:
        chunk = b"400\r\n" + b" " * 1024 + b"\r\n"
        pieces = [head(path, Content_Length=None, Transfer_Encoding="chunked"), chunk]
    status, body = parse_answer(exchange(*pieces, limits=limits))
    assert status == 413
    told = json.loads(body)
    assert told.get("error", told)["message"]
    if family == "anthropic" and declared:
        assert told["error"]["type"] == "request_too_large"


@pytest.mark.refusals("body-size")
def test_what_a_family_says_it_takes_is_told_by_its_own_rule():
    large = BODY[:-1] + b" " * (33 * 1024 * 1024) + b"}"
    status, body = parse_answer(exchange(head(body=large) + large))
    assert status == 413
    assert json.loads(body)["error"]["message"] == "Request exceeds the maximum size"
