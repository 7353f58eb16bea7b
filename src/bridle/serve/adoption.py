"""Continues runs whose process has ended: at the start of this server, and while it serves.

Servers of one store list each other through it (`ServerListStore`). The list of a store loses a server when its process
ends, however it ends; each server that is left then does what the ended one would do at its next start. The store's
leases decide: a run goes on in one server, and the others leave it alone. Being wrong about a server that lives costs a
look at the sessions and nothing else.

Other processes, such as `bridle run` or a batch, are in no list. Their runs are found by what they leave: a session
whose log does not end with the end of a run, and whose lease is free (`OrphanSearch`).
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

from bridle.core.state import State
from bridle.ports.store import LeaseInspectable, ServerListStore, SessionInfo, Store, supports
from bridle.run.archive.sessions import find_due, find_parent_session, list_sessions
from bridle.run.recovery.session_log import fold_records, has_engine
from bridle.run.replay.replay_session import read_records
from bridle.run.session import FINISHED_STOPS
from bridle.values.calls import ApprovalAnswered, ContentRedacted
from bridle.values.errors import BridleError, Conflict, Corrupt, Unusable
from bridle.values.events import (
    Configured,
    Event,
    Forked,
    Imported,
    LogRepaired,
    ModelReplied,
    Prompted,
    Resumed,
    RunEnded,
    ToolFinished,
)
from bridle.values.record import Record
from bridle.values.text import escape_text

from .answers import WATCHED_MAX
from .errors import ServeError
from .identity import WIRE_CALLER
from .runs import SHUTDOWN_REASONS

if TYPE_CHECKING:
    from .host import AgentHost

LOG = logging.getLogger("bridle")
LOOK_SECONDS = 1.0
"""Time between two looks at the list of servers."""
# not from outside: time that we wait for our own work
ERROR_SECONDS_MAX = 30.0
"""Longest time until a store that failed is asked again."""
SESSIONS_SEARCHED_MAX = 10_000
SESSIONS_LISTED, SESSIONS_LISTED_GROWTH = 50, 4
"""Sessions that a look lists first, and how many times as many it lists next if all of these have changed."""
LEASES_CHECKED_MAX = 25
"""Leases that a look checks; with more runs in progress, each is checked less often."""
LOOK_SHARE_MAX = 0.05
"""Share of the time that looks for orphans may take: in a store with millions of sessions they are rarer."""
DRIVEN_SECONDS = 60.0
"""A log that a run wrote so lately had a process, although no look has seen its lease."""
OUTSIDE_EVENTS = (ApprovalAnswered, Configured, ContentRedacted, Forked, Imported, LogRepaired)
"""Events that are written without a run in progress, as results of the caller are."""
SESSIONS_NAMED_MAX = 5
FRUITLESS_RESUMES_MAX = 5
"""A run that was resumed so often without a result may be what ends its servers; it is not adopted again."""
Outcome = Literal["", "resumed", "waiting", "not served", "in use", "no room"]
Reason = Literal["start", "server ended", "process ended", "store failed"]


class OrphanSearch:
    """Finds runs that a process has left: their log has no end, and nobody holds their lease any more.

    A look lists the sessions that were written since the one before, and checks some of the runs in progress. One whose
    lease is free is found by the second look that sees it so, because a lost connection loses its leases for a moment.
    A session that no process has driven lately, such as a fork or an import, is none of them.
    """

    def __init__(self, store: Store, is_run_here: Callable[[str], bool]) -> None:
        self._store, self._is_run_here = store, is_run_here
        self._lengths: dict[str, int] = {}
        """Numbers of records at the latest look."""
        self._driven: dict[str, bool] = {}
        """Sessions with a run in progress, those that were checked longest ago first; True if a look saw the lease."""
        self._free: dict[str, int] = {}
        """Those whose lease was free at the latest look, with their lengths then."""
        self._failed: set[str] = set()
        """Sessions whose run has failed in this server, which must not try it again and again."""
        self._next_look = float("-inf")

    def note(self, info: SessionInfo) -> None:
        """Say that a session has been looked at as it is now."""
        self._lengths.pop(info.id, None)
        self._lengths[info.id] = info.length
        while len(self._lengths) > 2 * SESSIONS_SEARCHED_MAX:
            oldest = next(iter(self._lengths))
            del self._lengths[oldest]
            self._driven.pop(oldest, None)

    def watch(self, session: str) -> None:
        """Say that another process drives the run of a session."""
        self._driven[session] = True

    def leave(self, session: str) -> None:
        """Find this session no more, until its run has ended in another process."""
        self._failed.add(session)

    async def look(self) -> list[str]:
        """Sessions whose process has ended; each is returned once, unless its log grows."""
        if not supports(self._store, LeaseInspectable) or time.monotonic() < self._next_look:
            return []
        started = time.monotonic()
        for info in await self._list_changed():
            await self._judge(info)
        found = [session for session, length in self._free.items() if await self._is_left(session, length)]
        for session in found:
            self._driven.pop(session, None)
        checked = [*self._driven][:LEASES_CHECKED_MAX]
        for session in checked:
            self._driven[session] = self._driven.pop(session)  # to the end
        self._free = {
            session: self._lengths.get(session, 0) for session in checked
            if not self._is_run_here(session) and not await self._store.is_leased(session)
        }  # fmt: skip
        now = time.monotonic()
        self._next_look = now + (now - started) / LOOK_SHARE_MAX
        return found

    async def _list_changed(self) -> list[SessionInfo]:
        """Sessions that were written since the latest look."""
        limit = SESSIONS_LISTED
        while True:
            infos = await list_sessions(self._store, limit)
            changed = [info for info in infos if self._lengths.get(info.id) != info.length]
            if len(changed) < limit or limit >= SESSIONS_SEARCHED_MAX:
                return changed
            limit = min(limit * SESSIONS_LISTED_GROWTH, SESSIONS_SEARCHED_MAX)

    async def _judge(self, info: SessionInfo) -> None:
        self.note(info)
        try:
            last = await self._store.read(info.id, info.length - 1)
        except Corrupt:
            last = ()  # the list of sessions shows it
        if not last or isinstance(last[-1].event, RunEnded):
            self._driven.pop(info.id, None)
            self._failed.discard(info.id)
        elif info.id not in self._failed:
            await self._judge_unfinished(info, last[-1].event)

    async def _judge_unfinished(self, info: SessionInfo, last: Event) -> None:
        """Watch a session that a process drives, or drove a moment ago."""
        is_outside = isinstance(last, OUTSIDE_EVENTS) or (
            isinstance(last, ToolFinished) and last.source == "caller"
        )
        if supports(self._store, LeaseInspectable) and await self._store.is_leased(info.id):
            self._driven[info.id] = True
        elif not is_outside and time.time() - info.updated_at < DRIVEN_SECONDS:
            self._driven.setdefault(info.id, False)
        elif is_outside and not self._driven.get(info.id, True):
            del self._driven[info.id]  # a fork, which was seen before its own first record was written

    async def _is_left(self, session: str, length: int) -> bool:
        """True if nothing has happened in a session whose lease was free at the look before."""
        if session not in self._driven or session in self._failed or self._is_run_here(session):
            return False
        is_same = self._lengths.get(session, 0) == length
        return (
            is_same and supports(self._store, LeaseInspectable) and not await self._store.is_leased(session)
        )


class Adoption:
    """Looks for runs of processes that have ended, and resumes them here."""

    def __init__(self, host: "AgentHost") -> None:
        self._host, self._store = host, host.store
        self.server = f"{secrets.randbits(32):08x}"
        """Number of this server in the list of its store."""
        self.servers: frozenset[str] = frozenset()
        """The servers of the store at the latest look."""
        self.orphans = OrphanSearch(host.store, host.runs.__contains__)
        self._again: dict[str, Reason] = {}
        """Sessions to try again at the next look."""
        self.resuming: asyncio.Task[None] | None = None
        """Looks for runs at the start of this server."""
        self._watching: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """List this server, and look for runs in the background."""
        if not self._host.agents:
            return
        try:
            await self._look()
        except BridleError as error:
            LOG.warning("%s", escape_text(f"other servers do not see this one for now: {error}"))
        if self._host.options.resumes_runs:
            self.resuming = asyncio.create_task(self._resume_all("start"))
        if supports(self._store, ServerListStore):
            self._watching = asyncio.create_task(self._watch())

    async def close(self) -> None:
        """Adopt no more. This server stays listed until `withdraw`."""
        tasks = [task for task in (self.resuming, self._watching) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def withdraw(self) -> None:
        """List this server no more, so that others continue the runs that it has left."""
        if self._watching is None or not supports(self._store, ServerListStore):
            return
        try:
            await self._store.withdraw_server(self.server)
        except BridleError as error:
            LOG.warning("%s", escape_text(f"other servers notice the end of this one later: {error}"))

    def retry(self, session: str) -> None:
        """Resume a run of this server that ended because the store failed, once the store works again."""
        if self._host.options.resumes_runs:
            self._again[session] = "store failed"

    async def _watch(self) -> None:
        """Look at the list of servers again and again."""
        if self.resuming is not None:
            await self.resuming
        pause = LOOK_SECONDS
        while True:
            await asyncio.sleep(pause)
            try:
                gone = await self._look()
            except BridleError as error:
                if pause == LOOK_SECONDS:
                    LOG.warning("%s", escape_text(f"servers that end are not noticed for now: {error}"))
                pause = min(2 * pause, ERROR_SECONDS_MAX)
                continue
            pause = LOOK_SECONDS
            if not self._host.options.resumes_runs:
                continue
            await self._try_again()
            if gone:
                names = ", ".join(sorted(gone))
                LOG.warning("%s", f"a server of this store has ended ({names}): looking for its runs")
                await self._resume_all("server ended")
            await self._resume_orphans()

    async def _look(self) -> frozenset[str]:
        """List this server and the others; returns those that have ended since the last look."""
        if not supports(self._store, ServerListStore):
            return frozenset()
        known, found = self.servers, frozenset(await self._store.announce_server(self.server))
        self.servers = found
        return known - found - {self.server}

    async def _resume_orphans(self) -> None:
        """Resume runs that no process drives, whatever process had them."""
        try:
            not_served = [
                session for session in await self.orphans.look()
                if await self._try_resume(session, "process ended") == "not served"
            ]  # fmt: skip
        except BridleError as error:
            LOG.warning("%s", escape_text(f"runs that no process drives are not looked for now: {error}"))
        else:
            _warn_not_served(not_served)

    async def _resume_all(self, reason: Reason) -> None:
        not_served: list[str] = []
        waiting: list[str] = []
        try:
            for info in await list_sessions(self._store, SESSIONS_SEARCHED_MAX):
                self.orphans.note(info)
                outcome = await self._try_resume(info.id, reason, info)
                if outcome == "not served":
                    not_served.append(info.id)
                elif outcome == "waiting" and len(waiting) < WATCHED_MAX:
                    waiting.append(info.id)
        except BridleError as error:
            LOG.warning("%s", escape_text(f"runs are not resumed: {error}"))
        for session in reversed(waiting):  # the oldest first, which is given up first
            self._host.answers.add(session)
        _warn_not_served(not_served)

    async def _try_again(self) -> None:
        """Try the sessions that were in use or found no room; one that is in use again has another owner."""
        again, self._again = self._again, {}
        for session, reason in again.items():
            outcome = await self._try_resume(session, reason)
            if outcome == "waiting":
                self._host.answers.add(session)
            elif outcome == "in use":
                self._again.pop(session, None)

    async def _try_resume(self, session: str, reason: Reason, info: SessionInfo | None = None) -> Outcome:
        """Continue a run if it is due; `waiting` if it waits for an answer, `not served` if its agent is not."""
        try:
            if info is not None and await self._has_finished(info):
                return ""
            outcome = await self._resume_if_due(session, reason)
        except Unusable as error:
            LOG.warning("%s", escape_text(f"session {session} is not resumed for now: {error}"))
            self._again[session] = reason
            return ""
        except (ServeError, BridleError) as error:
            if isinstance(error, ServeError) and error.detail.code == "agent_not_served":
                return "not served"
            LOG.warning("%s", escape_text(f"session {session} is not resumed: {error}"))
            return ""
        if outcome in ("in use", "no room"):
            self._again.setdefault(session, reason)
        return outcome

    async def _has_finished(self, info: SessionInfo) -> bool:
        """True if the last record is the end of a run that nothing continues; most sessions are like that."""
        last = await self._store.read(info.id, info.length - 1)
        return bool(last) and isinstance(last[-1].event, RunEnded) and last[-1].event.stop in FINISHED_STOPS

    async def _resume_if_due(self, session: str, reason: Reason) -> Outcome:
        host = self._host
        records = await read_records(self._store, session)
        if session in host.runs or find_parent_session(records):
            return ""
        state = (await fold_records(records)).state
        due = await find_due(self._store, state)
        if due and await has_engine(self._store, session, state):
            return ""  # the engine continues its runs itself
        # A client of a wire waits for its run, and is gone with its server.
        is_wanted = not state.run.origin.client_waits and state.run.origin.caller != WIRE_CALLER
        is_broken = due == "interrupted" or state.run.end.reason.startswith(SHUTDOWN_REASONS)
        if due != "answered" and not (is_broken and is_wanted):
            return "waiting" if due == "waiting" and name_first_agent(state) in host.agents else ""
        # The watch resumes an answered run when the process that has it, such as `bridle approvals approve`, lets go.
        is_left = reason in ("server ended", "process ended")
        otherwise: Outcome = "waiting" if due == "answered" else "in use" if is_left else ""
        if supports(self._store, LeaseInspectable) and await self._store.is_leased(session):
            self.orphans.watch(session)
            return otherwise
        agent = host.find_agent_of(state)
        if reason == "start":
            await host.runs.wait_for_room()
        elif not host.runs.has_room:
            return "no room"
        elif (count := count_fruitless_resumes(records)) >= FRUITLESS_RESUMES_MAX:
            text = (
                f"session {session} is not adopted: it was resumed {count} times without a result, so it may be what"
                f" ends its servers; look at its log, then: bridle resume {session}"
            )
            LOG.error("%s", escape_text(text))
            return ""
        try:
            await host.resume(session, agent=agent)
        except Conflict:
            self.orphans.watch(session)
            return otherwise
        host.metrics.count_adoption(reason, name_first_agent(state), state.identity.owner or "")
        return "resumed"


def _warn_not_served(sessions: Sequence[str]) -> None:
    if not sessions:
        return
    names, more = ", ".join(sessions[:SESSIONS_NAMED_MAX]), len(sessions) - SESSIONS_NAMED_MAX
    about = f"{names} and {more} more" if more > 0 else names
    LOG.warning("%s", escape_text(f"not resumed, because the agent is not served: {about}"))


def count_fruitless_resumes(records: Sequence[Record]) -> int:
    """How often the run was resumed since its latest result, or its beginning."""
    count = 0
    for record in reversed(records):
        if isinstance(record.event, ModelReplied | ToolFinished | Prompted):
            break
        count += isinstance(record.event, Resumed)
    return count


def name_first_agent(state: State) -> str:
    """Name of the agent that began the run; others may have taken it over."""
    return (state.run.origin.first_settings or state.settings).name
