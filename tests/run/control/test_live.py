"""Replies that are still being written reach viewers in other processes, and leave nothing behind."""

import asyncio
import os
from typing import Any

import pytest

from bridle import Agent
from bridle.engines.parts import PartRunner
from bridle.run.control import live
from bridle.run.control.live import CHARACTERS_MAX, LivePublisher, LiveView
from bridle.serve.feeds import FeedTable
from bridle.stores import open_store
from bridle.stores.memory import MemoryStore
from bridle.values.errors import Unusable
from bridle.values.events import ModelAsked, ModelReplied, Resumed, RunEnded
from bridle.values.message import Reply
from bridle.values.model import Origin
from bridle.values.record import GENESIS, seal_record
from bridle.values.result import ReasoningDelta, TextDelta, ToolCallDelta
from tests.suite.in_loop import in_loop
from tests.suite.patience import PATIENCE_SECONDS

ASKED = seal_record(1, 1.0, ModelAsked(step=1, attempt=1, digest="d"), GENESIS)
REPLY = Reply(parts=(), stop="done", origin=Origin(family="anthropic", endpoint="sim", model="m"))  # type: ignore[arg-type]
REPLIED = seal_record(2, 1.0, ModelReplied(reply=REPLY), ASKED.hash)


@pytest.fixture(params=["sqlite", "postgres", "memory"])
def stores(request, tmp_path):
    """The store of the process that runs, and that of a viewer."""
    if request.param == "memory":
        return (MemoryStore(),) * 2
    postgres = request.getfixturevalue("postgres") if request.param == "postgres" else None
    place = str(tmp_path / "log.db") if postgres is None else postgres.new_url()
    return open_store(place), open_store(place)


async def read_deltas(view, after=1):
    async with asyncio.timeout(PATIENCE_SECONDS):
        return await view.wait(after)


async def finish(publisher):
    await asyncio.gather(*publisher._tasks)


@in_loop
async def test_a_viewer_gets_each_piece_once_and_the_text_is_removed_with_the_record(stores):
    ours, theirs = stores
    await ours.append("s", 0, (ASKED,))
    publisher, view = LivePublisher(ours), LiveView(theirs, "s")
    view.take(ASKED)
    waiting = asyncio.create_task(read_deltas(view))
    while not await theirs.publish_live("s", b""):  # the viewer is there
        await asyncio.sleep(0)
    publisher.on_event("s", ASKED)
    publisher.on_event("s", ReasoningDelta(reasoning="Hm."))
    publisher.on_event("s", TextDelta(text="One, "))
    publisher.on_event("s", TextDelta(text="two"))
    assert await waiting == [ReasoningDelta(reasoning="Hm."), TextDelta(text="One, two")]
    publisher.on_event("s", TextDelta(text=", three"))
    publisher.on_event("s", ToolCallDelta(index=1, name="add", arguments='{"a"', call_id="c1_0"))
    assert await read_deltas(view) == [
        TextDelta(text=", three"),
        ToolCallDelta(index=1, name="add", arguments='{"a"', call_id="c1_0"),
    ]
    await ours.append("s", 1, (REPLIED,))
    publisher.on_event("s", REPLIED)
    await finish(publisher)
    assert await theirs.read_live("s") == b""
    assert await read_deltas(view) == ()
    await ours.close()
    await theirs.close()


@in_loop
async def test_without_a_viewer_nothing_is_stored(tmp_path, monkeypatch):
    monkeypatch.setattr(live, "BATCH_SECONDS", 0.001)
    store: Any = open_store(str(tmp_path / "log.db"))
    offered = asyncio.Event()
    publish = store.publish_live

    async def note(session, data):
        is_seen = await publish(session, data)
        offered.set()
        return is_seen

    monkeypatch.setattr(store, "publish_live", note)
    publisher = LivePublisher(store)
    publisher.on_event("s", ASKED)
    publisher.on_event("s", TextDelta(text="secret"))
    await offered.wait()
    assert not (tmp_path / "log.db-live").exists()
    publisher.on_event("s", REPLIED)
    await finish(publisher)
    await store.close()


@in_loop
async def test_files_hold_no_text_after_the_reply_nor_after_a_killed_process_was_replaced(tmp_path):
    store: Any = open_store(str(tmp_path / "log.db"))
    await store.read_live("s")
    assert await store.publish_live("s", b"a secret that a killed process left")
    (file,) = (tmp_path / "log.db-live").iterdir()
    descriptor = os.open(file, os.O_RDONLY)
    try:
        publisher = LivePublisher(store)
        publisher.on_event("s", seal_record(1, 1.0, Resumed(), GENESIS))
        await finish(publisher)
        assert os.pread(descriptor, 1000, 0) == b"" and file.stat().st_mode & 0o077 == 0
    finally:
        os.close(descriptor)
    await store.close()


