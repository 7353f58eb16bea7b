"""Leaving a stream ends its run, and the next prompt of the session works at once, however it was left."""

import asyncio
import gc
import sys
import threading
import types
from contextlib import aclosing, suppress

import pytest

from bridle import Agent, tool
from bridle.errors import Conflict
from bridle.run.control import holders
from bridle.run.sync import NOTEBOOK_MODULE
from bridle.sessions import redact_record
from bridle.stores import open_store
from bridle.stores.memory import MemoryStore
from bridle.testing import scripted
from bridle.values import events as e
from tests.suite.patience import PATIENCE_SECONDS

PROMPTS = 3
HANG = "!call hang {}"


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def place(request, tmp_path):
    if request.param == "memory":
        return MemoryStore()
    if request.param == "sqlite":
        return str(tmp_path / "log.db")
    return request.getfixturevalue("postgres").new_url()


def make_agent(store):
    @tool(timeout=None)
    async def hang() -> str:
        """Wait for ever."""
        await asyncio.Event().wait()

    return Agent("sim:", tools=[hang], store=store)


def is_in_tool(item):
    return isinstance(item, e.ToolStarted)


async def leave_by_break(agent):
    async for item in agent.stream(HANG, session="s"):
        if is_in_tool(item):
            break


async def leave_by_return(agent):
    async for item in agent.stream(HANG, session="s"):
        if is_in_tool(item):
            return


async def leave_by_exception(agent):
    with suppress(ValueError):
        async for item in agent.stream(HANG, session="s"):
            if is_in_tool(item):
                raise ValueError


async def leave_by_aclose(agent):
    items = aiter(agent.stream(HANG, session="s"))
    async for item in items:
        if is_in_tool(item):
            break
    await items.aclose()


async def leave_by_aclosing(agent):
    async with aclosing(aiter(agent.stream(HANG, session="s"))) as items:
        async for item in items:
            if is_in_tool(item):
                break


async def leave_by_async_with(agent):
    async with agent.stream(HANG, session="s") as stream:
        async for item in stream:
            if is_in_tool(item):
                break


async def leave_by_dropping_the_iterator(agent):
    items = aiter(agent.stream(HANG, session="s"))
    while not is_in_tool(await anext(items)):
        pass
    del items


async def leave_by_a_cycle(agent):
    """The iterator is part of a cycle, which the collector finds."""
    items = aiter(agent.stream(HANG, session="s"))
    while not is_in_tool(await anext(items)):
        pass
    cycle = [items]
    cycle.append(cycle)
    del items, cycle
    gc.collect()


async def leave_by_cancelling_the_reader(agent):
    """The task that reads is cancelled, and nobody waits for its end."""
    entered = asyncio.Event()

    async def read():
        async for item in agent.stream(HANG, session="s"):
            if is_in_tool(item):
                entered.set()

    task = asyncio.create_task(read())
    await entered.wait()
    task.cancel()


async def leave_by_cancelling_in_the_body(agent):
    entered = asyncio.Event()

    async def read():
        async for item in agent.stream(HANG, session="s"):
            if is_in_tool(item):
                entered.set()
                await asyncio.Event().wait()

    task = asyncio.create_task(read())
    await entered.wait()
    task.cancel()


async def leave_by_timeout(agent):
    with suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE_SECONDS) as limit:
            async for item in agent.stream(HANG, session="s"):
                if is_in_tool(item):
                    limit.reschedule(0)


async def leave_by_cancel_of_the_handle(agent):
    handle = agent.stream(HANG, session="s").start()
    async for item in handle.view():
        if is_in_tool(item):
            break
    handle.cancel()


async def leave_by_cancelling_a_run(agent):
    """Without a stream: a run in a task that is cancelled and not awaited."""
    entered = asyncio.Event()

    class Watch:
        def on_event(self, session, happening):
            if is_in_tool(getattr(happening, "event", None)):
                entered.set()

    watched = Agent(
        "sim:",
        tools=list(agent.tools.values()),
        store=agent.store,
        watchers=[Watch()],
    )
    task = asyncio.create_task(watched.run(HANG, session="s"))
    await entered.wait()
    task.cancel()


WAYS = [found for name, found in sorted(globals().items()) if name.startswith("leave_by_")]


@pytest.mark.parametrize("leave", WAYS, ids=lambda way: way.__name__)
def test_the_next_prompt_works_at_once(place, leave):
    async def main():
        store = open_store(place) if isinstance(place, str) else place
        agent = make_agent(store)
        for _ in range(PROMPTS):  # several times in a row
            await leave(agent)
        result = await agent.run("!say later", session="s")
        ends = [each.event.stop for each in await store.read("s") if isinstance(each.event, e.RunEnded)]
        await store.close()
        return result, ends

    result, ends = asyncio.run(asyncio.wait_for(main(), PATIENCE_SECONDS))
    assert result.text == "later"
    assert ends == [*["cancelled"] * PROMPTS, "done"]


