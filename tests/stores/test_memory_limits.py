"""An agent without `store=` keeps a bounded number of sessions, and drops none that is in use."""

import asyncio
import gc

import pytest

from bridle import Agent, MisuseError, tool
from bridle.errors import SessionNotFound
from bridle.stores import SESSIONS_IN_MEMORY, memory, open_store
from bridle.stores.memory import MemoryStore

BLOB = b"x" * 10_000


def count_sessions(store):
    return len(asyncio.run(store.sessions(limit=10**6)))


def test_an_agent_without_a_store_keeps_a_bounded_number_of_sessions(monkeypatch):
    assert open_store(None)._sessions_max == open_store(":memory:")._sessions_max == SESSIONS_IN_MEMORY  # type: ignore[attr-defined]
    monkeypatch.setattr("bridle.stores.SESSIONS_IN_MEMORY", 20)
    agent = Agent("sim:")

    async def main():
        for number in range(100):
            await agent.run("!say hello", f"s{number}")

    asyncio.run(main())
    gc.collect()
    assert count_sessions(agent.store) == 20
    kept = {info.id for info in asyncio.run(agent.store.sessions())}
    assert kept == {f"s{number}" for number in range(80, 100)}, "those used last"


@pytest.mark.parametrize("runs", [200, 400])
def test_what_a_store_holds_does_not_grow_with_the_number_of_runs(runs):
    """All containers of the store, after any number of runs with tools, blobs and forks."""
    store = MemoryStore(sessions_max=10, bytes_max=1 << 20)

    @tool
    def read() -> str:
        """Return a long text, which is stored as a blob."""
        return f"{BLOB.decode()} " * 10

    agent = Agent("sim:", tools=[read], store=store)

    async def main():
        for number in range(runs):
            await agent.run("!call read {}" if number % 10 == 0 else "!say x", f"s{number}")
            if number % 50 == 0:
                await agent.fork(f"s{number}", new=f"f{number}")
            await store.put_blob(b"never used %d" % number)

    asyncio.run(main())
    gc.collect()
    assert len(store._lines) <= 10
    assert store._bytes <= 1 << 20
    assert len(store._blob_uses) <= 10
    assert len(store._blobs) <= 10 + memory.UNUSED_BLOBS_MAX
    assert store._bytes == sum(line.bytes for line in store._lines.values()) + sum(
        len(store._blobs[hash_]) for hash_ in store._blob_uses
    )


def test_a_dropped_session_says_what_to_type_and_is_not_started_again():
    agent = Agent("sim:", store=MemoryStore(sessions_max=2))
    agent.run_sync("!say my name is Ann", "ann")
    for number in range(3):
        agent.run_sync("!say x", f"s{number}")
    for use in (
        lambda: agent.run_sync("!say who am I?", "ann"),
        lambda: agent.run_sync("!say who am I?", "ann", new=True),
        lambda: agent.resume_sync("ann"),
        lambda: asyncio.run(agent.fork("ann")),
        lambda: asyncio.run(agent.approvals("ann")),
    ):
        with pytest.raises(SessionNotFound, match=r'"log\.db"'):
            use()


def test_sessions_that_a_result_holds_stay():
    agent = Agent("sim:", store=MemoryStore(sessions_max=2))
    held = [agent.run_sync("!say hello") for _ in range(5)]
    for _ in range(200):
        agent.run_sync("!say x")
    for result in held:
        assert agent.run_sync("!say again", result.session).text == "again"
    del held, result
    gc.collect()
    for _ in range(20):
        agent.run_sync("!say x")
    assert count_sessions(agent.store) == 2


def test_sessions_that_wait_for_a_person_or_run_stay():
    @tool(effect="write", approve=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    entered = asyncio.Event()

    @tool(timeout=None)
    async def hang() -> str:
        """Wait."""
        entered.set()
        await asyncio.Event().wait()

    agent = Agent("sim:", tools=[pay, hang], store=MemoryStore(sessions_max=1, bytes_max=1))

    async def main():
        assert (await agent.run("!call pay {}", "waiting")).stop == "waiting"
        running = asyncio.create_task(agent.run("!call hang {}", "running"))
        await entered.wait()
        for _ in range(200):
            await agent.run("!say x")
        (question,) = await agent.approvals("waiting")
        await agent.approve("waiting", question.id)
        assert (await agent.resume("waiting")).stop == "done"
        running.cancel()
        await asyncio.wait((running,))
        return {info.id for info in await agent.store.sessions()}

    assert "running" in asyncio.run(main())


def test_a_parent_of_a_fork_stays_until_the_fork_is_dropped():
    store = MemoryStore(sessions_max=2)
    agent = Agent("sim:", store=store)
    agent.run_sync("!say one", "parent")
    asyncio.run(agent.fork("parent", new="child"))
    agent.run_sync("!say two", "child")
    held = agent.run_sync("!say three", "child")
    gc.collect()
    for _ in range(20):
        agent.run_sync("!say x")
    assert {"parent", "child"} <= {info.id for info in asyncio.run(store.sessions())}
    assert agent.run_sync("!say four", "child").text == "four"
    del held
    gc.collect()
    for _ in range(20):
        agent.run_sync("!say x")
    assert len(store._lines) == 2


def test_a_store_without_limits_drops_nothing():
    store = MemoryStore()
    agent = Agent("sim:", store=store)
    for number in range(30):
        agent.run_sync("!say x", f"s{number}")
    assert count_sessions(store) == 30


@pytest.mark.parametrize(
    "given", [{"sessions_max": 0}, {"bytes_max": -1}, {"sessions_max": True}, {"bytes_max": "1"}]
)
def test_wrong_limits_are_refused(given):
    with pytest.raises(MisuseError, match="takes a positive number or None"):
        MemoryStore(**given)
