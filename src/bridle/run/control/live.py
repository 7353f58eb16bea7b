"""Replies that are still being written, for viewers in other processes.

The process that runs a session shows the text so far through the store (`LivePublisher`), in batches, and removes it
when the reply is recorded. Others read it (`LiveView`). It is no part of the log: what is lost comes with the record.
"""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from contextlib import suppress

import msgspec

from bridle.ports.store import LiveStore, Store, WatchableStore, supports
from bridle.run.context.shown_deltas import Streamed, find_part_key, read_delta_text, set_delta_text
from bridle.stores.live_text import remove_live_text
from bridle.values.base import Value
from bridle.values.errors import BridleError
from bridle.values.events import ModelAsked, ModelFailed, ModelReplied, Resumed, RunEnded
from bridle.values.record import Record, encode_item
from bridle.values.result import Delta

LOG = logging.getLogger("bridle")
BATCH_SECONDS = 0.08
"""Time between two batches, and between two looks of a viewer."""
UNSEEN_SECONDS = 1.0
"""Time after which a reply without viewers is offered again."""
CHARACTERS_MAX = 60_000
"""More text of one reply is not shown before it is complete."""
ENDS = (ModelReplied, ModelFailed, RunEnded)


class LiveReply(Value, kw_only=True):
    """The reply to one request so far."""

    asked: int
    """Number of the record of the request."""
    deltas: tuple[Streamed, ...] = ()
    """One per part of the reply."""


class _ShownReply:
    """A reply that this process receives."""

    def __init__(self, asked: int) -> None:
        self.asked, self.size, self.is_full = asked, 0, False
        self.parts: dict[tuple[type, int], tuple[Streamed, list[str]]] = {}
        self.over = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    def add(self, delta: Streamed) -> None:
        text, key = read_delta_text(delta), find_part_key(delta)
        length = len(text) or int(key not in self.parts)
        self.is_full = self.is_full or self.size + length > CHARACTERS_MAX
        if length and not self.is_full:
            self.size += length
            self.parts.setdefault(key, (delta, []))[1].append(text)

    def encode(self) -> bytes:
        deltas = tuple(set_delta_text(first, "".join(texts)) for first, texts in self.parts.values())
        return encode_item(LiveReply(asked=self.asked, deltas=deltas))


class LivePublisher:
    """A watcher that shows replies through the store; it never delays a run and never fails."""

    def __init__(self, store: LiveStore) -> None:
        self._store = store
        self._replies: dict[str, _ShownReply] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def on_event(self, session: str, happening: Record | Delta) -> None:
        if not isinstance(happening, Record):
            reply = self._replies.get(session)
            if reply is not None and isinstance(happening, Streamed):
                reply.add(happening)
                if reply.task is None:
                    reply.task = self._start(self._show(session, reply))
            return
        event = happening.event
        if isinstance(event, (ModelAsked, *ENDS)):
            self.end(session)
        if isinstance(event, ModelAsked):
            self._replies[session] = _ShownReply(happening.seq)
        elif isinstance(event, (Resumed, RunEnded)):  # a killed or replaced process may have left a text
            self._start(self._remove(session))

    def end(self, session: str) -> None:
        """Show no more of the reply that this process receives: it will not be recorded here."""
        if (ended := self._replies.pop(session, None)) is not None:
            ended.over.set()

    def _start(self, work: Coroutine[None, None, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _show(self, session: str, reply: _ShownReply) -> None:
        was_shown, size, pause = False, 0, BATCH_SECONDS
        try:
            while not reply.over.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(reply.over.wait(), pause)
                    return
                if (offered := reply.size) != size:
                    is_seen = await self._store.publish_live(session, reply.encode())
                    if is_seen:
                        was_shown, size = True, offered
                    pause = BATCH_SECONDS if is_seen else UNSEEN_SECONDS
        except (BridleError, OSError) as error:
            LOG.debug("session %s: its replies are not shown to other processes: %s", session, error)
        finally:
            # guard: live-text-removed
            if was_shown:
                await self._remove(session)

    async def _remove(self, session: str) -> None:
        await remove_live_text(self._store, session, logging.DEBUG)


class LiveView:
    """A viewer of one session, which gets records from the log and deltas of the reply that is being written."""

    def __init__(self, store: Store, session: str) -> None:
        self._store, self._session = store, session
        self._asked = 0
        """Number of the record of a request that has no reply yet."""
        self._seen: dict[int, int] = {}
        """Length of the text that was taken, by the index of the part."""

    def take(self, record: Record) -> None:
        """Note a record that the viewer has read."""
        if isinstance(record.event, (ModelAsked, *ENDS)):
            self._asked = record.seq if isinstance(record.event, ModelAsked) else 0
            self._seen = {}

    async def wait(self, after: int) -> Sequence[Delta]:
        """Wait for deltas, or for records above `after`; returns the deltas, none if there are records."""
        store = self._store
        assert supports(store, WatchableStore)
        waiting = asyncio.create_task(store.wait_for_records(self._session, after))
        try:
            while not waiting.done():
                if self._asked and (deltas := await self._read()):
                    return deltas
                await asyncio.wait((waiting,), timeout=BATCH_SECONDS if self._asked else None)
            waiting.result()
        finally:
            waiting.cancel()
        return ()

    async def _read(self) -> list[Delta]:
        if not supports(self._store, LiveStore):
            return []
        try:
            data = await self._store.read_live(self._session)
            reply = msgspec.json.decode(data, type=LiveReply) if data else None
        except (BridleError, OSError, msgspec.MsgspecError) as error:
            LOG.debug("session %s: its replies are not shown: %s", self._session, error)
            self._asked = 0  # until the next request
            return []
        if reply is None or reply.asked != self._asked:
            return []
        found: list[Delta] = []
        for index, delta in enumerate(reply.deltas):
            text, seen = read_delta_text(delta), self._seen.get(index, 0)
            if len(text) > seen:
                self._seen[index] = len(text)
                found.append(set_delta_text(delta, text[seen:]))
        return found
