"""Served agents as tools of an MCP server: with the protocol's own client, and with an agent that uses another."""

import asyncio
import sys
import threading

import pytest

import bridle
from bridle import Agent, tool
from bridle.core.recovery.log_repair import fold_log
from bridle.run.archive.sessions import list_sessions
from tests.serve.served import serve_by_name
from tests.suite.in_loop import in_loop
from tests.suite.patience import PATIENCE_SECONDS

AGENTS = """
from bridle import Agent, tool

@tool(effect="read")
def look_up(name: str) -> str:
    \"\"\"Look a name up.\"\"\"
    print("a tool that prints")
    return f"{name} is free"

helper = Agent("sim:", tools=[look_up], name="helper")
"""


@tool(effect="read")
def look_up(name: str) -> str:
    """Look a name up."""
    return f"{name} is free"


async def talk(client):
    listed = await client.list_tools()
    assert [each.name for each in listed.tools] == ["helper"]
    steps = []

    async def note(progress, total, message):
        steps.append(message)

    first = await client.call_tool(
        "helper", {"prompt": '!call look_up {"name": "m1"}\n!then\n!say it is free'}, progress_callback=note
    )
    assert not first.is_error and first.structured_content["text"] == "it is free"
    session = first.structured_content["session"]
    assert session in first.content[0].text
    second = await client.call_tool("helper", {"prompt": "!say bye", "session": session})
    assert second.structured_content == {"session": session, "stop": "done", "text": "bye", "reason": ""}
    unknown = await client.call_tool("helper", {"prompt": "hi", "session": "20260101-abcdefgh"})
    assert unknown.is_error and "no session" in unknown.content[0].text
    wrong = await client.call_tool("helper", {"prompt": 5})
    assert wrong.is_error
    return steps


@in_loop
async def test_program_speaks_the_protocol(tmp_path):
    from mcp import StdioServerParameters

    (tmp_path / "agents.py").write_text(AGENTS)
    arguments = ["-m", "bridle.cli.main", "serve", "agents.py", "--mcp", "--store", "log.db"]
    program = StdioServerParameters(command=sys.executable, args=arguments, cwd=str(tmp_path))
    with (tmp_path / "errors.txt").open("w") as errors:
        await talk_to_program(program, errors)
    assert (tmp_path / "log.db").exists()


async def talk_to_program(program, errors):
    from mcp import ClientSession
    from mcp.client.stdio import stdio_client

    async with (
        asyncio.timeout(PATIENCE_SECONDS),
        stdio_client(program, errors) as (received, sent),
        ClientSession(received, sent) as client,
    ):
        await client.initialize()
        steps = await talk(client)
        assert "calls look_up" in steps


def test_protocol_over_http():
    from mcp import ClientSession
    from mcp.client.streamable_http import streamable_http_client

    async def run(url):
        async with (
            asyncio.timeout(PATIENCE_SECONDS),
            streamable_http_client(f"{url}/mcp") as streams,
            ClientSession(streams[0], streams[1]) as client,
        ):
            await client.initialize()
            await talk(client)

    with serve_by_name({"helper": Agent("sim:", tools=[look_up])}) as served:
        asyncio.run(run(served.url))


def test_agent_uses_another_through_the_protocol():
    with serve_by_name({"helper": Agent("sim:", tools=[look_up])}) as served:
        outer = Agent("sim:", tools=[bridle.mcp.server(f"{served.url}/mcp", name="team")])
        result = outer.run_sync('!call mcp__team__helper {"prompt": "!say from within"}\n!then\n!say done')
        results = [part for message in result.messages for part in message.results]
        assert "from within" in results[0].text, results


def test_cancelled_call_ends_the_run():
    from mcp import ClientSession
    from mcp.client.streamable_http import streamable_http_client

    started, ended = threading.Event(), threading.Event()

    @tool(effect="read", timeout=PATIENCE_SECONDS)
    async def wait_long() -> str:
        """Wait."""
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ""

    async def run(url):
        async with (
            streamable_http_client(f"{url}/mcp") as streams,
            ClientSession(streams[0], streams[1]) as client,
        ):
            await client.initialize()
            call = asyncio.create_task(client.call_tool("helper", {"prompt": "!call wait_long {}"}))
            await asyncio.to_thread(started.wait, PATIENCE_SECONDS)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)

    with serve_by_name({"helper": Agent("sim:", tools=[wait_long])}) as served:
        asyncio.run(run(served.url))
        assert ended.wait(PATIENCE_SECONDS)

        async def read():
            while len(served.host.runs):
                await asyncio.sleep(0)
            infos = await list_sessions(served.host.store, 10)
            return [fold_log(await served.host.store.read(info.id)).state.run.end.stop for info in infos]

        assert served.run(read()) == ["cancelled"]


def test_token_guards_the_protocol_too():
    from bridle.serve.options import ServeOptions
    from tests.serve.raw_http import send

    with serve_by_name({"helper": Agent("sim:")}, options=ServeOptions(token="t" * 20)) as served:
        assert send(f"{served.url}/mcp", {"jsonrpc": "2.0", "id": 1, "method": "ping"}).status == 401


@pytest.mark.parametrize("arguments", [[]])
def test_agents_are_needed(arguments, capsys):
    from bridle.cli.main import main

    assert main(["serve", "--mcp", "--store", ":memory:", *arguments]) == 2
    assert "needs agents" in capsys.readouterr().err