def test_the_next_prompt_works_whatever_item_was_the_last(place):
    """The next record of the run is often being written just then."""

    async def main():
        store = open_store(place) if isinstance(place, str) else place
        agent, texts, length = Agent("sim:", store=store), [], 0
        while length == len(texts):
            session, length = f"s{len(texts)}", 0
            async for _ in agent.stream("!say one two", session=session):
                length += 1
                if length > len(texts):
                    break
            for _ in range(2):
                last = await agent.run("!say later", session=session)
            texts.append(last.messages[-1].text)
        await store.close()
        return texts

    texts = asyncio.run(asyncio.wait_for(main(), PATIENCE_SECONDS))
    assert len(texts) > 3
    assert all(text.endswith("later") for text in texts)


def test_a_record_can_be_redacted_at_once_after_a_stream_was_left(tmp_path):
    async def main():
        store = open_store(str(tmp_path / "log.db"))
        agent = make_agent(store)
        await leave_by_break(agent)
        records = await store.read("s")
        number = next(record.seq for record in records if isinstance(record.event, e.Prompted))
        redaction = await redact_record(store, "s", number, reason="privacy", by="me")
        await store.close()
        return redaction.record == number

    assert asyncio.run(asyncio.wait_for(main(), PATIENCE_SECONDS))


def test_a_left_stream_cannot_be_waited_for_by_blocking_its_loop(monkeypatch):
    """As in one cell of a notebook, where blocking the loop is no warning."""
    monkeypatch.setitem(sys.modules, NOTEBOOK_MODULE, types.ModuleType(NOTEBOOK_MODULE))

    async def main():
        agent, other = make_agent(MemoryStore()), make_agent(MemoryStore())
        await leave_by_break(agent)
        with pytest.raises(RuntimeError, match=r"session .s..*await agent\.run"):
            agent.run_sync("!say later", session="s")
        with pytest.raises(RuntimeError, match=r"session .s..*await agent\.run"):
            agent.run_sync("!say later", session="s", queue=True)
        with pytest.raises(RuntimeError, match=r"session .s..*await agent\.run"):
            agent.resume_sync("s")
        elsewhere = other.run_sync("!say other", session="s")
        return elsewhere, await agent.run("!say later", session="s")

    elsewhere, result = asyncio.run(asyncio.wait_for(main(), PATIENCE_SECONDS))
    assert (elsewhere.text, result.text) == ("other", "later")


def test_leaving_the_partial_answers_ends_the_run_too():
    async def main():
        agent = Agent("sim:")
        async for _ in agent.stream("!say one two three four five six", session="s").partial():
            break
        return await agent.run("!say next", session="s")

    assert asyncio.run(main()).text == "next"


def test_unread_partial_answers_do_not_change_the_run():
    async def main():
        stream = Agent(scripted("yes")).stream("?")
        unread, handle = stream.partial(), stream.start()
        del unread
        gc.collect()
        return await handle.result()

    assert asyncio.run(main()).text == "yes"


def test_a_run_that_was_not_left_keeps_its_session():
    async def main():
        agent = make_agent(None)
        items = aiter(agent.stream(HANG, session="s"))
        while not is_in_tool(await anext(items)):
            pass
        with pytest.raises(Conflict):
            await agent.run("go on", session="s")
        await items.aclose()

    asyncio.run(main())


def test_a_stream_left_on_another_loop_ends_before_the_next_prompt(tmp_path):
    """The next prompt comes from another thread with a loop of its own."""
    left, ended = threading.Event(), threading.Event()
    store = open_store(str(tmp_path / "log.db"))
    agent = make_agent(store)

    async def read():
        await leave_by_break(agent)
        left.set()
        while not ended.is_set():
            await asyncio.sleep(0)

    thread = threading.Thread(target=asyncio.run, args=(read(),))
    thread.start()
    assert left.wait(PATIENCE_SECONDS)
    try:
        result = asyncio.run(agent.run("!say later", "s"))
    finally:
        ended.set()
        thread.join()
    asyncio.run(store.close())
    assert result.text == "later"


def test_nothing_is_kept_of_runs_that_ended():
    async def main():
        agent = Agent("sim:")
        for number in range(20):
            async for _ in agent.stream("!say a b c", session=f"s{number % 3}"):
                break
        await agent.run("!say end", session="s0")
        await asyncio.gather(
            *(task for task in asyncio.all_tasks() if task is not asyncio.current_task()),
            return_exceptions=True,
        )
        return [name for name in holders._holders if name in ("s0", "s1", "s2")]

    assert asyncio.run(main()) == []
    assert not holders._waiting
