"""What a client sends is limited before the work on it: heads, trailers, numbers of messages, streams, schemas."""

import json
import socket
import time
import tracemalloc
from contextlib import suppress

import pytest

from bridle import Agent
from bridle.serve.body_limits import LISTED_MAX, MESSAGES_MAX, PARTS_MAX, VALUES_MAX, check_body_items
from bridle.serve.errors import ServeError
from bridle.serve.host import AgentHost
from bridle.serve.http_protocol import HEAD_BYTES_MAX
from bridle.serve.mcp import STREAMS_MAX, AgentTools
from bridle.serve.options import ServeOptions
from bridle.values.errors import MisuseError
from tests.serve.raw_http import send
from tests.serve.served import serve_by_name, serving_gateway
from tests.suite.growth import assert_growth
from tests.suite.patience import PATIENCE_SECONDS

TOKEN = "t" * 32
BOMB = {
    "type": "object",
    "properties": {"x": {"$ref": "#/$defs/d0"}},
    "$defs": {
        **{f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(30)},
        "d30": {"type": "string"},
    },
}


@pytest.fixture
def served():
    with serve_by_name({"helper": Agent("sim:")}, options=ServeOptions(token=TOKEN)) as running:
        yield running


def connect(served):
    host, port = served.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS)


def flood(served, start, piece, bytes_max):
    """Send pieces without end; the bytes that the server took, and its answer."""
    sent, answer = 0, b""
    with connect(served) as line:
        line.sendall(start)
        with suppress(OSError):  # the server closes the connection, as it should
            while sent < bytes_max:
                line.sendall(piece)
                sent += len(piece)
        with suppress(OSError):  # it was reset with bytes unread
            answer = line.recv(1_000)
    return sent, answer


ENDLESS = {
    "a header": (b"GET / HTTP/1.1\r\nhost: x\r\nx-long: ", b"a" * 65_536),
    "headers": (b"GET / HTTP/1.1\r\nhost: x\r\n", b"a: b\r\n" * 8_192),
    "a target": (b"GET /", b"a" * 65_536),
    "trailers": (
        b"POST /api/none HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{\r\n0\r\n",
        b"a: b\r\n" * 8_192,
    ),
}


@pytest.mark.parametrize("kind", ENDLESS)
def test_a_head_without_end_is_refused_before_a_token_is_needed(served, kind):
    start, piece = ENDLESS[kind]
    tracemalloc.start()
    try:
        sent, answer = flood(served, start, piece, 64 * 1024 * 1024)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sent < 64 * 1024 * 1024, "the server took all of it"
    assert most < 20 * HEAD_BYTES_MAX, f"the server kept {most:,} bytes"
    assert not answer or b" 431 " in answer or b" 400 " in answer or b" 401 " in answer, answer[:80]
    assert send(f"{served.url}/health").status == 200


@pytest.mark.parametrize("begun", [b"G", b"GET / HTTP/1.1\r\nhost: x\r\nx: "])
def test_a_head_that_never_ends_is_given_up_after_its_time(served, monkeypatch, begun):
    monkeypatch.setattr("bridle.serve.http_protocol.HEAD_SECONDS_MAX", 0.05)
    with connect(served) as line:
        line.sendall(begun)
        assert line.recv(1_000).startswith(b"HTTP/1.1 408 ")
        assert line.recv(1_000) == b"", "the connection is open"


TINY = {
    "/openai/v1/chat/completions": lambda count: {
        "model": "m",
        "messages": [{"role": "user", "content": "a"}] * count,
    },
    "/openai/v1/responses": lambda count: {"model": "m", "input": [{"role": "user", "content": "a"}] * count},
    "/anthropic/v1/messages": lambda count: {
        "model": "m",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "a"}] * count,
    },
    "/gemini/v1beta/models/m:generateContent": lambda count: {
        "contents": [{"role": "user", "parts": [{"text": "a"}]}] * count
    },
}


@pytest.mark.parametrize("path", TINY)
def test_a_request_of_many_tiny_messages_is_refused_before_they_are_read(served, path):
    key = {"authorization": f"Bearer {TOKEN}"}
    began = time.process_time()
    reply = send(served.url + path, TINY[path](100_000), key)
    spent = time.process_time() - began
    assert reply.status == 413 and b"too many items" in reply.body, reply.body[:200]
    few = time.process_time()
    assert send(served.url + path, TINY[path](2_000), key).status == 200
    assert spent < 3 * (time.process_time() - few), "refusing costs more than answering a small part of it"


