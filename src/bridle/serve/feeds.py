"""Feeds: the recent items of watched sessions, shared by all their viewers.

A feed holds the last records and deltas of one session. Viewers hold a position in it and no queue of their own, so
that a slow viewer costs nothing: one that fell behind the feed reads the log and misses deltas only. Records reach a
feed from the runs of this server (`FeedTable` is a watcher) and, for runs of other processes, from the store.
"""

import asyncio
import logging
from bisect import bisect_right
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence

from bridle.ports.store import Store, WatchableStore, supports
from bridle.run.control.live import LiveView
from bridle.run.replay.replay_session import read_records
from bridle.values.errors import BridleError
from bridle.values.events import Prompted, Resumed, RunEnded
from bridle.values.record import Record
from bridle.values.result import Delta
from bridle.values.text import escape_text

LOG = logging.getLogger("bridle")
# not from outside: our own records and queues
FEED_ITEMS_MAX = 2_000
# not from outside: our own records and queues
FEED_BYTES_MAX = 2 * 1024 * 1024
DELTA_BYTES = 200
"""Size at which a delta counts."""
# not from outside: our own records and queues
PAGE_RECORDS_MAX, PAGE_BYTES_MAX = 1_000, 256 * 1024
"""Records that a viewer behind the feed holds at once, and their size; one that is larger is held alone."""
CATCHING_UP_MAX = 8
"""Viewers that read the log at the same time."""
HEARTBEAT_SECONDS = 15.0
"""Silence after which a viewer gets an empty batch, so that its connection is used."""
POLL_SECONDS = 0.5
"""Time between two looks at a store that cannot be watched."""


class FeedClosed(Exception):
    """A view ended before the run did; its viewer can resume after the last record that it got."""


class FeedItem:
    """A record, or a delta with the number of the record before it."""

    __slots__ = ("delta", "frame", "record", "seq")

    def __init__(self, seq: int, record: Record | None, delta: Delta | None = None) -> None:
        self.seq, self.record, self.delta = seq, record, delta
        self.frame: bytes | None = None
        """Its form for viewers, encoded once for all of them (streams/sse.py)."""


class SessionFeed:
    """The recent items of one session. Its records are consecutive."""

    def __init__(self, session: str, store: Store) -> None:
        self.session, self._store = session, store
        self.viewers = 0
        self.last, self.is_running, self.is_closed = 0, False, False
        self._items: list[FeedItem] = []
        self._dropped, self._bytes, self._missed = 0, 0, 0
        self._changed = asyncio.Event()
        self._filling = asyncio.Lock()
        self.follower: asyncio.Task[None] | None = None
        self.live = LiveView(store, session)

    async def open(self) -> None:
        """Read the log as it is; raises `SessionNotFound` if there is none."""
        async with self._filling:
            if not self.last:
                for record in await read_records(self._store, self.session):
                    self._append(record)

    async def fill(self) -> None:
        """Read the records that the log has after those of the feed."""
        async with self._filling:
            for record in await self._store.read(self.session, self.last):
                self._append(record)
        self.wake()

    def publish(self, happening: Record | Delta) -> bool:
        """Add an item; False if records before it are missing, so that `fill` has to read them."""
        if isinstance(happening, Record):
            if happening.seq > self.last + 1:
                self._missed = happening.seq
                return False
            self._append(happening)
        elif self.last >= self._missed and self.last:  # else it would come before the request that it answers
            self._add(FeedItem(self.last, None, happening), DELTA_BYTES)
        self.wake()
        return True

    def wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def wait_for_change(self) -> "asyncio.Event":
        return self._changed

    def take_after(self, position: int, seq: int) -> tuple[int, list[FeedItem]] | None:
        """The items from a position on, and the position after them; None if records above `seq` are gone."""
        start = position - self._dropped
        if start < 0:
            start = bisect_right(self._items, seq, key=lambda item: item.seq)
            if self.last > seq and (start == len(self._items) or self._first_record(start) != seq + 1):
                return None
        taken = self._items[start : start + PAGE_RECORDS_MAX]
        return self._dropped + start + len(taken), taken

    def _first_record(self, start: int) -> int:
        found = (item.seq for item in self._items[start:] if item.record is not None)
        return next(found, 0)

    def _append(self, record: Record) -> None:
        if record.seq <= self.last:
            return
        self.last = record.seq
        self.live.take(record)
        if isinstance(record.event, Prompted | Resumed | RunEnded):
            self.is_running = not isinstance(record.event, RunEnded)
        self._add(FeedItem(record.seq, record), len(record.data))

    def _add(self, item: FeedItem, size: int) -> None:
        self._items.append(item)
        self._bytes += size
        # guard: feed-size-limit
        if len(self._items) > 2 * FEED_ITEMS_MAX or self._bytes > 2 * FEED_BYTES_MAX:
            self._trim()

    def _trim(self) -> None:
        """Drop the oldest items down to the limits; the newest one stays."""
        sizes = [DELTA_BYTES if item.record is None else len(item.record.data) for item in self._items]
        count = max(0, len(sizes) - FEED_ITEMS_MAX)
        left = sum(sizes[count:])
        while left > FEED_BYTES_MAX and count < len(sizes) - 1:
            left -= sizes[count]
            count += 1
        del self._items[:count]
        self._dropped, self._bytes = self._dropped + count, left


