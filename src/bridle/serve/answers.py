"""Continues waiting runs of the server whose questions another process answered.

A run that waits for a person has ended. `bridle approvals approve`, or another server, records the answer in its log.
This watch waits for records of the sessions that wait, and of the runs inside their calls, and resumes a run once no
question is open. It decides nothing about the answer: the resumed run checks its proof, and the lease keeps others
out, as with `bridle resume`.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Literal, NamedTuple

from bridle.core.state import Phase, State
from bridle.ports.store import LeaseInspectable, Store, WatchableStore, supports
from bridle.run.archive.sessions import find_due, list_all_approvals
from bridle.run.recovery.session_log import fold_records
from bridle.values.calls import ApprovalAnswered
from bridle.values.errors import BridleError, Conflict, Corrupt, SessionNotFound
from bridle.values.text import escape_text

from .errors import ServeError
from .runs import RunTable

LOG = logging.getLogger("bridle")
WATCHED_MAX = 1_000
"""Sessions that are watched at the same time: each costs the store a look after every write, or every second."""
READING_MAX = 4
"""Logs that are read at the same time."""
# not from outside: time that we wait for our own work
LEASE_SECONDS_MIN, LEASE_SECONDS_MAX = 0.02, 1.0
"""Time between two looks at a session that another process holds: doubled each time."""
# not from outside: time that we wait for our own work
ERROR_SECONDS_MAX = 30.0
"""Longest time until a store that failed is asked again."""
POLL_SECONDS = 0.5
"""Time between two looks at a store that cannot be watched."""


class WaitingRun(NamedTuple):
    """A run that waits, as its logs have it."""

    state: State
    lengths: Mapping[str, int]
    """Numbers of the last records: of its session, and of the waiting runs inside its calls."""
    answers: frozenset[str]
    """Hashes of the answers in these logs."""


class _Hold:
    """Callers that answer questions of one run themselves."""

    def __init__(self) -> None:
        self.callers, self.turn, self.watches_again = 0, asyncio.Lock(), True


class AnswerWatch:
    """Watches the waiting runs of a server."""

    def __init__(
        self,
        store: Store,
        runs: RunTable,
        resume: Callable[[str, State], Awaitable[object]],
    ) -> None:
        self._store, self._runs, self._resume = store, runs, resume
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._held: dict[str, _Hold] = {}
        self._used: dict[str, frozenset[str]] = {}
        """Answers for which a run was resumed, so that a run that waits again is not resumed for the same ones."""
        self._reading = asyncio.Semaphore(READING_MAX)
        self._is_closed = False

    def __contains__(self, session: str) -> bool:
        return session in self._tasks

    def add(self, session: str) -> None:
        """Watch the run of a session, if it waits; with too many, the one watched longest is given up."""
        if self._is_closed or session in self._tasks or session in self._held:
            return
        if len(self._tasks) >= WATCHED_MAX:
            self.drop(next(iter(self._tasks)))
        self._tasks[session] = task = asyncio.create_task(self._watch(session))
        task.add_done_callback(lambda _: self._forget_task(session, task))

    def drop(self, session: str) -> None:
        """Watch a session no more: its run has ended."""
        self._used.pop(session, None)
        self._stop(session)

    @asynccontextmanager
    async def hold(self, session: str, *, watches_again: bool = True) -> AsyncIterator[None]:
        """Do not resume the run of a session while the caller answers its questions, and resumes it.

        Callers wait for one another: two answers at once would be refused by the lease of the session. The session is
        watched again after a caller that failed, whatever it wanted.
        """
        hold = self._held.setdefault(session, _Hold())
        hold.callers += 1
        self._stop(session)
        try:
            async with hold.turn:
                yield
            hold.watches_again &= watches_again
        finally:
            hold.callers -= 1
            if not hold.callers:
                del self._held[session]
                if hold.watches_again:
                    self.add(session)

    def close(self) -> None:
        """End all watches."""
        self._is_closed = True
        for session in [*self._tasks]:
            self._stop(session)

    def _stop(self, session: str) -> None:
        if (task := self._tasks.pop(session, None)) is not None:
            task.cancel()

    def _forget_task(self, session: str, task: "asyncio.Task[None]") -> None:
        if self._tasks.get(session) is task:
            del self._tasks[session]

    async def _watch(self, session: str) -> None:
        pause = 0.0
        while True:
            try:
                return await self._watch_until_resumed(session)
            except (Corrupt, SessionNotFound) as error:
                LOG.warning("%s", escape_text(f"answers for session {session} are not noticed: {error}"))
                return None
            except BridleError as error:  # such as a database that is restarted
                if not pause:
                    text = f"answers for session {session} are not noticed for now: {error}"
                    LOG.warning("%s", escape_text(text))
                pause = min(max(2 * pause, LEASE_SECONDS_MAX), ERROR_SECONDS_MAX)
                await asyncio.sleep(pause)

    async def _watch_until_resumed(self, session: str) -> None:
        while (waiting := await self._read(session)) is not None:
            if await self._is_answered(session, waiting):
                if not await self._wait_until_free(session):
                    continue  # it may have changed meanwhile
                outcome = await self._try_resume(session, waiting)
                if outcome == "over":
                    return
                if outcome == "busy":
                    await asyncio.sleep(LEASE_SECONDS_MAX)
                    continue
            await self._wait_for_records(waiting.lengths)

    async def _read(self, session: str) -> WaitingRun | None:
        if session in self._runs:
            return None
        async with self._reading:
            return await read_waiting_run(self._store, session)

    async def _is_answered(self, session: str, waiting: WaitingRun) -> bool:
        """True if no question is open and one was answered since the run was last resumed here."""
        if not waiting.answers or waiting.answers == self._used.get(session):
            return False
        if await list_all_approvals(self._store, session, waiting.state):
            return False
        return await find_due(self._store, waiting.state) == "answered"

    async def _wait_until_free(self, session: str) -> bool:
        """True if no process holds the session and another run may start; else waits until that is so."""
        if not self._runs.has_room:
            await self._runs.wait_for_room()
            return False
        if not supports(self._store, LeaseInspectable):
            return True
        pause = LEASE_SECONDS_MIN
        while await self._store.is_leased(session):  # such as the process that has just recorded the answer
            await asyncio.sleep(pause)
            pause = min(2 * pause, LEASE_SECONDS_MAX)
        return pause == LEASE_SECONDS_MIN

    async def _try_resume(self, session: str, waiting: WaitingRun) -> Literal["over", "busy", "failed"]:
        """Resume the run: `over` if there is nothing to watch any more; `failed` if only another answer can help."""
        before = self._used.get(session, frozenset())
        self._used[session] = waiting.answers
        try:
            await self._resume(session, waiting.state)
        except Conflict:  # another process was faster
            self._used[session] = before
            return "busy"
        except ServeError as error:
            self._used[session] = before
            # Without room it is tried again; else it runs here, its agent is not served, or the server stops.
            return "busy" if error.status == 429 else "over"
        except BridleError as error:
            LOG.warning("%s", escape_text(f"session {session} is answered and cannot be resumed: {error}"))
            return "failed"
        return "over"

    async def _wait_for_records(self, lengths: Mapping[str, int]) -> None:
        if not supports(self._store, WatchableStore):
            await asyncio.sleep(POLL_SECONDS)
            return
        waits = [
            asyncio.create_task(self._store.wait_for_records(name, last)) for name, last in lengths.items()
        ]
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in done:
                wait.result()
        finally:
            for wait in waits:
                wait.cancel()


async def read_waiting_run(store: Store, session: str) -> WaitingRun | None:
    """The run of a session, if it waits for a person or for results of its caller."""
    records = await store.read(session)
    state = (await fold_records(records)).state
    if state.phase is not Phase.AWAITING_APPROVAL:
        return None
    lengths = {session: len(records)}
    answers = {record.hash for record in records if isinstance(record.event, ApprovalAnswered)}
    for item in state.calls.batch.pending:
        if item.result is None and item.waiting_session:
            inner = await read_waiting_run(store, item.waiting_session)
            if inner is not None:
                lengths |= inner.lengths
                answers |= inner.answers
    return WaitingRun(state, lengths, frozenset(answers))
