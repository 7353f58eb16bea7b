"""Data beyond the limit of its entry is refused or cut, for the entries that have no test of their own elsewhere.

Each function goes beyond one limit of docs/input_limits.py. A limit of many bytes is made small for it.
"""

import asyncio
import gzip
import logging
import sys
import threading
from argparse import Namespace
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from types import SimpleNamespace
from typing import Any
from zlib import crc32

import httpx2
import mcp.types as types
import pytest
from mcp.shared.message import SessionMessage

from bridle import Agent, Media, Message, PromptTemplate, Text, tool
from bridle.cli.commands.lock import _read_lock
from bridle.cli.commands.serving.serve import read_token
from bridle.config.toml_file import FILE_BYTES_MAX, read_toml_file
from bridle.core.note_tools import explain_no_room
from bridle.core.state import MemoryState
from bridle.evals.baseline import read_baseline
from bridle.ports.transport import OutgoingRequest
from bridle.providers import load_codec
from bridle.providers.wire.eventstream import MESSAGE_BYTES_MAX, EventStreamReader
from bridle.run.agent_settings import read_policy
from bridle.run.control.listener import STEER_CHARACTERS_MAX
from bridle.run.control.requests import SessionControl
from bridle.run.model_connection import send_request
from bridle.serve.wires.conversation import split_conversation
from bridle.sim.app import _decompress
from bridle.stores.memory import MemoryStore
from bridle.testing import scripted
from bridle.testing.replay_tests import read_fixture
from bridle.testing.scripted_model import call_reply
from bridle.tools.mcp.config_file import load_servers
from bridle.tools.mcp.connection import _limit_size
from bridle.tools.mcp.contents import PAGES_MAX, read_pages
from bridle.tools.mcp.definitions import SCHEMA_CHARACTERS_MAX, ListedTool, make_definitions
from bridle.tools.mcp.oauth import OAuth
from bridle.tools.mcp.requests import (
    MESSAGE_CHARACTERS_MAX,
    SAMPLING_CHARACTERS_MAX,
    URL_CHARACTERS_MAX,
    read_elicitation,
    read_sampling,
)
from bridle.tools.mcp.server_settings import ConnectionLost, SignInFailed
from bridle.tools.mcp.sign_in import REQUEST_BYTES_MAX, SignIn
from bridle.tools.mcp.sign_in_hosts import SignInHosts
from bridle.tools.mcp.stdio import STDERR_BYTES_MAX, ServerLog
from bridle.tools.mcp.token_store import TokenFile
from bridle.tools.mcp.tool_filter import ITEMS_MAX, FilteredStream
from bridle.tools.process.run_process import run_process
from bridle.transports import recorded
from bridle.transports.recorded import read_exchanges
from bridle.values.calls import RequestRefused
from bridle.values.errors import MisuseError, ProviderError
from bridle.values.memory import NOTE_CHARACTERS_MAX
from bridle.values.model import Endpoint, Model
from bridle.values.request import Request
from bridle.watchers.otel.endpoint import SignalEndpoint
from bridle.watchers.otel.exporter import SendFailed, post
from docs.input_limits import BEYOND, INPUT_LIMITS
from tests.suite.patience import PATIENCE_SECONDS

SMALL = 1_000
"""Replaces a limit of many bytes."""


class Pages:
    """A transport whose response never ends; counts what was taken of it."""

    def __init__(self):
        self.taken = 0

    @asynccontextmanager
    async def open(self, request):
        async def chunks():
            while self.taken < 100 * SMALL:
                self.taken += 100
                yield b"x" * 100

        yield SimpleNamespace(status=200, headers={}, chunks=chunks)