class FeedTable:
    """The feeds of the sessions that are watched now; a watcher of the server's runs."""

    def __init__(self, store: Store, is_run_here: Callable[[str], bool]) -> None:
        self._store, self._is_run_here = store, is_run_here
        self._feeds: dict[str, SessionFeed] = {}
        self._reading = asyncio.Semaphore(CATCHING_UP_MAX)
        self._filling: set[asyncio.Task[None]] = set()
        self.viewers = 0
        """Open viewers of all feeds."""
        self._is_closed = False
        self.caught_up = 0
        """Pages that viewers behind a feed have read from the log."""

    def on_event(self, session: str, happening: Record | Delta) -> None:
        feed = self._feeds.get(session)
        if feed is not None and not feed.publish(happening):
            self._fill_later(feed)

    def find(self, session: str) -> SessionFeed | None:
        """The feed of a session that is watched now, if it has been opened."""
        feed = self._feeds.get(session)
        return feed if feed is not None and feed.last else None

    def wake(self, session: str) -> None:
        """Let the viewers of a session look again, because its run here ended."""
        if (feed := self._feeds.get(session)) is not None:
            self._fill_later(feed)

    async def view(
        self, session: str, after: int, *, until_end: bool
    ) -> AsyncGenerator[Sequence[FeedItem], None]:
        """Yield the items after a record in batches: those of the log, then those that happen.

        A batch is empty after some time of silence. With `until_end`, stops when the session has no running run.
        Deltas of replies that are complete are skipped. Raises `FeedClosed` if the server stops.
        """
        if self._is_closed:
            raise FeedClosed
        feed = self._feeds.setdefault(session, SessionFeed(session, self._store))
        feed.viewers += 1
        self.viewers += 1
        try:
            await feed.open()
            if feed.follower is None:
                feed.follower = asyncio.create_task(self._follow(feed))
            async for batch in self._read_batches(feed, after, until_end=until_end):
                yield batch
        finally:
            self.viewers -= 1
            feed.viewers -= 1
            if not feed.viewers:
                self._drop(feed)

    async def _read_batches(
        self, feed: SessionFeed, seq: int, *, until_end: bool
    ) -> AsyncIterator[Sequence[FeedItem]]:
        position = -1
        while not feed.is_closed:
            changed = feed.wait_for_change()
            taken = feed.take_after(position, seq)
            if taken is None:
                batch = await self._catch_up(feed, seq)
                seq, position = batch[-1].seq, -1
                yield batch
                continue
            position, items = taken
            batch = []
            for item in items:
                if item.seq == seq + 1 if item.record is not None else item.seq == seq:
                    seq = item.seq
                    batch.append(item)
            if batch:
                yield batch
            if items:
                continue
            if until_end and not feed.is_running and not self._is_run_here(feed.session):
                return
            try:
                async with asyncio.timeout(HEARTBEAT_SECONDS):
                    await changed.wait()
            except TimeoutError:
                yield ()
        raise FeedClosed

    async def _catch_up(self, feed: SessionFeed, seq: int) -> list[FeedItem]:
        """One page of records that the feed no longer has."""
        page: list[FeedItem] = []
        size = 0
        async with self._reading:
            for record in await self._store.read(feed.session, seq, PAGE_RECORDS_MAX):
                size += len(record.data)
                if page and size > PAGE_BYTES_MAX:
                    break
                page.append(FeedItem(record.seq, record))
        self.caught_up += 1
        return page

    async def _follow(self, feed: SessionFeed) -> None:
        """Fill the feed with the records of other processes, while it has viewers."""
        try:
            while True:
                if self._is_run_here(feed.session):
                    await feed.wait_for_change().wait()
                    continue
                deltas: Sequence[Delta] = ()
                if supports(self._store, WatchableStore):
                    deltas = await feed.live.wait(feed.last)
                else:
                    await asyncio.sleep(POLL_SECONDS)
                for delta in deltas:
                    feed.publish(delta)
                if not deltas:
                    await feed.fill()
        except BridleError as error:
            LOG.warning("%s", escape_text(f"session {feed.session} is not followed any more: {error}"))
            self._drop(feed)

    def _fill_later(self, feed: SessionFeed) -> None:
        task = asyncio.create_task(feed.fill())
        self._filling.add(task)
        task.add_done_callback(self._filling.discard)

    def _drop(self, feed: SessionFeed) -> None:
        if feed.follower is not None:
            feed.follower.cancel()
        if self._feeds.get(feed.session) is feed:
            del self._feeds[feed.session]
        feed.is_closed = True
        feed.wake()

    def close(self) -> None:
        """End all views, and those that are opened afterwards."""
        self._is_closed = True
        for feed in [*self._feeds.values()]:
            self._drop(feed)
