"""What an agent takes of a server's list: no tool that cannot be called, no more than a limit, and nothing in silence."""

import asyncio
import socket
import time

import pytest

from bridle import Agent
from bridle.mcp import server
from bridle.stores.memory import MemoryStore
from bridle.tools.mcp.definitions import TOOLS_MAX
from bridle.values.events import ToolsChanged
from tests.tools.mcp.mcp_servers import hostile_server


def list_offers(*modes, **options):
    async def main():
        source = hostile_server(*modes, **options)
        try:
            return await source.list_tools()
        finally:
            await source.close()

    listing = asyncio.run(main())
    assert not listing.error, listing.error
    return {tool.spec.name.removeprefix("mcp__h__") for tool in listing.tools}, listing.notes


def test_a_tool_that_can_only_be_called_as_a_task_is_left_out_with_the_reason():
    names, notes = list_offers("tasks")
    assert "also_task" in names and "only_task" not in names
    assert [note for note in notes if "'only_task' is left out: it can only be called as a task" in note]


def test_a_tool_whose_schema_explodes_is_left_out_with_the_reason():
    names, notes = list_offers("bomb")
    assert "echo" in names and "bomb" not in names
    assert [note for note in notes if "'bomb' is left out: its schema combines more than" in note]


def test_of_countless_tools_the_first_are_used():
    names, notes = list_offers("countless", wait=60.0)
    assert len(names) == TOOLS_MAX
    assert any(f"only the first {TOOLS_MAX:,} of 50,0" in note for note in notes), notes[:3]


@pytest.mark.parametrize("pattern", ["ecoh", "read_*", "h__echo"])
def test_a_pattern_that_matches_no_tool_is_said(pattern, caplog):
    names, notes = list_offers(tools=["echo", pattern])
    assert names == {"echo"}
    assert [
        note for note in notes if f"no tool of the server matches '{pattern}', which `tools` names" in note
    ]
    assert pattern in caplog.text


def test_a_server_that_hangs_delays_the_first_run_by_the_wait_only():
    store = MemoryStore()

    async def main():
        source = server(f"http://127.0.0.1:{port}/mcp", name="slow", connect_timeout=300, wait=0.2)
        agent = Agent("sim:", tools=[source, hostile_server()], store=store)
        began = time.monotonic()
        result = await agent.run("!say hello", "s")
        took = time.monotonic() - began
        await source.close()
        return result, took

    with socket.create_server(("127.0.0.1", 0)) as listening:  # it accepts, and never answers
        port = listening.getsockname()[1]
        result, took = asyncio.run(main())
    assert result.text == "hello"
    assert took < 150, "the run waited for the whole connect timeout"
    reports = {
        record.event.server: record.event
        for record in asyncio.run(store.read("s"))
        if isinstance(record.event, ToolsChanged)
    }
    assert "no answer within 0.2 seconds; it is still being connected" in reports["slow"].error
    assert "h" not in reports or not reports["h"].error


def test_the_tools_of_a_slow_server_join_when_they_are_there():
    async def main():
        source = hostile_server(wait=0.000_001)
        first = await source.list_tools()
        async with asyncio.timeout(120):
            while (later := await source.refresh()).error:
                assert "still being connected" in later.error
                await asyncio.sleep(0)
        await source.close()
        return first, later

    first, later = asyncio.run(main())
    assert "still being connected" in first.error and not first.tools
    assert "mcp__h__echo" in {tool.spec.name for tool in later.tools}
