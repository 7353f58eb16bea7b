"""Data beyond the limit of its entry is refused or cut, for the entries that have no test of their own elsewhere.

Each function goes beyond one limit of docs/input_limits.py. A limit of many bytes is made small for it.
"""

import asyncio
import logging
import sys
from contextlib import asynccontextmanager, suppress
from functools import partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any
from zlib import crc32

import httpx2
import mcp.types as types
import pytest
from mcp.shared.message import SessionMessage

from bridle import Agent, Media, tool
from bridle.config.toml_file import FILE_BYTES_MAX, read_toml_file
from bridle.core.note_tools import explain_no_room
from bridle.core.state import MemoryState
from bridle.providers import load_codec
from bridle.providers.wire.eventstream import MESSAGE_BYTES_MAX, EventStreamReader
from bridle.run.control.listener import STEER_CHARACTERS_MAX
from bridle.run.control.requests import SessionControl
from bridle.run.model_connection import send_request
from bridle.stores.memory import MemoryStore
from bridle.testing import scripted
from bridle.testing.scripted_model import call_reply
from bridle.tools.mcp.connection import _limit_size
from bridle.tools.mcp.definitions import SCHEMA_CHARACTERS_MAX, ListedTool, make_definitions
from bridle.tools.mcp.oauth import OAuth
from bridle.tools.mcp.requests import SAMPLING_CHARACTERS_MAX, read_sampling
from bridle.tools.mcp.server_settings import ConnectionLost, SignInFailed
from bridle.tools.mcp.sign_in import REQUEST_BYTES_MAX, SignIn
from bridle.tools.mcp.sign_in_hosts import SignInHosts
from bridle.tools.mcp.token_store import TokenFile
from bridle.tools.mcp.tool_filter import ITEMS_MAX, FilteredStream
from bridle.tools.process.run_process import run_process
from bridle.transports.recorded import read_exchanges
from bridle.values.calls import RequestRefused
from bridle.values.errors import MisuseError, ProviderError
from bridle.values.memory import NOTE_CHARACTERS_MAX
from bridle.values.model import Endpoint, Model
from bridle.values.request import Request
from docs.input_limits import BEYOND, INPUT_LIMITS

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


ATTEMPTS = {
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