def go_beyond_a_body(small, folder):
    small("providers.wire.decoder.BODY_BYTES_MAX")
    endpoint = Endpoint(name="here", family="openai_chat")
    decoder = load_codec("openai_chat").new_decoder(Request(model=Model(id="m", endpoint=endpoint)), 200, {})
    decoder.feed(b"{" + b" " * (SMALL // 2))
    with pytest.raises(ProviderError, match="a reply of more than 1000 bytes"):
        decoder.feed(b" " * SMALL)


def go_beyond_another_response(small, folder):
    small("run.model_connection.RESPONSE_BYTES_MAX")
    pages = Pages()
    connection: Any = SimpleNamespace(
        model=Model(id="m", endpoint=Endpoint(name="here", family="gemini", base_url="http://x")),
        headers=(),
        private_extras=SimpleNamespace(credentials=(), texts=()),
        sign_request=None,
        transport=pages,
    )
    request: Any = SimpleNamespace(method="POST", path="/", headers=(), body=b"")
    with pytest.raises(ProviderError, match="exceeds 1,000 bytes"):
        asyncio.run(send_request(connection, request, 0.0))
    assert pages.taken < 2 * SMALL


def go_beyond_a_message(small, folder):
    lengths = (MESSAGE_BYTES_MAX + 1).to_bytes(4) + (0).to_bytes(4)
    with pytest.raises(ProviderError, match="invalid prelude"):
        EventStreamReader().feed(lengths + crc32(lengths).to_bytes(4) + b"x" * 100)


def go_beyond_a_list(small, folder):
    async def receive():
        listed = [{"uri": f"x://{n}", "name": "n"} for n in range(2 * ITEMS_MAX)]
        return SessionMessage(types.JSONRPCResponse(jsonrpc="2.0", id=1, result={"resources": listed}))

    found = asyncio.run(FilteredStream(SimpleNamespace(receive=receive), []).receive())
    assert (
        len(found.message.result["resources"]) == ITEMS_MAX + 1
    )  # the reader of pages sees that there were more


def go_beyond_a_tool_schema(small, folder):
    described = {"properties": {"x": {"type": "string", "description": "x" * SCHEMA_CHARACTERS_MAX}}}
    listed = ListedTool(name="t", description="", schema=described)
    found = make_definitions("s", [listed], trust=False, timeout_seconds=None)
    assert not found.specs
    assert any("at most 60,000 are accepted" in note for note in found.notes), found.notes


def go_beyond_a_sampling_request(small, folder):
    text = types.TextContent(type="text", text="x" * (SAMPLING_CHARACTERS_MAX + 1))
    asked: Any = types.CreateMessageRequestParams(
        messages=[types.SamplingMessage(role="user", content=text)], max_tokens=9
    )
    with pytest.raises(RequestRefused, match="at most 200,000 characters"):
        read_sampling(asked, SimpleNamespace(sampling=object(), name="s"))  # type: ignore[arg-type]


def go_beyond_an_oauth_response(small, folder):
    """A sign-in asks within the flow of another request, with the same client."""
    small("tools.mcp.connection.RESPONSE_BYTES_MAX")
    asked = []

    class Flow(httpx2.Auth):
        requires_response_body = True

        def auth_flow(self, request):
            yield httpx2.Request("GET", "http://x/.well-known/oauth-authorization-server")
            yield request

    def answer(request):
        asked.append(request.url.path)
        return httpx2.Response(200, stream=Endless())

    class Endless(httpx2.AsyncByteStream):
        async def __aiter__(self):
            for _ in range(100):
                yield b"x" * 100

    async def main():
        log: Any = SimpleNamespace(problem="")
        async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer), auth=Flow()) as client:
            client.event_hooks = {"request": [], "response": [partial(_limit_size, log)]}
            with pytest.raises(ConnectionLost, match="more than 1,000 bytes"):
                await client.get("http://x/mcp")

    asyncio.run(main())
    assert asked == ["/.well-known/oauth-authorization-server"]


def go_beyond_a_callback(small, folder):
    async def main():
        async def show(url):
            pass

        hosts: Any = SignInHosts("http://127.0.0.1/mcp")
        sign_in = SignIn(SimpleNamespace(name="s"), OAuth(open_url=show), hosts, lambda: None)  # type: ignore[arg-type]
        port = await sign_in.reserve_port(0)
        try:
            await sign_in.open_page("http://127.0.0.1/?state=a")
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /callback?state=a&code=" + b"x" * (4 * REQUEST_BYTES_MAX) + b"\r\n\r\n")
            with suppress(ConnectionResetError):  # it was closed with bytes unread
                assert await reader.read() == b""
            writer.close()
            assert not sign_in._returned.done()
        finally:
            sign_in.close()

    asyncio.run(main())


def go_beyond_a_token_file(small, folder):
    small("tools.mcp.token_store.FILE_BYTES_MAX")
    path = folder / "tokens.json"
    path.write_text('{"servers": {"s": "' + "x" * SMALL + '"}}')
    path.chmod(0o600)
    with pytest.raises(SignInFailed):
        asyncio.run(TokenFile(path).read("s"))


def go_beyond_an_error_text(small, folder):
    @tool(effect="read")
    def fail() -> str:
        """Fail."""
        raise ValueError("x" * 1_000_000)

    agent = Agent(scripted(call_reply(("fail", {})), "done"), tools=[fail])
    result = agent.run_sync("go")
    (found,) = (each for message in result.messages for each in message.results)
    assert found.is_error and len(found.text) < 5_000


