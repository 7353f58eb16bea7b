"""The simulator over HTTP/2 without TLS: the AWS SDK for JavaScript speaks nothing else to Bedrock."""

import asyncio
import json
import struct

import pytest

from bridle.sim import http2
from bridle.sim.server import serve_simulator
from bridle.sim.server_limits import ServerLimits
from bridle.sim.simulator import Simulator

pytest.importorskip("h2", reason="needs h2: pip install 'bridle[http2]'")

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    ResponseReceived,
    SettingsAcknowledged,
    StreamEnded,
    StreamReset,
)

PATIENCE_SECONDS = 20
"""Upper bound of every wait; a passing run reaches none of them."""
CONVERSE = "/model/global.anthropic.claude-sonnet-5-5/converse"
HELLO = {"messages": [{"role": "user", "content": [{"text": "!say hello there"}]}]}


class Client:
    """A client that keeps what it gets, by stream."""

    def __init__(self, reader, writer, **options):
        self.reader, self.writer = reader, writer
        self.http = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self.http.initiate_connection()
        if options:
            self.http.update_settings(options["settings"])
        self.status, self.bodies, self.ended, self.events = {}, {}, set(), []

    def ask(self, path=CONVERSE, body=HELLO, host="127.0.0.1", ends=True, **more):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        stream = self.http.get_next_available_stream_id()
        headers = {":method": "POST", ":scheme": "http", ":authority": host, ":path": path}
        headers |= {"content-type": "application/json", "authorization": "AWS4-HMAC-SHA256 x", **more}
        self.http.send_headers(stream, [*headers.items()])
        for at in range(0, len(data), 16_000):
            self.http.send_data(stream, data[at : at + 16_000])
        if ends:
            self.http.end_stream(stream)
        self.bodies[stream] = b""
        return stream

    async def read(self, until):
        """Read events until a condition holds, or the connection is at its end."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not until():
                self.writer.write(self.http.data_to_send())
                data = await self.reader.read(65_536)
                if not data:
                    return
                for event in self.http.receive_data(data):
                    self.take(event)

    def take(self, event):
        self.events.append(event)
        match event:
            case ResponseReceived(stream_id=stream, headers=headers):
                self.status[stream] = int(dict(headers)[":status"])
            case DataReceived(stream_id=stream, data=data, flow_controlled_length=size):
                self.bodies[stream] += data
                self.http.acknowledge_received_data(size, stream)
            case StreamEnded(stream_id=stream) | StreamReset(stream_id=stream):
                self.ended.add(stream)

    def has(self, kind):
        return any(isinstance(event, kind) for event in self.events)


def talk(conversation, limits=None, simulator=None, **options):
    async def run():
        async with serve_simulator(simulator or Simulator(), limits=limits) as url:
            reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
            client = Client(reader, writer, **options)
            try:
                return await conversation(client)
            finally:
                writer.close()

    return asyncio.run(run())


async def ask_once(client, **request):
    stream = client.ask(**request)
    await client.read(lambda: stream in client.ended)
    return client.status.get(stream), client.bodies[stream]


def test_a_whole_reply():
    status, body = talk(ask_once)
    assert status == 200
    assert json.loads(body)["output"]["message"]["content"] == [{"text": "hello there"}]


def test_a_streamed_reply():
    status, body = talk(lambda client: ask_once(client, path=f"{CONVERSE}-stream"))
    assert status == 200
    assert b"contentBlockDelta" in body and b"hello" in body and b"messageStop" in body


def test_requests_of_one_connection_are_answered_side_by_side():
    async def both(client):
        streams = [
            client.ask(body={"messages": [{"role": "user", "content": [{"text": f"!say {n}"}]}]})
            for n in range(5)
        ]
        await client.read(lambda: set(streams) <= client.ended)
        return [
            json.loads(client.bodies[stream])["output"]["message"]["content"][0]["text"] for stream in streams
        ]

    assert talk(both) == ["0", "1", "2", "3", "4"]


def test_requests_of_one_connection_are_limited_in_number():
    async def ask(client):
        for _ in range(http2.STREAMS_MAX + 1):
            client.ask(body=b"", ends=False)
        await client.read(lambda: client.has(ConnectionTerminated))
        return client.has(ConnectionTerminated)

    assert talk(ask)


def test_a_reply_is_sent_as_the_client_s_window_allows():
    """Settings of the client: a window of 100 bytes."""
    words = "word " * 400
    body = {"messages": [{"role": "user", "content": [{"text": f"!say {words}"}]}]}
    status, reply = talk(lambda client: ask_once(client, body=body), settings={4: 100})
    assert status == 200
    assert json.loads(reply)["output"]["message"]["content"][0]["text"].strip() == words.strip()


@pytest.mark.refusals
@pytest.mark.parametrize(
    ("request_", "status"),
    [
        ({"content-type": "text/plain"}, 415),
        ({"body": b"x" * 2_000}, 413),
        ({"body": b"", "content-length": "2000"}, 413),
    ],
)
def test_the_rules_for_requests_are_those_of_http_1(request_, status):
    async def ask(client):
        return await ask_once(client, **request_, ends="content-length" not in request_)

    assert talk(ask, ServerLimits(body_bytes=1_000))[0] == status


def test_a_foreign_host_name_is_refused():
    simulator = Simulator()
    status, body = talk(lambda client: ask_once(client, host="evil.example"), simulator=simulator)
    assert (status, simulator.refusals) == (421, [])
    assert b"hello" not in body


def test_a_body_that_does_not_arrive_is_given_up():
    async def ask(client):
        stream = client.ask(body=b"{", ends=False)
        await client.read(lambda: stream in client.ended)
        return client.status[stream]

    assert talk(ask, ServerLimits(body_seconds=0.05)) == 408


@pytest.mark.parametrize("limits", [{"header_seconds": 0.05}, {"idle_seconds": 0.05}])
def test_a_connection_that_asks_for_nothing_is_closed(limits):
    async def wait(client):
        if "idle_seconds" in limits:
            await ask_once(client)
        await client.read(lambda: False)
        return client.has(ConnectionTerminated)

    assert talk(wait, ServerLimits(**limits))


def test_headers_beyond_the_limit_end_the_connection():
    async def ask(client):
        await client.read(lambda: client.has(SettingsAcknowledged))
        await ask_once(client, **{"x-long": "x" * 5_000})
        return client.status, client.has(ConnectionTerminated)

    assert talk(ask, ServerLimits(header_bytes=2_000)) == ({}, True)


@pytest.mark.parametrize("stream", [0, 2])
def test_what_is_no_request_ends_the_connection(stream):
    """Headers on the stream of the connection itself, or on one that only a server opens."""
    data = http2.PREFACE + b"\0\0\0\4\0\0\0\0\0" + b"\0\0\1" + struct.pack(">BBI", 1, 4, stream) + b"\x82"

    async def send(client):
        client.writer.write(data)
        return await asyncio.wait_for(client.reader.read(), PATIENCE_SECONDS)

    assert struct.pack(">BBI", http2.GO_AWAY, 0, 0) in talk(send)


@pytest.mark.parametrize("cut", [3, 18, 23])
def test_the_preface_may_come_in_pieces(cut):
    async def ask(client):
        stream = client.ask()
        data = client.http.data_to_send()
        client.writer.write(data[:cut])
        await client.writer.drain()
        await asyncio.sleep(0)
        client.writer.write(data[cut:])
        await client.read(lambda: stream in client.ended)
        return client.status[stream]

    assert talk(ask) == 200


def test_a_client_that_leaves_a_stream_does_not_end_the_others():
    async def leave(client):
        left = client.ask(body={"messages": [{"role": "user", "content": [{"text": "!wait 30\n!say late"}]}]})
        client.http.reset_stream(left)
        return await ask_once(client)

    assert talk(leave)[0] == 200


def test_without_the_package_the_client_is_told_what_to_install(monkeypatch, caplog):
    monkeypatch.setattr(http2, "find_spec", lambda name: None)

    async def ask(client):
        client.ask()
        await client.read(lambda: client.has(ConnectionTerminated))
        [event] = [each for each in client.events if isinstance(each, ConnectionTerminated)]
        return event.error_code, event.additional_data

    code, told = talk(ask)
    assert (code, told.decode()) == (http2.HTTP_1_1_REQUIRED, http2.PACKAGE_MISSING)
    assert http2.PACKAGE_MISSING in caplog.text
