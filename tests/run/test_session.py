"""One driver per session, and a valid transcript after every end."""

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from bridle import Agent, tool
from bridle.errors import Conflict
from bridle.stores import open_store
from bridle.stores.memory import MemoryStore
from bridle.testing import scripted
from bridle.testing.scripted_model import call_reply

DRIVER = """
import asyncio, sys
from bridle import Agent, tool
from bridle.testing import scripted
from bridle.testing.scripted_model import call_reply

@tool
async def pay() -> str:
    '''Pay.'''
    print("paying", flush=True)
    await asyncio.Event().wait()

Agent(scripted(call_reply(("pay", {})), "x"), tools=[pay], store=sys.argv[1]).run_sync("hello", session="s")
"""


@tool
async def pay() -> str:
    """Pay."""
    return "paid"


def agent(store):
    return Agent(scripted(call_reply(("pay", {})), "after all", "and on"), tools=[pay], store=store)


def test_a_driven_session_is_not_taken_over_and_a_crashed_one_is_free(tmp_path):
    path = tmp_path / "log.db"
    other = subprocess.Popen([sys.executable, "-c", DRIVER, str(path)], stdout=subprocess.PIPE, text=True)
    assert other.stdout.readline() == "paying\n"
    here = agent(path)
    with pytest.raises(Conflict, match="in use by another run"):
        here.run_sync("me too", session="s")
    with pytest.raises(Conflict, match="in use by another run"):
        asyncio.run(here.resume("s"))
    assert here.run_sync("elsewhere", session="t").stop == "done"
    os.kill(other.pid, signal.SIGKILL)
    other.wait()
    other.stdout.close()
    result = here.run_sync("me too", session="s")
    assert result.text == "after all"
    assert [r.outcome for m in result.messages for r in m.results] == ["unknown"]
    asyncio.run(here.store.close())


@pytest.mark.parametrize("where", ["memory", "file"])
def test_the_same_within_a_process(where, tmp_path):
    async def main():
        stores = (
            [MemoryStore()] * 2 if where == "memory" else [open_store(tmp_path / "l.db") for _ in range(2)]
        )
        entered, leave = asyncio.Event(), asyncio.Event()

        @tool
        async def wait() -> str:
            """Wait."""
            entered.set()
            await leave.wait()
            return "done"

        first = Agent(scripted(call_reply(("wait", {})), "first"), tools=[wait], store=stores[0])
        running = asyncio.create_task(first.run("hello", session="s"))
        await entered.wait()
        with pytest.raises(Conflict, match="in use by another run"):
            await agent(stores[1]).run("me too", session="s")
        leave.set()
        assert (await running).text == "first"
        for store in stores:
            await store.close()

    asyncio.run(main())


def test_a_second_cancel_does_not_lose_the_end():
    async def main():
        closing, entered = asyncio.Event(), asyncio.Event()

        class Slow(MemoryStore):
            async def append(self, session, after, records, *, epoch=None):
                if type(records[0].event).__name__ == "RunEnded":
                    closing.set()
                    for _ in range(5):
                        await asyncio.sleep(0)
                await super().append(session, after, records, epoch=epoch)

        @tool
        async def hang() -> str:
            """Wait for ever."""
            entered.set()
            await asyncio.Event().wait()

        store = Slow()
        task = asyncio.create_task(
            Agent(scripted(call_reply(("hang", {}))), tools=[hang], store=store).run("?", session="s")
        )
        await entered.wait()
        task.cancel()
        await closing.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await store.read("s"))[-1].event.stop == "cancelled"

    asyncio.run(main())
