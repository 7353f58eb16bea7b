"""Feeds: every viewer sees every record once and in order, however slow it is and whoever writes."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridle.serve import feeds
from bridle.serve.feeds import FeedClosed, FeedTable, SessionFeed
from bridle.stores import open_store
from bridle.stores.memory import MemoryStore
from bridle.values.errors import SessionNotFound
from bridle.values.events import Prompted, Reprompted, RunEnded
from bridle.values.message import Text
from bridle.values.record import GENESIS, seal_record
from bridle.values.result import TextDelta
from tests.suite.in_loop import in_loop


class Log:
    """Appends records to a session, as a run does."""

    def __init__(self, store, session="s"):
        self.store, self.session, self.records = store, session, []

    async def append(self, event=None):
        event = event or Reprompted(why="test", message=f"record {len(self.records) + 1}")
        head = self.records[-1].hash if self.records else GENESIS
        record = seal_record(len(self.records) + 1, 1.0, event, head)
        await self.store.append(self.session, len(self.records), (record,))
        self.records.append(record)
        return record


PROMPT, END = Prompted(parts=(Text(text="x"),)), RunEnded(stop="done")
ACTIONS = st.lists(st.sampled_from(["own", "other", "delta", "read", "read", "pause"]), max_size=60)


@settings(max_examples=150)
@given(actions=ACTIONS, items_max=st.integers(1, 6), bytes_max=st.sampled_from([200, 10_000]))
def test_a_viewer_sees_every_record_once(actions, items_max, bytes_max):
    """Records of this server and of others, deltas and reading in any order, with a feed that holds very little."""

    async def run():
        store = MemoryStore()
        log = Log(store)
        await log.append(PROMPT)
        live = {"s"}
        table = FeedTable(store, live.__contains__)
        view = table.view("s", 0, until_end=True)
        seen, deltas = [], []

        async def read():
            for item in await anext(view):
                if item.record is not None:
                    seen.append(item.record.seq)
                else:
                    deltas.append((len(seen), item.delta.text))

        await read()
        for number, action in enumerate(actions):
            if action == "own":
                table.on_event("s", await log.append())
            elif action == "other":
                await log.append()
            elif action == "delta":
                table.on_event("s", TextDelta(text=str(number)))
            elif action == "read" and len(log.records) > len(seen):
                table.wake("s")
                await read()
            else:
                await asyncio.sleep(0)
        table.on_event("s", await log.append(END))
        live.clear()
        table.wake("s")
        async for batch in view:
            seen.extend(item.record.seq for item in batch if item.record is not None)
        assert seen == list(range(1, len(log.records) + 1))
        shown = [int(text) for _, text in deltas]
        assert shown == sorted(set(shown))
        assert not table.viewers and not table._feeds

    held = feeds.FEED_ITEMS_MAX, feeds.FEED_BYTES_MAX, feeds.PAGE_RECORDS_MAX
    feeds.FEED_ITEMS_MAX, feeds.FEED_BYTES_MAX, feeds.PAGE_RECORDS_MAX = items_max, bytes_max, 3
    try:
        asyncio.run(run())
    finally:
        feeds.FEED_ITEMS_MAX, feeds.FEED_BYTES_MAX, feeds.PAGE_RECORDS_MAX = held


@in_loop
async def test_a_feed_holds_no_more_than_its_limits(monkeypatch):
    monkeypatch.setattr(feeds, "FEED_ITEMS_MAX", 10)
    store = MemoryStore()
    log = Log(store)
    feed = SessionFeed("s", store)
    for _ in range(500):
        assert feed.publish(await log.append())
        feed.publish(TextDelta(text="x"))
        assert len(feed._items) <= 20
    assert feed.take_after(-1, 100) is None
    _, items = feed.take_after(-1, 498)  # type: ignore[misc]
    assert [item.seq for item in items if item.record is not None] == [499, 500]


@in_loop
async def test_viewers_that_stand_still_cost_nothing_and_catch_up(monkeypatch):
    """A thousand viewers hold no items: they share the feed, and read the log once they fell behind it."""
    monkeypatch.setattr(feeds, "FEED_ITEMS_MAX", 10)
    store = MemoryStore()
    log, live = Log(store), {"s"}
    table = FeedTable(store, live.__contains__)
    await log.append(PROMPT)
    views = [table.view("s", 0, until_end=True) for _ in range(1_000)]
    for view in views:
        await anext(view)
    for _ in range(300):
        table.on_event("s", await log.append())
    table.on_event("s", await log.append(END))
    live.clear()
    assert len(table._feeds["s"]._items) <= 20
    for view in views[:20]:
        seen = [item.seq async for batch in view for item in batch if item.record is not None]
        assert seen == list(range(2, 303))
    assert table.caught_up >= 20
    for view in views[20:]:
        await view.aclose()
    assert not table.viewers


@in_loop
async def test_deltas_of_a_complete_reply_are_skipped():
    store = MemoryStore()
    log, live = Log(store), {"s"}
    table = FeedTable(store, live.__contains__)
    await log.append(PROMPT)
    first = table.view("s", 0, until_end=True)
    await anext(first)
    table.on_event("s", TextDelta(text="half"))
    late = table.view("s", 0, until_end=True)
    batch = await anext(late)
    assert [item.delta.text if item.delta else item.seq for item in batch] == [1, "half"]
    table.on_event("s", await log.append())
    other = table.view("s", 1, until_end=True)
    assert [item.seq for item in await anext(other) if item.record is not None] == [2]
    for view in (first, late, other):
        await view.aclose()


@in_loop
async def test_records_of_another_store_object_arrive(tmp_path):
    """Two stores on one file stand for two processes."""
    store, elsewhere = open_store(tmp_path / "log.db"), open_store(tmp_path / "log.db")
    log = Log(elsewhere)
    await log.append(PROMPT)
    table = FeedTable(store, lambda session: False)
    view = table.view("s", 0, until_end=True)
    assert [item.seq for item in await anext(view)] == [1]
    await log.append()
    assert [item.seq for item in await anext(view)] == [2]
    await log.append(END)
    assert [item.seq async for batch in view for item in batch] == [3]
    await store.close()
    await elsewhere.close()


@in_loop
async def test_a_view_of_no_session_and_a_closed_table():
    store = MemoryStore()
    table = FeedTable(store, lambda session: True)
    with pytest.raises(SessionNotFound):
        await anext(table.view("none", 0, until_end=True))
    assert not table.viewers and not table._feeds
    await Log(store).append(PROMPT)
    view = table.view("s", 0, until_end=True)
    await anext(view)
    waiting = asyncio.create_task(anext(view))
    await asyncio.sleep(0)
    table.close()
    with pytest.raises(FeedClosed):
        await waiting


@in_loop
async def test_a_silent_session_gives_empty_batches(monkeypatch):
    monkeypatch.setattr(feeds, "HEARTBEAT_SECONDS", 0.01)
    store = MemoryStore()
    await Log(store).append(PROMPT)
    table = FeedTable(store, lambda session: True)
    view = table.view("s", 0, until_end=True)
    assert [item.seq for item in await anext(view)] == [1]
    assert await anext(view) == ()
    await view.aclose()


@in_loop
async def test_a_delta_does_not_come_before_a_record_that_the_feed_has_missed():
    """The text would be shown before its request, and a second time with the reply."""
    log = Log(MemoryStore())
    await log.append(PROMPT)
    feed = SessionFeed("s", log.store)
    await feed.open()
    await log.append()  # while the feed was being opened
    assert not feed.publish(await log.append())
    feed.publish(TextDelta(text="early"))
    await feed.fill()
    feed.publish(TextDelta(text="in time"))
    _, items = feed.take_after(0, 0)  # type: ignore[misc]
    assert [item.delta.text if item.delta else item.record.seq for item in items] == [1, 2, 3, "in time"]
