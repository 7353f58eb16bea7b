"""Counts the sessions of a store that somebody has to look at: runs that wait, orphaned runs, calls in doubt.

It looks when the metrics are read, at most every `CENSUS_SECONDS`, and reads the logs that have grown since. A session
whose run has finished costs one record.
"""

import asyncio
import time
from collections.abc import Callable
from typing import NamedTuple

from bridle.core.state import Phase, State
from bridle.ports.store import LeaseInspectable, SessionInfo, Store, supports
from bridle.run.archive.sessions import find_parent_session, list_sessions
from bridle.run.recovery.session_log import fold_records
from bridle.run.session import FINISHED_STOPS
from bridle.values.errors import BridleError, Corrupt
from bridle.values.events import RunEnded

from .adoption import SESSIONS_SEARCHED_MAX, name_first_agent

CENSUS_SECONDS = 10.0


class Standing(NamedTuple):
    """A session whose run has not finished."""

    agent: str
    tenant: str
    updated_at: float
    is_waiting: bool
    is_unfinished: bool
    """True if a process should be driving it."""
    in_doubt: int
    """Calls that were started and have no result."""


class Counted(NamedTuple):
    """What was counted of one agent and tenant."""

    agent: str
    tenant: str
    waiting: int
    orphaned: int
    in_doubt: int


class Census:
    def __init__(self, store: Store, is_run_here: Callable[[str], bool]) -> None:
        self._store, self._is_run_here = store, is_run_here
        self._lengths: dict[str, int] = {}
        self._standings: dict[str, Standing] = {}
        self._turn = asyncio.Lock()
        self._looked_at = float("-inf")
        self.counted: tuple[Counted, ...] = ()
        self.oldest_waiting_seconds = 0.0
        self.is_store_up = True

    async def refresh(self) -> None:
        """Count again, unless that was done lately. A store that fails is noted, and the counts stay."""
        async with self._turn:
            if time.monotonic() - self._looked_at < CENSUS_SECONDS:
                return
            try:
                await self._read_changed()
                self.counted = await self._count()
                self.is_store_up = True
            except BridleError:
                self.is_store_up = False
            self._looked_at = time.monotonic()

    async def _read_changed(self) -> None:
        infos = await list_sessions(self._store, SESSIONS_SEARCHED_MAX)
        for info in infos:
            if self._lengths.get(info.id) != info.length:
                standing = await self._read(info)
                self._lengths[info.id] = info.length
                self._standings.pop(info.id, None)
                if standing is not None:
                    self._standings[info.id] = standing
        for gone in self._lengths.keys() - {info.id for info in infos}:
            del self._lengths[gone]
            self._standings.pop(gone, None)

    async def _read(self, info: SessionInfo) -> Standing | None:
        try:
            last = await self._store.read(info.id, info.length - 1)
            if last and isinstance(last[-1].event, RunEnded) and last[-1].event.stop in FINISHED_STOPS:
                return None
            records = await self._store.read(info.id)
            if find_parent_session(records):
                return None  # the run around it stands for it
            return _judge((await fold_records(records)).state, info)
        except Corrupt:
            return None  # the list of sessions shows it

    async def _count(self) -> tuple[Counted, ...]:
        sums: dict[tuple[str, str], list[int]] = {}
        oldest = time.time()
        for session, standing in self._standings.items():
            is_driven = standing.is_unfinished and await self._is_driven(session)
            found = sums.setdefault((standing.agent, standing.tenant), [0, 0, 0])
            found[0] += standing.is_waiting
            found[1] += standing.is_unfinished and not is_driven
            found[2] += 0 if is_driven else standing.in_doubt
            if standing.is_waiting:
                oldest = min(oldest, standing.updated_at)
        self.oldest_waiting_seconds = time.time() - oldest
        return tuple(Counted(*owner, *counts) for owner, counts in sums.items())

    async def _is_driven(self, session: str) -> bool:
        if self._is_run_here(session):
            return True
        return supports(self._store, LeaseInspectable) and await self._store.is_leased(session)


def _judge(state: State, info: SessionInfo) -> Standing | None:
    is_waiting = state.phase is Phase.AWAITING_APPROVAL
    is_unfinished = state.phase not in (Phase.NEW, Phase.IDLE) and not is_waiting
    pending = [item for item in state.calls.batch.pending if item.result is None]
    in_doubt = sum(item.running or item.in_doubt for item in pending)
    if not (is_waiting or is_unfinished or in_doubt):
        return None
    owner = state.identity.owner or ""
    return Standing(name_first_agent(state), owner, info.updated_at, is_waiting, is_unfinished, in_doubt)
