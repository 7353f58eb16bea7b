"""Servers at an address: streamable HTTP with and without a stream, and the older SSE; they vanish and come back."""

import asyncio
import contextlib
import subprocess
import sys
from pathlib import Path

import pytest

from bridle import Agent, OutcomeUnknown
from bridle.mcp import server
from bridle.sessions import ApprovalVerdict
from bridle.testing import scripted
from bridle.testing.scripted_model import call_reply
from tests.tools.mcp.mcp_servers import CONTEXT

SCRIPT = Path(__file__).parent / "http_server.py"


class HttpServer:
    def __init__(self, kind):
        self.kind, self.port, self.process = kind, 0, None
        self.start()

    def start(self):
        argv = [sys.executable, str(SCRIPT), self.kind, str(self.port)]
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline().split()[1])

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/{'sse' if self.kind == 'sse' else 'mcp'}"

    def source(self, **options):
        return server(self.url, name="w", transport="sse" if self.kind == "sse" else "http", **options)


@contextlib.contextmanager
def start_server(kind):
    started = HttpServer(kind)
    try:
        yield started
    finally:
        started.stop()


KINDS = pytest.mark.parametrize("kind", ["http", "json", "sse"])


@KINDS
def test_a_server_at_an_address_asks_a_person_during_a_call(kind):
    async def answer(question):
        assert question.question == "elicitation"
        return ApprovalVerdict(answer="approve", arguments={"title": "Shopping"})

    async def main(made):
        source = made.source(elicitation=True)
        agent = Agent(
            scripted(call_reply(("mcp__w__keep", {"text": "bread"})), "done"), tools=[source], approver=answer
        )
        result = await agent.run("go")
        await source.close()
        return [each.text for message in result.messages for each in message.results]

    with start_server(kind) as made:
        assert asyncio.run(main(made)) == ["Shopping: bread"]


@KINDS
def test_a_server_at_an_address_is_listed_and_called(kind):
    async def main(made):
        replies = call_reply(("mcp__w__add", {"a": 2, "b": 3}), ("mcp__w__header", {})), "done"
        agent = Agent(scripted(*replies), tools=[made.source(headers={"Authorization": "Bearer abcdefgh"})])
        result = await agent.run("go", "s")
        texts = [each.text for message in result.messages for each in message.results]
        # The structured content repeats them under one key; the credential arrived, and is not shown.
        assert texts == ["5", "Bearer [key]"]
        settings = [repr(record) for record in await agent.store.read("s")][:2]
        assert "abcdefgh" not in "".join(settings) and str(made.port) not in "".join(settings)

    with start_server(kind) as made:
        asyncio.run(main(made))


@pytest.mark.parametrize("kind", ["http", "json"])
def test_a_long_answer_arrives_and_one_above_the_limit_is_named(kind, monkeypatch):
    async def main(made):
        source = made.source()
        await source.list_tools()
        assert len((await source.call("mcp__w__long", {"size": 3_000_000}, CONTEXT))[0].text) == 3_000_000
        await source.close()
        monkeypatch.setattr("bridle.tools.mcp.connection.RESPONSE_BYTES_MAX", 500_000)
        await source.list_tools()
        with pytest.raises(OutcomeUnknown, match=r"SSE stream failed: |more than 500,000 bytes"):
            await source.call("mcp__w__long", {"size": 3_000_000}, CONTEXT)

    with start_server(kind) as made:
        asyncio.run(main(made))


@pytest.mark.slow
@KINDS
def test_a_server_that_dies_in_a_call_leaves_it_in_doubt_and_comes_back(kind):
    async def main(made):
        source = made.source(connect_timeout=5)
        assert not (await source.list_tools()).error
        with pytest.raises(OutcomeUnknown):
            await source.call("mcp__w__die", {}, CONTEXT)
        made.stop()
        listing = await source.list_tools()
        assert "cannot be used" in listing.error and listing.tools[0].spec.name == "mcp__w__add"
        made.start()
        for _ in range(3):  # the pause after a failure may be longer than a call waits
            listing = await source.list_tools()
            if not listing.error:
                break
        assert (await source.call("mcp__w__add", {"a": 1, "b": 1}, CONTEXT))[0].text.startswith("2")

    with start_server(kind) as made:
        asyncio.run(main(made))


def test_a_server_that_was_restarted_between_calls_is_not_noticed():
    async def main(made):
        source = made.source()
        await source.list_tools()
        made.stop()
        made.start()
        assert (await source.call("mcp__w__add", {"a": 1, "b": 1}, CONTEXT))[0].text.startswith("2")

    with start_server("http") as made:
        asyncio.run(main(made))


def test_addresses_that_cannot_be_used_say_why():
    async def main(made):
        wrong = server(f"http://127.0.0.1:{made.port}/nothing", connect_timeout=5)
        assert "cannot be used" in (await wrong.list_tools()).error
        closed = server(f"http://127.0.0.1:{made.port}/closed", connect_timeout=5)
        assert "cannot be used" in (await closed.list_tools()).error
        made.stop()
        gone = server(made.url, connect_timeout=5)
        assert "ConnectError" in (await gone.list_tools()).error

    with start_server("http") as made:
        asyncio.run(main(made))


def test_a_response_without_end_is_not_read_to_its_end(monkeypatch):
    monkeypatch.setattr("bridle.tools.mcp.connection.RESPONSE_BYTES_MAX", 1_000_000)

    async def main(made):
        endless = server(f"http://127.0.0.1:{made.port}/endless", connect_timeout=5)
        assert "a response of more than 1,000,000 bytes" in (await endless.list_tools()).error

    with start_server("http") as made:
        asyncio.run(main(made))