def go_beyond_an_output(small, folder):
    program = [sys.executable, "-c", "import sys; sys.stdout.write('x' * 1_000_000)"]
    found = asyncio.run(run_process(program))
    assert len(found.stdout) < 100_000


def go_beyond_a_media_file(small, folder):
    small("values.media.FILE_BYTES_MAX")
    (folder / "a.png").write_bytes(b"x" * (SMALL + 1))
    for path in (folder / "a.png", "/dev/zero"):
        with pytest.raises(MisuseError, match="more than 1,000 bytes"):
            Media.from_path(path)


def go_beyond_a_note(small, folder):
    assert "1,000 characters at most" in explain_no_room(
        MemoryState(), "x" * (NOTE_CHARACTERS_MAX + 1), 10**9
    )


def go_beyond_steering(small, folder):
    control = SessionControl(MemoryStore(), "s")
    with pytest.raises(MisuseError, match="1 to 100,000 characters"):
        asyncio.run(control.steer("x" * (STEER_CHARACTERS_MAX + 1)))


def go_beyond_a_settings_file(small, folder):
    (folder / "a.toml").write_bytes(b"#" * (FILE_BYTES_MAX + 1))
    for path in (folder / "a.toml", type(folder)("/dev/zero")):
        with pytest.raises(MisuseError, match="is larger than 1,000,000 bytes"):
            read_toml_file(path)


def go_beyond_a_recording(small, folder):
    small("transports.recorded.FILE_BYTES_MAX")
    for path in (folder / "a.jsonl", type(folder)("/dev/zero")):
        if path.parent == folder:
            path.write_bytes(b"\n" * (SMALL + 1))
        with pytest.raises(MisuseError, match="more than 1,000 bytes"):
            read_exchanges(path)


