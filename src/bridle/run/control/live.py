"""Replies that are still being written, and progress of tools, for viewers in other processes.

The process that runs a session shows the text so far through the store (`LivePublisher`), in batches, and removes it
when the reply is recorded; progress, when its call has ended. Others read it (`LiveView`). It is no part of the log:
the record brings a text that was lost.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Coroutine, Sequence
from contextlib import suppress

import msgspec
from msgspec.structs import replace

from bridle.ports.store import LiveStore, Store, WatchableStore, supports
from bridle.run.context.shown_deltas import Streamed, find_part_key, read_delta_text, set_delta_text
from bridle.stores.live_text import remove_live_text
from bridle.values.base import Value
from bridle.values.errors import BridleError
from bridle.values.events import (
    ModelAsked,
    ModelFailed,
    ModelReplied,
    Prompted,
    Resumed,
    RunEnded,
    ToolFinished,
    ToolInterrupted,
    ToolStarted,
)
from bridle.values.record import Record, encode_item
from bridle.values.result import Delta, Progress

LOG = logging.getLogger("bridle")
BATCH_SECONDS = 0.08
"""Time between two batches, and between two looks of a viewer."""
UNSEEN_SECONDS = 1.0
"""Time after which a reply without viewers is offered again."""
# not from outside: our own text, shown to a person or a model
CHARACTERS_MAX = 60_000
"""More text of one reply is not shown before it is complete."""
PROGRESS_SECONDS = 0.25
"""Time between two looks of a viewer while no reply is received."""
# not from outside: our own text, shown to a person or a model
PROGRESS_MAX, PROGRESS_CHARACTERS_MAX = 50, 1_000
"""Reports of progress that are shown, the latest ones, and the length of one."""
ENDS = (ModelReplied, ModelFailed, RunEnded)


class LiveProgress(Value, kw_only=True):
    """Progress that a tool or other user code has reported."""

    number: int
    """Grows with each report of a session, also in the process that continues its run."""
    progress: Progress


class LiveReply(Value, kw_only=True):
    """The reply to one request so far, and the latest progress."""

    asked: int = 0
    """Number of the record of the request; 0 if no reply is being received."""
    deltas: tuple[Streamed, ...] = ()
    """One per part of the reply."""
    progress: tuple[LiveProgress, ...] = ()


class _Shown:
    """What this process shows of one session."""

    def __init__(self) -> None:
        self.asked, self.size, self.is_full = 0, 0, False
        self.parts: dict[tuple[type, int], tuple[Streamed, list[str]]] = {}
        self.progress: deque[LiveProgress] = deque(maxlen=PROGRESS_MAX)
        self.changes = 0
        self.over = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    @property
    def is_empty(self) -> bool:
        return not self.asked and not self.progress

    def begin_reply(self, asked: int) -> None:
        """Show the reply to this request, and no other; to none if `asked` is 0."""
        self.changes += bool(self.parts)
        self.asked, self.size, self.is_full, self.parts = asked, 0, False, {}

    def add(self, delta: Streamed) -> None:
        text, key = read_delta_text(delta), find_part_key(delta)
        length = len(text) or int(key not in self.parts)
        self.is_full = self.is_full or self.size + length > CHARACTERS_MAX
        if length and not self.is_full:
            self.size += length
            self.changes += 1
            self.parts.setdefault(key, (delta, []))[1].append(text)

    def report(self, progress: Progress) -> None:
        number = max(time.time_ns(), self.progress[-1].number + 1 if self.progress else 0)
        message = progress.message[:PROGRESS_CHARACTERS_MAX]
        self.progress.append(LiveProgress(number=number, progress=replace(progress, message=message)))
        self.changes += 1

    def drop_progress(self, call_id: str) -> None:
        """Show no more of a call that has ended."""
        kept = [each for each in self.progress if each.progress.call_id != call_id]
        if len(kept) < len(self.progress):
            self.progress = deque(kept, maxlen=PROGRESS_MAX)
            self.changes += 1

    def encode(self) -> bytes:
        deltas = tuple(set_delta_text(first, "".join(texts)) for first, texts in self.parts.values())
        return encode_item(LiveReply(asked=self.asked, deltas=deltas, progress=tuple(self.progress)))


class LivePublisher:
    """A watcher that shows replies and progress through the store; it never delays a run and never fails."""

    def __init__(self, store: LiveStore) -> None:
        self._store = store
        self._shown: dict[str, _Shown] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def on_event(self, session: str, happening: Record | Delta) -> None:
        if not isinstance(happening, Record):
            self._take_delta(session, happening)
            return
        event, shown = happening.event, self._shown.get(session)
        if isinstance(event, ModelAsked):
            shown = self._shown.setdefault(session, shown or _Shown())
            shown.begin_reply(happening.seq)
        elif shown is not None and isinstance(event, ENDS):
            shown.begin_reply(0)
        elif shown is not None and isinstance(event, ToolFinished):
            shown.drop_progress(event.result.call_id)
        elif shown is not None and isinstance(event, ToolInterrupted):
            shown.drop_progress(event.call_id)
        if isinstance(event, RunEnded) or (shown is not None and shown.is_empty):
            self.end(session)
        if isinstance(event, (Resumed, RunEnded)):  # a killed or replaced process may have left a text
            self._start(self._remove(session))

    def _take_delta(self, session: str, delta: Delta) -> None:
        shown = self._shown.get(session)
        if isinstance(delta, Progress):
            shown = self._shown.setdefault(session, shown or _Shown())
            shown.report(delta)
        elif shown is not None and shown.asked and isinstance(delta, Streamed):
            shown.add(delta)
        else:
            return
        if shown.task is None:
            shown.task = self._start(self._show(session, shown))

    def end(self, session: str) -> None:
        """Show no more of what this process receives: it will not be recorded here, or is recorded."""
        if (ended := self._shown.pop(session, None)) is not None:
            ended.over.set()

    def _start(self, work: Coroutine[None, None, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _show(self, session: str, shown: _Shown) -> None:
        was_shown, changes, asked, pause = False, 0, shown.asked, BATCH_SECONDS
        try:
            while not shown.over.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(shown.over.wait(), pause)
                    return
                if was_shown and asked and shown.asked != asked:
                    await self._remove(session)  # overwrites the text: a shorter one would leave its end
                asked = shown.asked
                if (offered := shown.changes) != changes:
                    is_seen = await self._store.publish_live(session, shown.encode())
                    if is_seen:
                        was_shown, changes = True, offered
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
        self._is_running = False
        self._reported = 0
        """Number of the latest progress that was taken."""

    def take(self, record: Record) -> None:
        """Note a record that the viewer has read."""
        if isinstance(record.event, (ModelAsked, *ENDS)):
            self._asked = record.seq if isinstance(record.event, ModelAsked) else 0
            self._seen = {}
        if isinstance(record.event, (Prompted, Resumed, ModelAsked, ToolStarted, RunEnded)):
            self._is_running = not isinstance(record.event, RunEnded)

    async def wait(self, after: int) -> Sequence[Delta]:
        """Wait for deltas, or for records above `after`; returns the deltas, none if there are records."""
        store = self._store
        assert supports(store, WatchableStore)
        waiting = asyncio.create_task(store.wait_for_records(self._session, after))
        try:
            while not waiting.done():
                if self._is_running and (deltas := await self._read()):
                    return deltas
                await asyncio.wait((waiting,), timeout=self._choose_pause())
            waiting.result()
        finally:
            waiting.cancel()
        return ()

    def _choose_pause(self) -> float | None:
        """Time until the next look for deltas; None to wait for records only."""
        if not self._is_running:
            return None
        return BATCH_SECONDS if self._asked else PROGRESS_SECONDS

    async def _read(self) -> list[Delta]:
        if not supports(self._store, LiveStore):
            return []
        try:
            data = await self._store.read_live(self._session)
            reply = msgspec.json.decode(data, type=LiveReply) if data else None
        except (BridleError, OSError, msgspec.MsgspecError) as error:
            LOG.debug("session %s: its replies are not shown: %s", self._session, error)
            self._asked, self._is_running = 0, False  # until the next request
            return []
        if reply is None:
            return []
        fresh = [each for each in reply.progress if each.number > self._reported]
        if fresh:
            self._reported = fresh[-1].number
        found: list[Delta] = [each.progress for each in fresh]
        if not self._asked or reply.asked != self._asked:
            return found
        for index, delta in enumerate(reply.deltas):
            text, seen = read_delta_text(delta), self._seen.get(index, 0)
            if len(text) > seen:
                self._seen[index] = len(text)
                found.append(set_delta_text(delta, text[seen:]))
        return found
