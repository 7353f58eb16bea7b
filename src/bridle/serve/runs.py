"""Runs of a server: they belong to it, not to the request that started them.

A client that disconnects changes nothing; `cancel` ends a run. At shutdown each run is asked to pause after its step
and is interrupted at the deadline; both are recorded with the name of the server, so that the next start resumes them.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from bridle.ports.store import Store, SupportsApprovalKey, supports
from bridle.run.control.requests import SessionControl
from bridle.run.stream import RunHandle, Stream
from bridle.values.errors import BridleError
from bridle.values.events import Prompted, Resumed
from bridle.values.record import Record
from bridle.values.result import Delta
from bridle.values.text import escape_text, locate_error

from .api.types import StartedRun
from .errors import ServeError

LOG = logging.getLogger("bridle")
SERVER_NAME = "the server's shutdown"
"""Author of the pauses and cancels of a shutdown, in the log."""
SHUTDOWN_REASONS = (f"paused by {SERVER_NAME}", f"cancelled by {SERVER_NAME}")
RETRY_SECONDS = "5"


class LiveRun:
    """A run of this server that has not ended."""

    def __init__(self, agent: str, handle: "RunHandle[Any]") -> None:
        self.session, self.agent, self.handle = handle.session, agent, handle
        self.began = asyncio.Event()
        self.after: int | None = None


class RunTable:
    """The runs of a server, by session; a watcher that notices their beginning."""

    def __init__(
        self, store: Store, runs_max: int, on_end: Callable[[str, str, BridleError | None], None]
    ) -> None:
        self._store, self._runs_max, self._on_end = store, runs_max, on_end
        self._live: dict[str, LiveRun] = {}
        self._endings: set[asyncio.Task[None]] = set()
        self.is_closing = False

    def __contains__(self, session: str) -> bool:
        return session in self._live

    def __len__(self) -> int:
        return len(self._live)

    def find(self, session: str) -> LiveRun | None:
        return self._live.get(session)

    def count_by_agent(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for live in self._live.values():
            counts[live.agent] = counts.get(live.agent, 0) + 1
        return counts

    def on_event(self, session: str, happening: Record | Delta) -> None:
        live = self._live.get(session)
        if live is None or live.began.is_set() or not isinstance(happening, Record):
            return
        if live.after is None:
            live.after = happening.seq - 1
        if isinstance(happening.event, Prompted | Resumed):
            live.began.set()

    def open(self, agent: str, stream: "Stream[Any]") -> LiveRun:
        """Start the run of a stream; raises `ServeError` if there is no room for it, or the session has one."""
        if self.is_closing:
            raise ServeError(
                503, "shutting_down", "the server is shutting down", "send the request again later"
            )
        if stream.session in self._live:
            raise ServeError(
                409,
                "session_busy",
                f"session {stream.session!r} has a run",
                "steer it, cancel it, or wait for its end",
            )
        # guard: run-limit
        if not self.has_room:
            raise ServeError(
                429,
                "too_many_runs",
                f"the server runs {self._runs_max} runs at the same time and no more",
                "send the request again later",
                {"retry-after": RETRY_SECONDS},
            )
        live = self._live[stream.session] = LiveRun(agent, stream.start())
        ending = asyncio.create_task(self._wait_for_end(live))
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)
        return live

    async def start(self, agent: str, stream: "Stream[Any]") -> StartedRun:
        """Start a run and return once its first record is durable; raises what prevents that."""
        live = self.open(agent, stream)
        beginning = asyncio.create_task(live.began.wait())
        ended = asyncio.create_task(live.handle.result())
        try:
            await asyncio.wait((beginning, ended), return_when=asyncio.FIRST_COMPLETED)
            if not live.began.is_set():
                await ended  # raises why no prompt was recorded
        finally:
            beginning.cancel()
            ended.cancel()
        if live.after is None:  # there was nothing to resume
            live.after = len(await self._store.read(live.session))
        return StartedRun(session=live.session, agent=agent, after=live.after)

    async def _wait_for_end(self, live: LiveRun) -> None:
        stop, failure = "", None
        try:
            stop = (await live.handle.result()).stop
        except asyncio.CancelledError:
            raise
        except BridleError as error:
            failure = error
            LOG.warning("%s", escape_text(f"session {live.session}: {error}"))
        except Exception as error:  # noqa: BLE001 - one run must not end the server
            LOG.error("%s", escape_text(f"session {live.session}: {locate_error(error)}"))
        finally:
            del self._live[live.session]
            self._on_end(live.session, stop, failure)

    @property
    def has_room(self) -> bool:
        return len(self._live) < self._runs_max

    async def wait_for_room(self) -> None:
        """Return when another run may start, or the table closes."""
        while not self.has_room and not self.is_closing:
            await asyncio.wait(set(self._endings), return_when=asyncio.FIRST_COMPLETED)

    async def close(self, seconds: float) -> None:
        """Take no more runs and end those that run, so that they can be resumed, in about twice this time."""
        self.is_closing = True
        await self._end_all(lambda live: live.handle.pause(by=SERVER_NAME), seconds)
        await self._end_all(self._interrupt, seconds)

    async def _interrupt(self, live: LiveRun) -> None:
        if supports(self._store, SupportsApprovalKey):  # in memory: no process could resume it
            live.handle.cancel()
            return
        await SessionControl(self._store, live.session).cancel(by=SERVER_NAME, wait_seconds=1.0)

    async def _end_all(self, ask: Callable[[LiveRun], Coroutine[None, None, None]], seconds: float) -> None:
        """Ask every run to end, and wait until all have ended, or for this time."""
        asking = [asyncio.create_task(ask(live)) for live in self._live.values()]
        if self._endings:
            await asyncio.wait(set(self._endings), timeout=seconds)
        for task in asking:
            task.cancel()  # of a run that ended, or that does not take it
        for outcome in await asyncio.gather(*asking, return_exceptions=True):
            if isinstance(outcome, Exception):
                LOG.info("%s", escape_text(f"a run did not take the request to end: {outcome}"))