def test_parts_are_counted_over_all_messages():
    message = {"role": "user", "content": [{"type": "text", "text": "a"}] * 100}
    check_body_items(json.dumps({"messages": [message] * (PARTS_MAX // 100)}).encode())
    with pytest.raises(ServeError, match="parts"):
        check_body_items(json.dumps({"messages": [message] * (PARTS_MAX // 100 + 1)}).encode())
    with pytest.raises(ServeError, match="items"):
        check_body_items(b" \r\n\t" * 100 + json.dumps({"tools": [{}] * (MESSAGES_MAX + 1)}).encode())
    with pytest.raises(ServeError, match="items"):
        check_body_items(json.dumps({"tools": [{}] * (MESSAGES_MAX + 1)}).encode())


def make_call(number):
    return {"id": f"c{number}", "type": "function", "function": {"name": "t", "arguments": "{}"}}


DEEP = {
    "calls of a message": lambda items: {"messages": [{"role": "assistant", "tool_calls": items}]},
    "content of a tool result": lambda items: {
        "messages": [{"role": "user", "content": [{"type": "tool_result", "content": items}]}]
    },
    "arguments of a call": lambda items: {
        "messages": [{"role": "assistant", "content": [{"type": "tool_use", "input": {"x": items}}]}]
    },
    "declarations": lambda items: {"tools": [{"functionDeclarations": items}]},
    "system instruction": lambda items: {"systemInstruction": {"parts": items}},
    "reasoning": lambda items: {"input": [{"type": "reasoning", "summary": items}]},
    "output of a call": lambda items: {"input": [{"type": "function_call_output", "output": items}]},
    "a field that nobody knows": lambda items: {"messages": [], "x": {"y": [[items]]}},
}


@pytest.mark.parametrize("place", DEEP)
def test_objects_are_counted_at_any_depth(place):
    text = {"type": "text", "text": 'a {[,"\\ ' * 9}
    kept = json.dumps(DEEP[place]([text] * (LISTED_MAX // 2))).encode()
    check_body_items(kept)
    for separators in ((",", ":"), (" ,\r\n\t", ": ")):
        large = json.dumps(DEEP[place]([{}] * (LISTED_MAX + 1)), separators=separators).encode()
        with pytest.raises(ServeError, match="too many items") as raised:
            check_body_items(large)
        assert raised.value.status == 413


@pytest.mark.parametrize("item", [1, "a", [], {"a": 1}, None])
def test_values_are_counted_at_any_depth(item):
    for body in (
        {"stop": [item] * (VALUES_MAX + 1)},
        {"metadata": dict.fromkeys(range(VALUES_MAX + 1), item)},
    ):
        with pytest.raises(ServeError, match="too many items"):
            check_body_items(json.dumps(body).encode())


@pytest.mark.parametrize("text", ["abc {[, ", "\\u0041", '\\"', "\\\\", "é"])
def test_a_long_text_is_one_value(text):
    body = b'{"messages": [{"role": "user", "content": "%s"}]}' % (text * 500_000).encode()
    check_body_items(body)


def test_counting_is_linear_for_texts_that_do_not_end():
    def prepare(count):
        bodies = [start + b'\\"' * count + b"," * LISTED_MAX for start in (b'"', b"{", b"")]
        return lambda: [check_body_items(body) for body in bodies]

    assert_growth(prepare, 100_000, 600_000, 20.0)


def test_a_request_of_many_calls_is_refused_before_they_are_read(served):
    user = {"role": "user", "content": "hello"}
    calls = {"role": "assistant", "tool_calls": [make_call(number) for number in range(LISTED_MAX + 1)]}
    body = {"model": "helper", "messages": [user, calls, user]}
    reply = send(f"{served.url}/openai/v1/chat/completions", body, {"authorization": f"Bearer {TOKEN}"})
    assert reply.status == 413 and b"too many items" in reply.body, reply.body[:200]


@pytest.mark.parametrize("body", [b"", b"[", b"[1]", b'{"messages": 1}', b'{"messages": [1, "a"]}', b"\xff"])
def test_a_body_that_is_no_request_is_left_to_its_reader(body):
    check_body_items(body)


def test_streams_of_mcp_clients_are_limited_in_number(served, monkeypatch):
    monkeypatch.setattr("bridle.serve.mcp.STREAMS_MAX", 3)
    head = (
        f"GET /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {TOKEN}\r\n"
        "accept: text/event-stream\r\nmcp-protocol-version: 2025-06-18\r\n\r\n"
    ).encode()
    lines = []
    try:
        statuses = []
        for _ in range(5):
            lines.append(connect(served))
            lines[-1].sendall(head)
            statuses.append(int(lines[-1].recv(12).split()[1]))
        assert statuses == [200, 200, 200, 503, 503]
    finally:
        for line in lines:
            line.close()
    assert STREAMS_MAX >= 3


def test_two_agents_are_never_one_mcp_tool():
    agents = {"a.b": Agent("sim:"), "a_b": Agent("sim:")}
    with pytest.raises(MisuseError, match=r"'a\.b' and 'a_b' would both be the MCP tool 'a_b'; rename one"):
        AgentTools(AgentHost(agents))


def test_a_schema_that_explodes_is_refused_by_the_gateway():
    settings = {"models": {"any": {"chain": ["sim:"]}}}
    body = {
        "model": "any",
        "messages": [{"role": "user", "content": "hello"}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": BOMB}},
    }
    with serving_gateway(settings) as gateway:
        reply = send(f"{gateway.url}/openai/v1/chat/completions", body)
        assert reply.status == 400 and b"combines more than" in reply.body, reply.body[:300]
        assert send(f"{gateway.url}/health").status == 200


CLIENT_TOOLS = {
    "/openai/v1/chat/completions": {
        "model": "helper",
        "messages": [{"role": "user", "content": "hello"}],
        "tools": [{"type": "function", "function": {"name": "t", "parameters": BOMB}}],
    },
    "/openai/v1/responses": {
        "model": "helper",
        "input": "hello",
        "tools": [{"type": "function", "name": "t", "parameters": BOMB}],
    },
    "/anthropic/v1/messages": {
        "model": "helper",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "hello"}],
        "tools": [{"name": "t", "input_schema": BOMB}],
    },
    "/gemini/v1beta/models/helper:generateContent": {
        "contents": [{"role": "user", "parts": [{"text": "hello"}]}],
        "tools": [{"functionDeclarations": [{"name": "t", "parametersJsonSchema": BOMB}]}],
    },
}


@pytest.mark.parametrize("path", CLIENT_TOOLS)
def test_a_tool_of_a_client_with_a_schema_that_explodes_is_refused(served, path):
    reply = send(served.url + path, CLIENT_TOOLS[path], {"authorization": f"Bearer {TOKEN}"})
    assert reply.status == 400 and b"combines more than" in reply.body, (reply.status, reply.body[:300])
    assert send(f"{served.url}/health").status == 200
