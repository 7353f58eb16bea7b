"""Continues runs whose server has ended: at the start of this one, and while it serves.

Servers of one store list each other through it (`ServerListStore`). The list of a store loses a server when its process
ends, however it ends; each server that is left then does what the ended one would do at its next start. The store's
leases decide: a run goes on in one server, and the others leave it alone. Being wrong about a server that lives costs a
look at the sessions and nothing else.
"""

import asyncio
import logging
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from bridle.core.state import State
from bridle.ports.store import LeaseInspectable, ServerListStore, SessionInfo, supports
from bridle.run.archive.sessions import find_due, find_parent_session, list_sessions
from bridle.run.recovery.session_log import fold_records, has_engine
from bridle.run.replay.replay_session import read_records
from bridle.run.session import FINISHED_STOPS
from bridle.values.errors import BridleError, Conflict, Unusable
from bridle.values.events import ModelReplied, Prompted, Resumed, RunEnded, ToolFinished
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
ERROR_SECONDS_MAX = 30.0
"""Longest time until a store that failed is asked again."""
SESSIONS_SEARCHED_MAX = 10_000
SESSIONS_NAMED_MAX = 5
FRUITLESS_RESUMES_MAX = 5
"""A run that was resumed so often without a result may be what ends its servers; it is not adopted again."""
Outcome = Literal["", "resumed", "waiting", "not served", "in use", "no room"]
Reason = Literal["start", "server ended", "store failed"]


class Adoption:
    """Looks for runs of servers that have ended, and resumes them here."""

    def __init__(self, host: "AgentHost") -> None:
        self._host, self._store = host, host.store
        self.server = f"{secrets.randbits(32):08x}"
        """Number of this server in the list of its store."""
        self.servers: frozenset[str] = frozenset()
        """The servers of the store at the latest look."""
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

    async def _look(self) -> frozenset[str]:
        """List this server and the others; returns those that have ended since the last look."""
        if not supports(self._store, ServerListStore):
            return frozenset()
        known, found = self.servers, frozenset(await self._store.announce_server(self.server))
        self.servers = found
        return known - found - {self.server}

    async def _resume_all(self, reason: Reason) -> None:
        not_served: list[str] = []
        waiting: list[str] = []
        try:
            for info in await list_sessions(self._store, SESSIONS_SEARCHED_MAX):
                outcome = await self._try_resume(info.id, reason, info)
                if outcome == "not served":
                    not_served.append(info.id)
                elif outcome == "waiting" and len(waiting) < WATCHED_MAX:
                    waiting.append(info.id)
        except BridleError as error:
            LOG.warning("%s", escape_text(f"runs are not resumed: {error}"))
        for session in reversed(waiting):  # the oldest first, which is given up first
            self._host.answers.add(session)
        if not_served:
            names = ", ".join(not_served[:SESSIONS_NAMED_MAX])
            more = (
                f" and {len(not_served) - SESSIONS_NAMED_MAX} more"
                if len(not_served) > SESSIONS_NAMED_MAX
                else ""
            )
            LOG.warning("%s", escape_text(f"not resumed, because the agent is not served: {names}{more}"))

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
        if outcome == "resumed":
            self._host.metrics.count_adoption(reason)
        elif outcome in ("in use", "no room"):
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
        # The watch resumes an answered run when the process that has it, such as `bridle approve`, lets go.
        otherwise: Outcome = "waiting" if due == "answered" else "in use" if reason == "server ended" else ""
        if supports(self._store, LeaseInspectable) and await self._store.is_leased(session):
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
            return otherwise
        return "resumed"


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
