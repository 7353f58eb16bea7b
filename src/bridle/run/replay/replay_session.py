"""`replay`: runs a recorded session again from its own log, without a network, tools or user functions.

    from bridle.sessions import fork_at_difference, replay

    report = await replay("s1", store="log.db")                     same events, or the first difference
    report = await replay("s1", store="log.db", agent=changed)      the first request that would differ
    fork = await fork_at_difference(report, store="log.db")         `changed.resume(fork.session)` goes on there

Only the last of these can lead to a request: the fork is continued like any session.
"""

import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from bridle.core.lineage.compare import describe_end
from bridle.core.lineage.fork import find_fork_point
from bridle.core.lineage.replay import ChangedSettings, LogReplay
from bridle.core.lineage.request_difference import PromptSide, add_bodies, compare_requests
from bridle.core.state import State
from bridle.ports.store import Store
from bridle.run.context.resources import StoreLike
from bridle.run.lineage import fork_session
from bridle.run.recovery.session_log import read_intact_records
from bridle.run.sync import run_in_background
from bridle.run.validate_input import check_session, check_tenant
from bridle.stores import open_store
from bridle.values.budget import SubrunStarted
from bridle.values.errors import BadTool, MisuseError, SessionNotFound
from bridle.values.events import ModelAsked, ToolStarted
from bridle.values.lineage import Divergence, Fork, ForkPlace, Replay, RequestDifference
from bridle.values.record import Record

from .changed_settings import AgentSettingsNow
from .log_wire import LogWire

if TYPE_CHECKING:
    from bridle.run.agent import Agent


async def replay(
    session: str,
    *,
    store: StoreLike = None,
    agent: "Agent[Any, Any] | None" = None,
    until: ForkPlace = None,
    tenant: str | None = None,
) -> Replay:
    """Replay a session from its log, up to a record (12) or message (`"m4"`); nothing is sent, run or written.

    With an `agent`, its settings replace the recorded ones, and the first request or decision that they change is
    the divergence. It also supplies values that the log does not hold. `store` is the agent's by default.
    With a `tenant`, raises `MisuseError` for another tenant's session.
    """
    check_session(session)
    now = AgentSettingsNow(agent) if agent is not None else None
    async with use_store(store, agent) as log:
        return await replay_session(log, session, now=now, until=until, tenant=tenant)


def replay_sync(
    session: str,
    *,
    store: StoreLike = None,
    agent: "Agent[Any, Any] | None" = None,
    until: ForkPlace = None,
    tenant: str | None = None,
) -> Replay:
    """`replay`, for code without an event loop."""
    return run_in_background(replay(session, store=store, agent=agent, until=until, tenant=tenant))


@asynccontextmanager
async def use_store(store: StoreLike, agent: "Agent[Any, Any] | None") -> AsyncIterator[Store]:
    """The store given, or that of the agent; one that is opened here is closed again."""
    if store is None and agent is None:
        raise MisuseError("name the store of the session: store=…")
    if isinstance(store, str | os.PathLike):
        opened = open_store(store)
        try:
            yield opened
        finally:
            await opened.close()
    else:
        assert store is not None or agent is not None
        yield store if store is not None else agent.store  # type: ignore[union-attr]


def make_wire(now: AgentSettingsNow | None) -> LogWire:
    """The codecs and private values of the agents, if there are any."""
    parts = now.parts if now is not None else []
    connections = {key: each for own in parts for key, each in own.model_chain.given_connections.items()}
    return LogWire(connections, [own.private_extras for own in parts])


async def replay_session(
    store: Store,
    session: str,
    *,
    now: AgentSettingsNow | None = None,
    changed: ChangedSettings | None = None,
    until: ForkPlace = None,
    tenant: str | None = None,
    seen: Sequence[str] = (),
) -> Replay:
    """Replay a session, and those that its tools started unless settings are `changed`."""
    records = await read_records(store, session)
    end = len(records) if until is None else find_fork_point(session, records, until).requested_at
    pair = ReplayPair(now, changed or now)
    divergence = None
    for record in records[:end]:
        divergence = pair.apply_record(record)
        if divergence is not None:
            break
    divergence = divergence or pair.recorded.damage
    check_tenant(session, pair.state, tenant)
    count = divergence.seq if divergence is not None else end
    events = [record.event for record in records[:count]]
    report = Replay(
        session=session,
        records=count,
        length=len(records),
        model_calls=sum(isinstance(event, ModelAsked) for event in events),
        tool_runs=sum(isinstance(event, ToolStarted) for event in events),
        end=describe_end(pair.state),
        divergence=divergence,
        head=pair.recorded.head,
        is_identical=divergence is None and count > 0 and pair.recorded.head == records[count - 1].hash,
        unchecked=tuple(pair.list_unchecked()),
    )
    if pair.changed is not None:
        return report
    inner = [event.session for event in events if isinstance(event, SubrunStarted)]
    subruns: list[Replay] = []
    missing: list[str] = []
    for name in dict.fromkeys(inner):
        if name in (*seen, session):
            continue
        if await store.read(name, limit=1):
            subruns.append(await replay_session(store, name, tenant=tenant, seen=(*seen, session)))
        else:
            missing.append(f"session {name} is not in this store")
    return replace(report, subruns=tuple(subruns), unchecked=(*report.unchecked, *missing))


