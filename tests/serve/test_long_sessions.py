"""A long session is read in a thread: others go on meanwhile, and threads that hang do not hold it up."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from bridle import Agent
from bridle.run.recovery.session_log import LONG_LOG_RECORDS, load_log
from bridle.stores.memory import MemoryStore
from tests.serve.long_sessions import look_up, record_long
from tests.serve.serving import serve_agents
from tests.suite.in_loop import in_loop
from tests.suite.patience import PATIENCE_SECONDS

RECORDS = 60_000
ANSWERS_MIN = 10
"""A server that reads the log in its event loop gives five at most; others give many."""


@pytest.mark.slow
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


@in_loop
async def test_functions_that_hang_do_not_keep_a_long_session_from_being_read():
    store, release, loop = MemoryStore(), threading.Event(), asyncio.get_running_loop()
    await record_long(
        store, Agent("sim:", name="long", tools=[look_up], store=store), "long", LONG_LOG_RECORDS + 1
    )
    loop.set_default_executor(ThreadPoolExecutor(1))
    hung = asyncio.create_task(asyncio.to_thread(release.wait))
    try:
        log = await asyncio.wait_for(load_log(store, "long"), PATIENCE_SECONDS)
        assert log.length > LONG_LOG_RECORDS
    finally:
        release.set()
        await hung
