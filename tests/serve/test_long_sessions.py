"""A server answers other requests while it reads a long session."""

import asyncio

import pytest
from in_loop import in_loop
from long_sessions import look_up, record_long
from serving import serve_agents

from bridle import Agent
from bridle.stores.memory import MemoryStore

RECORDS = 20_000
ANSWERS_MIN = 20
"""A server that reads the log in its event loop gives five at most; others give hundreds."""


@pytest.mark.parametrize("path", ["/api/sessions/long", "/api/sessions", "/api/sessions/long/messages"])
@in_loop
async def test_a_long_session_does_not_hold_up_other_requests(path):
    store = MemoryStore()
    async with serve_agents({"long": Agent("sim:", name="long", tools=[look_up])}, store) as serving:
        await record_long(store, serving.host.agents["long"], "long", RECORDS)
        shown, answers = asyncio.create_task(serving.exchange("GET", path)), 0
        while not shown.done():
            status, _, _ = await serving.exchange("GET", "/health/live")
            answers += status == 200
        assert shown.result()[0] == 200
        assert answers > ANSWERS_MIN
