"""What a client sends is limited before the work on it: heads, trailers, numbers of messages, streams, schemas."""

import asyncio
import json
import socket
import threading
import time
import tracemalloc
from contextlib import suppress

import msgspec
import pytest

from bridle import Agent
from bridle.core.calls import validation
from bridle.serve.body_limits import LISTED_MAX, MESSAGES_MAX, PARTS_MAX, VALUES_MAX, check_body_items
from bridle.serve.errors import ServeError
from bridle.serve.host import AgentHost
from bridle.serve.http_protocol import HEAD_BYTES_MAX
from bridle.serve.mcp import STREAMS_MAX, AgentTools
from bridle.serve.options import ServeOptions
from bridle.stores.memory import MemoryStore
from bridle.values.errors import MisuseError
from bridle.values.events import ModelReplied
from bridle.values.record import GENESIS, seal_record
from tests.serve.raw_http import send
from tests.serve.served import serve_by_name, serving_gateway
from tests.suite.growth import assert_growth, measure_slowness
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


@pytest.mark.parametrize("item", [0, {}, "a"])
def test_a_message_of_countless_values_to_mcp_is_refused_before_it_is_read(served, item):
    key = {"authorization": f"Bearer {TOKEN}", "accept": "application/json, text/event-stream"}
    arguments = {"prompt": "!say hi", "x": [item] * (VALUES_MAX + 1)}
    call = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "helper", "arguments": arguments},
    }
    reply = send(f"{served.url}/mcp", call, key)
    assert reply.status == 413 and b"too many items" in reply.body, reply.body[:200]
    assert send(f"{served.url}/mcp", [{}] * (LISTED_MAX + 1), key).status == 413
    arguments["x"] = []
    reply = send(f"{served.url}/mcp", call, key)
    assert reply.status == 200 and reply.events[-1]["result"]["structuredContent"]["text"] == "hi"


BLOCKED_SECONDS_MAX = 5.0
"""CPU seconds for which one request may keep the event loop, on the machine of `measure_slowness`."""
NEARLY_TOO_LARGE = {
    "messages": TINY["/openai/v1/chat/completions"](MESSAGES_MAX - 100),
    "tools": {
        "model": "m",
        "messages": [{"role": "user", "content": "a"}],
        "tools": [
            {"type": "function", "function": {"name": f"t{n}", "parameters": {"type": "object"}}}
            for n in range(MESSAGES_MAX - 100)
        ],
    },
    "parts": {
        "model": "m",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}] * (PARTS_MAX // 10 - 10)}]
        * 10,
    },
}


async def measure_longest_turn(done):
    """CPU seconds of the longest turn of this event loop until `done`."""
    longest = 0.0
    while not done.is_set():
        begun = time.thread_time()
        await asyncio.sleep(0)
        longest = max(longest, time.thread_time() - begun)
    return longest


@pytest.mark.slow
@pytest.mark.parametrize("kind", NEARLY_TOO_LARGE)
def test_others_are_served_beside_a_request_just_below_the_limits(served, kind):
    done, replies, answers = threading.Event(), [], []
    key = {"authorization": f"Bearer {TOKEN}"}

    def ask():
        try:
            replies.append(send(f"{served.url}/openai/v1/chat/completions", NEARLY_TOO_LARGE[kind], key))
        finally:
            done.set()

    def look():
        while not done.is_set():
            status = send(f"{served.url}/health").status
            if not done.is_set():
                answers.append(status)

    threads = [threading.Thread(target=ask), threading.Thread(target=look)]
    for thread in threads:
        thread.start()
    longest = served.run(measure_longest_turn(done))
    for thread in threads:
        thread.join()
    assert replies[0].status == 200, replies[0].body[:200]
    assert answers and {*answers} == {200}, "no one was served until the request was answered"
    assert longest < BLOCKED_SECONDS_MAX * measure_slowness(), (
        f"the event loop was kept for {longest:.2f} CPU seconds"
    )


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


def ask_ag_ui(url, text, **fields):
    message = {"id": text, "role": "user", "content": text}
    return send(
        f"{url}/api/ag-ui/helper",
        {"threadId": "t", "runId": "r", "messages": [message], "tools": [], **fields},
    )


BOMB_TOOL = {"name": "t", "description": "Explodes.", "parameters": BOMB}


def test_a_tool_of_an_ag_ui_client_with_a_schema_that_explodes_is_refused():
    store = MemoryStore()
    with serve_by_name({"helper": Agent("sim:")}, store=store) as running:
        reply = ask_ag_ui(running.url, '!call t {"x": "a"}', tools=[BOMB_TOOL])
        assert reply.status == 400 and b"combines more than" in reply.body, (reply.status, reply.body[:300])
        assert send(f"{running.url}/health").status == 200
    assert not asyncio.run(store.read("t"))


def write_exploding_log(monkeypatch):
    """A log that waits for a call of a tool whose schema explodes on the call's arguments."""
    store, copied = MemoryStore(), MemoryStore()
    with monkeypatch.context() as lifted, serve_by_name({"helper": Agent("sim:")}, store=store) as running:
        lifted.setattr("bridle.values.schema_limits.APPLIED_MAX", 10**15)
        assert ask_ag_ui(running.url, "!call t {}", tools=[BOMB_TOOL]).status == 200
    validation._load_validator.cache_clear()  # a process that starts has none
    validation._load_closed_schema.cache_clear()
    records, changed = asyncio.run(store.read("t")), 0
    copies, prev = [], GENESIS
    for record in records:
        event = record.event
        if isinstance(event, ModelReplied):
            reply = msgspec.json.encode(event)
            changed += reply.count(b'"arguments":"{}"')
            event = msgspec.json.decode(
                reply.replace(b'"arguments":"{}"', b'"arguments":"{\\"x\\": \\"a\\"}"'), type=ModelReplied
            )
        copies.append(seal_record(record.seq, record.at, event, prev))
        prev = copies[-1].hash
    assert changed == 1
    asyncio.run(copied.append("t", 0, copies))
    return copied


def test_a_session_whose_log_holds_a_schema_that_explodes_goes_on_after_a_restart(monkeypatch):
    store = write_exploding_log(monkeypatch)
    with serve_by_name({"helper": Agent("sim:")}, store=store) as running:
        reply = ask_ag_ui(running.url, "!say again", tools=[BOMB_TOOL])
        assert reply.status == 400 and b"combines more than" in reply.body, (reply.status, reply.body[:300])
        result = {"id": "m", "role": "tool", "toolCallId": "c1_0", "content": "1"}
        reply = ask_ag_ui(running.url, "", messages=[result])
        assert reply.status == 400 and b"does not wait" in reply.body, (reply.status, reply.body[:300])
        reply = ask_ag_ui(running.url, "!say again")
        assert reply.status == 200 and b'"delta":"again"' in reply.body, reply.body[:300]
        assert send(f"{running.url}/health").status == 200