@contextmanager
def serve_forever(handle):
    """A server that sends what `handle` says, without end; yields its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            self.send_response(200)
            self.end_headers()
            with suppress(OSError):  # the client has left
                handle(self.wfile)

        def log_message(self, *words):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1/traces"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def send_spans(handle, seconds):
    with (
        serve_forever(handle) as url,
        pytest.raises(SendFailed, match="its answer takes more than") as raised,
    ):
        post(b"", SignalEndpoint(url, {}, timeout_seconds=seconds, compressed=False, certificate=""))
    assert not raised.value.should_retry


def go_beyond_an_answer(small, folder):
    small("watchers.otel.exporter.ANSWER_BYTES_MAX")

    def flood(file):
        while True:
            file.write(b"x" * 100)

    send_spans(flood, PATIENCE_SECONDS)


def go_beyond_the_time_of_an_answer(small, folder):
    stopped = threading.Event()

    def trickle(file):
        while not stopped.wait(0.01):
            file.write(b"x")
            file.flush()

    try:
        send_spans(trickle, 0.1)
    finally:
        stopped.set()


def go_beyond_a_recorded_body(small, folder):
    small("transports.recorded.UNPACKED_BYTES_MAX")
    assert recorded._decompress(gzip.compress(b"x" * (SMALL + 1))) == b"[gzip of more than the limit]"


def go_beyond_a_conversation(small, folder):
    small("serve.wires.conversation.MESSAGES_MAX")
    said = Message(role="user", parts=(Text(text="a"),))
    with pytest.raises(ProviderError, match="at most 1,000 are accepted"):
        split_conversation([said] * (SMALL + 1))


def go_beyond_a_compressed_request(small, folder):
    small("sim.app.DECOMPRESSED_BYTES_MAX")
    outgoing = OutgoingRequest(
        method="POST",
        url="http://x/",
        headers=(("content-encoding", "gzip"),),
        body=gzip.compress(b"x" * (SMALL + 1)),
    )
    assert "too large" in _decompress(outgoing)[1]


def go_beyond_the_pages(small, folder):
    asked = []

    async def read(cursor):
        asked.append(cursor)
        return SimpleNamespace(next_cursor="more")

    assert asyncio.run(read_pages(read, lambda page: [])) == []
    assert len(asked) == PAGES_MAX


def go_beyond_a_question(small, folder):
    asked: Any = types.ElicitRequestFormParams(
        message="x" * (MESSAGE_CHARACTERS_MAX + 1), requested_schema={"type": "object", "properties": {}}
    )
    with pytest.raises(RequestRefused, match="at most 4,000 characters"):
        read_elicitation(asked, SimpleNamespace(name="s"))  # type: ignore[arg-type]


def go_beyond_an_address(small, folder):
    for length in (URL_CHARACTERS_MAX, URL_CHARACTERS_MAX + 1):
        url = "https://x/".ljust(length, "x")
        asked: Any = types.ElicitRequestURLParams(message="m", url=url, elicitation_id="e")
        if length <= URL_CHARACTERS_MAX:
            assert read_elicitation(asked, SimpleNamespace(name="s")).url == url  # type: ignore[arg-type]
            continue
        with pytest.raises(RequestRefused, match="the address is not"):
            read_elicitation(asked, SimpleNamespace(name="s"))  # type: ignore[arg-type]


def go_beyond_an_error_output(small, folder):
    captured = ServerLog().stderr
    for _ in range(100):
        captured.take(b"x" * STDERR_BYTES_MAX)
    assert len(captured.text()) < 2 * STDERR_BYTES_MAX


def go_beyond_a_file(constant, read):
    """Goes beyond the limit of a file that `read` reads, and reads a device, which has no end."""

    def attempt(small, folder):
        small(constant)
        (folder / "large").write_bytes(b" " * (SMALL + 1))
        for path in (folder / "large", type(folder)("/dev/zero")):
            with pytest.raises(MisuseError, match="more than 1,000 bytes"):
                read(path)

    return attempt


ATTEMPTS = {
    "compressed body that is recorded": go_beyond_a_recorded_body,
    "answer of an OpenTelemetry receiver": go_beyond_an_answer,
    "time of an answer of an OpenTelemetry receiver (default)": go_beyond_the_time_of_an_answer,
    "messages of a decoded conversation": go_beyond_a_conversation,
    "compressed request to the simulator": go_beyond_a_compressed_request,
    "pages of a list of an MCP server": go_beyond_the_pages,
    "question of an MCP server to a person": go_beyond_a_question,
    "address that an MCP server asks a person to open": go_beyond_an_address,
    "error output of an MCP server": go_beyond_an_error_output,
    "file of MCP servers (mcp.json)": go_beyond_a_file("tools.mcp.config_file.FILE_BYTES_MAX", load_servers),
    "lock file": go_beyond_a_file("cli.commands.lock.LOCK_BYTES_MAX", _read_lock),
    "baseline of evaluations": go_beyond_a_file("evals.baseline.BASELINE_BYTES_MAX", read_baseline),
    "file with a policy": go_beyond_a_file("run.agent_settings.POLICY_BYTES_MAX", read_policy),
    "file with a prompt template": go_beyond_a_file(
        "run.context.prompt_template.TEMPLATE_BYTES_MAX", PromptTemplate.from_path
    ),
    "file with the token of a server": go_beyond_a_file(
        "cli.commands.serving.serve.TOKEN_BYTES_MAX",
        lambda path: read_token(Namespace(token=None, token_file=path)),
    ),
    "records of a replay test": go_beyond_a_file("testing.replay_tests.FIXTURE_BYTES_MAX", read_fixture),
    "body of a provider's response": go_beyond_a_body,
    "response to a request besides model calls": go_beyond_another_response,
    "one message of a stream (AWS)": go_beyond_a_message,
    "resources or prompts of an MCP server": go_beyond_a_list,
    "schema of an MCP tool": go_beyond_a_tool_schema,
    "sampling request of an MCP server": go_beyond_a_sampling_request,
    "response of an OAuth server": go_beyond_an_oauth_response,
    "callback of an OAuth sign-in": go_beyond_a_callback,
    "file of OAuth tokens": go_beyond_a_token_file,
    "error text of a tool": go_beyond_an_error_text,
    "output of a program": go_beyond_an_output,
    "file of a `Media`": go_beyond_a_media_file,
    "text of a note of memory": go_beyond_a_note,
    "steering message of another process": go_beyond_steering,
    "configuration, agent and suite files": go_beyond_a_settings_file,
    "recorded traffic": go_beyond_a_recording,
}


@pytest.mark.parametrize("entry", [row.entry for row in INPUT_LIMITS if row.test == BEYOND])
def test_what_is_beyond_a_limit_is_refused_or_cut(entry, monkeypatch, tmp_path, caplog):
    caplog.set_level(logging.CRITICAL)

    def make_small(name):
        assert name in {row.constant for row in INPUT_LIMITS if row.entry == entry}
        module, _, constant = name.rpartition(".")
        monkeypatch.setattr(import_module(f"bridle.{module}"), constant, SMALL)

    ATTEMPTS[entry](make_small, tmp_path)