@in_loop
async def test_a_long_reply_is_shown_up_to_a_limit():
    store = MemoryStore()
    await store.read_live("s")
    publisher, view = LivePublisher(store), LiveView(store, "s")
    await store.append("s", 0, (ASKED,))
    view.take(ASKED)
    publisher.on_event("s", ASKED)
    for _ in range(3):
        publisher.on_event("s", TextDelta(text="x" * (CHARACTERS_MAX // 2)))
    (delta,) = await read_deltas(view)
    assert len(delta.text) == CHARACTERS_MAX
    publisher.on_event("s", REPLIED)
    await finish(publisher)


@in_loop
async def test_a_store_that_cannot_show_replies_does_not_disturb_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(live, "BATCH_SECONDS", 0.0)
    agent = Agent("sim:", name="clerk", store=str(tmp_path / "log.db"))
    tried = []

    async def fail(session, data):
        tried.append(data)
        raise Unusable("no table")

    monkeypatch.setattr(agent.store, "publish_live", fail)
    runner = PartRunner(agent)
    session, status = await runner.begin("!pace 5\n!say one two three four five six", None)
    assert (await runner.advance(session, status)).stop == "done" and tried


@in_loop
async def test_a_server_shows_the_reply_that_a_worker_receives(tmp_path):
    """The worker and the server have stores of their own; the reply stays unfinished until the server has shown it."""
    place = str(tmp_path / "log.db")
    runner, store = PartRunner(Agent("sim:", name="clerk", store=place)), open_store(place)
    session, status = await runner.begin("!say Half of it\n!stall 600\n!say and the rest.", None)
    working = asyncio.create_task(runner.advance(session, status))
    table = FeedTable(store, lambda _: False)
    shown = ""
    async with asyncio.timeout(PATIENCE_SECONDS):
        async for batch in table.view(session, 0, until_end=True):
            shown += "".join(item.delta.text for item in batch if item.delta is not None)
            if shown:
                break
    assert "Half of it".startswith(shown)
    working.cancel()
    await asyncio.wait((working,))
    await finish(runner._resources.watchers[-1])
    assert await store.read_live(session) == b""  # type: ignore[attr-defined]
    table.close()
    await store.close()


@in_loop
async def test_a_worker_whose_run_was_taken_over_leaves_no_text_and_no_task(tmp_path):
    place = str(tmp_path / "log.db")
    first, second = (PartRunner(Agent("sim:", name="clerk", store=place)) for _ in range(2))
    store: Any = open_store(place)
    session, status = await first.begin("!say Half of it,\n!stall 0.5\n!say and the rest.", None)
    await store.read_live(session)
    working = asyncio.create_task(first.advance(session, status))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await store.read_live(session):
            await asyncio.sleep(0.01)
        assert (await second.close(session, status, take_over=True)).stop == "cancelled"
        assert (await working).state == "busy", "its reply was refused"
        for runner in (first, second):
            await finish(runner._resources.watchers[-1])
    assert await store.read_live(session) == b""
    await store.close()


@in_loop
async def test_the_end_of_a_run_removes_a_text_that_another_process_left():
    store = MemoryStore()
    await store.read_live("s")
    assert await store.publish_live("s", b"left")
    publisher = LivePublisher(store)
    publisher.on_event("s", seal_record(1, 1.0, RunEnded(stop="cancelled"), GENESIS))
    await finish(publisher)
    assert await store.read_live("s") == b""


@in_loop
async def test_text_past_the_limit_is_not_written_and_a_later_viewer_sees_the_beginning(monkeypatch):
    monkeypatch.setattr(live, "BATCH_SECONDS", 0.0)
    monkeypatch.setattr(live, "UNSEEN_SECONDS", 0.0)
    store, written, offered = MemoryStore(), [], asyncio.Event()
    publish = store.publish_live

    async def note(session, data):
        is_seen = await publish(session, data)
        offered.set()
        if is_seen and data:
            written.append(len(data))
        return is_seen

    monkeypatch.setattr(store, "publish_live", note)
    publisher = LivePublisher(store)
    publisher.on_event("s", ASKED)
    publisher.on_event("s", TextDelta(text="x" * CHARACTERS_MAX))
    publisher.on_event("s", TextDelta(text="over"))
    async with asyncio.timeout(PATIENCE_SECONDS):
        await offered.wait()
        while not await store.read_live("s"):  # a viewer that comes late
            await asyncio.sleep(0)
    for _ in range(50):
        publisher.on_event("s", TextDelta(text="more"))
        await asyncio.sleep(0.001)
    assert len(written) == 1
    publisher.on_event("s", REPLIED)
    await finish(publisher)


def test_calls_that_arrive_in_turns_are_one_part_each():
    reply = live._Shown()
    reply.begin_reply(1)
    for number in range(1_000):
        for arguments in ("", "x"):
            reply.add(
                ToolCallDelta(index=number % 2, name="", arguments=arguments, call_id=f"c1_{number % 2}")
            )
    assert [len("".join(texts)) for _, texts in reply.parts.values()] == [500, 500]
    assert reply.size == 1_000 + 2
