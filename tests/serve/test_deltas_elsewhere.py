"""Deltas and progress of a run reach the viewers of another server of the store, before they are recorded."""

import asyncio

from bridle import Agent, RunContext, tool
from bridle.events import ModelReplied, Progress, ToolFinished
from bridle.serve.client import ServedEvent
from tests.serve.serving import serve_agents
from tests.suite.in_loop import in_loop
from tests.suite.patience import PATIENCE_SECONDS

waits = {}


@tool(effect="read")
async def bake(run: RunContext, cakes: int) -> str:
    """Bake cakes."""
    for number in range(1, cakes + 1):
        run.progress(f"cake {number}", number / cakes)
    await waits["oven"].wait()
    return "baked"


async def view_until(client, session, is_enough):
    """What a viewer sees until it is enough."""
    seen = []
    async with asyncio.timeout(PATIENCE_SECONDS):
        async for item in client.stream(session):
            seen.append(item)
            if is_enough(seen):
                return seen
    raise AssertionError(f"the stream ended: {seen}")


def join_text(seen):
    return "".join(getattr(item, "text", "") for item in seen if not isinstance(item, ServedEvent))


def list_progress(seen):
    return [item.message for item in seen if isinstance(item, Progress)]


def list_events(seen, kind):
    return [item for item in seen if isinstance(item, ServedEvent) and isinstance(item.event, kind)]


@in_loop
async def test_the_text_of_a_reply_is_seen_on_another_server_while_it_is_received(shared_log):
    agents = {"baker": Agent("sim:", name="baker")}
    async with serve_agents(agents, shared_log) as first, serve_agents(agents, shared_log) as second:
        await first.client.prompt("!say one two three\n!stall 3600", session="a", new=True)
        seen = await view_until(second.client, "a", join_text)
        assert "one two three".startswith(join_text(seen).strip()) and not list_events(seen, ModelReplied)
        await second.client.cancel("a")


@in_loop
async def test_progress_of_a_tool_is_seen_on_another_server_while_it_works(shared_log):
    waits["oven"] = asyncio.Event()
    agents = {"baker": Agent("sim:", name="baker", tools=[bake])}
    async with serve_agents(agents, shared_log) as first, serve_agents(agents, shared_log) as second:
        await first.client.prompt('!call bake {"cakes": 3}\n!then\n!say done', session="a", new=True)
        seen = await view_until(second.client, "a", lambda seen: len(list_progress(seen)) == 3)
        assert list_progress(seen) == ["cake 1", "cake 2", "cake 3"]
        assert not list_events(seen, ToolFinished)
        waits["oven"].set()
        seen = [item async for item in second.client.stream("a", after=0)]
        assert list_events(seen, ToolFinished)