class ReplayPair:
    """A replay of the log as it is and, if settings are changed, one with these beside it."""

    def __init__(self, now: AgentSettingsNow | None = None, changed: ChangedSettings | None = None) -> None:
        self.wire, self._changed_wire = make_wire(now), make_wire(now)
        self.recorded = LogReplay(self.wire)
        self.changed = LogReplay(self._changed_wire, changed) if changed is not None else None
        self._problems: list[str] = []

    @property
    def state(self) -> State:
        return (self.changed or self.recorded).state

    def apply_record(self, record: Record) -> Divergence | None:
        before = self.recorded.state
        different = self.recorded.apply_record(record)
        if self.wire.problem and self.wire.problem not in self._problems:
            self._problems.append(self.wire.problem)
        if self.changed is None:
            return different
        changed_before = self.changed.state
        found = self.changed.apply_record(record)
        if found is None or not found.is_request:
            return found
        return replace(found, request=self._compare(before, changed_before))

    def list_unchecked(self) -> list[str]:
        changed = self.changed.unchecked if self.changed is not None else ()
        return [*dict.fromkeys((*self.recorded.unchecked, *changed, *self._problems))]

    def _compare(self, before: State, changed_before: State) -> RequestDifference | None:
        assert self.changed is not None
        if self.recorded.asked is None or self.changed.asked is None:
            return None
        one, other = self.recorded.asked.effect.request, self.changed.asked.effect.request
        found = compare_requests(PromptSide(one, before), PromptSide(other, changed_before))
        if found is None or one.model.endpoint.family != other.model.endpoint.family:
            return found
        try:
            body, changed_body = self.wire.encode_http(one).body, self._changed_wire.encode_http(other).body
        except (MisuseError, BadTool):
            return found
        return add_bodies(found, body, changed_body)


async def read_records(store: Store, session: str) -> Sequence[Record]:
    """The records of a session, as far as they are intact; raises `SessionNotFound` if there are none."""
    records = await read_intact_records(store, session)
    if not records:
        raise SessionNotFound(f"there is no session {session!r} in this store; `bridle sessions` lists them")
    return records


async def fork_at_difference(
    report: Replay, new: str | None = None, *, store: StoreLike, tenant: str | None = None
) -> Fork:
    """Fork the session right before the request that differs; `resume` of the fork sends that request.

    Calls that ran before it are in the shared records and do not run again; the session itself does not change.
    Raises `MisuseError` if nothing differs.
    """
    if report.divergence is None:
        raise MisuseError(
            f"session {report.session!r} replays without a difference, so there is nothing to continue with;"
            " change the agent, or continue the session itself"
        )
    async with use_store(store, None) as log:
        return await fork_session(log, report.session, report.divergence.seq - 1, new, tenant=tenant)


def describe_difference(report: Replay) -> Iterator[str]:
    """The first difference of a replay, line by line."""
    found = report.divergence
    if found is None:
        for inner in report.subruns:
            yield from describe_difference(inner)
        return
    request = found.request
    if request is not None:
        where = "" if request.place == request.layer else f", {request.place}"
        yield f"session {report.session}: the request of record {found.seq} differs: {request.layer}{where}"
        yield from (f"  {change}" for change in request.changes)
        if request.first_byte >= 0:
            yield f"  first differing byte: {request.first_byte:,} of {request.body_bytes:,}"
        return
    yield f"session {report.session}: record {found.seq} ({found.event}) differs"
    yield from (f"  {difference}" for difference in found.differences)
    if not found.differences:
        wanted = ", ".join(found.effects) or "nothing"
        yield f"  no decision leads to this event; wanted now: {wanted}"
