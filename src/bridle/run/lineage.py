"""Families of sessions: fork one, list its branches, set two beside each other.

    fork = await agent.fork(session, at="m4")     a new session that begins with the first four messages
    await agent.run("…", session=fork.session)    and goes on from there, with this agent's model
    await agent.branches(session)                 its family: all that left it, and all that it left
    await agent.compare(session, fork.session)    what both said, and what each did after that

To roll back is to fork: a log only grows, and whoever still holds the old name must not find another
conversation under it.  So the way back has a new name, and the old way stays as it was.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from bridle.core.lineage.compare import compare_logs, describe_end
from bridle.core.lineage.fork import find_fork_point
from bridle.core.recovery.fallback import set_model
from bridle.core.recovery.log_repair import LogReader, fold_log
from bridle.core.state import State
from bridle.ports.clock import Clock
from bridle.ports.store import RepairableStore, SessionInfo, Store
from bridle.values.budget import Spending
from bridle.values.errors import Conflict, Corrupt, SessionNotFound
from bridle.values.events import Configured, Event, LogRepaired, Prompted
from bridle.values.lineage import Branch, Comparison, CrossTenant, Fork, Forked, ForkPlace
from bridle.values.message import Text
from bridle.values.model import Model
from bridle.values.record import GENESIS, Record, seal_record

from .clock import SystemClock
from .model_connection import find_model_by_name
from .validate_input import check_session, check_tenant, new_session_id

FAMILY_SESSIONS_MAX = 1_000_000
"""How many sessions are looked through for a family: all of them, in any store that one machine keeps."""


async def fork_session(
    store: Store,
    session: str,
    at: ForkPlace = None,
    new: str | None = None,
    *,
    model: str | Model | None = None,
    clock: Clock | None = None,
    tenant: str | None = None,
) -> Fork:
    """A new session that shares the records up to a message (`"m4"`) or a number; without one, all that can
    be trusted.  Where that is not all there is, the new one begins by saying so.  With a `model`, it is
    that one's turn when the new session goes on.  For a `tenant`, the session must be his.
    """
    check_session(session)
    if new is not None:
        check_session(new)
    now = (clock or SystemClock()).now()
    records, lost = await _read_trusted(store, session)
    if not records and not lost:
        raise SessionNotFound(f"there is no session {session!r} to fork; `bridle sessions` lists them")
    place = find_fork_point(session, records, at)
    name = new or new_session_id(now)
    across = check_tenant(session, fold_log(records).state, tenant)
    behind = lost if place.at == len(records) else ""
    chosen = find_model_by_name(model, spoken_to=False) if isinstance(model, str) else model
    beginning = _first_fork_events(
        Forked(session=name, parent=session, at=place.at, cross_tenant=across), behind, chosen, place.state
    )
    try:
        await store.fork(session, place.at, name)
    except Conflict:
        if not await _is_unfinished_fork(store, name, session, place.at):
            raise
    head = records[place.at - 1].hash if place.at else GENESIS
    await store.append(name, place.at, _seal_records(beginning, place.at, now, head))
    return Fork(
        session=name,
        parent=session,
        at=place.at,
        message=place.message,
        requested_at=place.requested_at,
        cut_reason=behind,
        completed_actions=place.completed_actions,
    )


async def _is_unfinished_fork(store: Store, name: str, parent: str, at: int) -> bool:
    """Whether there is that fork already with nothing in it: somebody died between the two steps."""
    infos = await store.sessions(limit=FAMILY_SESSIONS_MAX)
    return any((i.id, i.parent, i.forked_at, i.length) == (name, parent, at, at) for i in infos)


async def list_branches(store: Store, session: str, *, tenant: str | None = None) -> tuple[Branch, ...]:
    """The family of a session, parents before their children, in the order they were forked.

    For a `tenant`, the session must be his, and branches that are another's are left out.
    """
    check_session(session)
    infos = {info.id: info for info in await store.sessions(limit=FAMILY_SESSIONS_MAX)}
    if session not in infos:
        raise SessionNotFound(f"there is no session {session!r} here; `bridle sessions` lists them")
    owners = {info.id: _find_owner(infos, info) for info in infos.values()}
    root = session
    for _ in infos:  # a line cannot be longer than all of them, whatever somebody wrote into the file
        root = owners[root] or root
    children: dict[str, list[SessionInfo]] = {}
    for info in infos.values():
        children.setdefault(owners[info.id], []).append(info)
    family = _FamilyReader(store, children)
    found = await family.read_branches(infos[root])
    check_tenant(session, State(owner=family.tenants[session]), tenant)
    if tenant is None or isinstance(tenant, CrossTenant):
        return found
    return _reattach_branches(
        [each for each in found if family.tenants[each.session] in (None, tenant)], found
    )


def _reattach_branches(kept: Sequence[Branch], family: Sequence[Branch]) -> tuple[Branch, ...]:
    """Those branches, each under the nearest one above it that is kept."""
    above = {branch.session: branch.parent for branch in family}
    depths: dict[str, int] = {"": -1}
    shown: list[Branch] = []
    for branch in kept:
        parent = branch.parent
        while parent not in depths:
            parent = above[parent]
        depths[branch.session] = depths[parent] + 1
        shown.append(replace(branch, parent=parent, depth=depths[branch.session]))
    return tuple(shown)


async def compare_sessions(store: Store, a: str, b: str, *, tenant: str | None = None) -> Comparison:
    """What both said, and what each did after that; for a `tenant`, both must be his."""
    for name in (a, b):
        check_session(name)
    sides = [(await _read_trusted(store, name))[0] for name in (a, b)]
    for name, records in zip((a, b), sides, strict=True):
        if not records:
            raise SessionNotFound(f"there is no session {name!r} here; `bridle sessions` lists them")
        check_tenant(name, fold_log(records).state, tenant)
    return compare_logs(a, sides[0], b, sides[1])


class LineageHost(Protocol):
    """What the branching is part of."""

    @property
    def store(self) -> Store: ...

    @property
    def clock(self) -> Clock: ...


class LineageMethods:
    """What an agent can do about the past of its sessions."""

    async def fork(
        self: LineageHost,
        session: str,
        at: ForkPlace = None,
        *,
        new: str | None = None,
        tenant: str | None = None,
    ) -> Fork:
        """A new session that begins as that one did, up to a message (`"m4"`) or a record (12).

        Nothing is copied and nothing is undone; `kept` says what the old session did after that point.
        """
        return await fork_session(self.store, session, at, new, clock=self.clock, tenant=tenant)

    async def branches(self: LineageHost, session: str, *, tenant: str | None = None) -> tuple[Branch, ...]:
        return await list_branches(self.store, session, tenant=tenant)

    async def compare(self: LineageHost, a: str, b: str, *, tenant: str | None = None) -> Comparison:
        return await compare_sessions(self.store, a, b, tenant=tenant)


class _UnreadBranch(NamedTuple):
    """A session of a family that is still to be read, and what was read of the line it left."""

    info: SessionInfo
    owner: str = ""
    depth: int = 0
    reader_at_fork: LogReader | None = None


class _FamilyReader:
    """Every line is read once, from where it left its owner: what is shared is not read again."""

    def __init__(self, store: Store, children: Mapping[str, Sequence[SessionInfo]]) -> None:
        self._store, self._children = store, children
        self.tenants: dict[str, str | None] = {}
        """By session: whose it is; None of one that nobody has prompted."""

    async def read_branches(self, root: SessionInfo) -> tuple[Branch, ...]:
        found: list[Branch] = []
        waiting = [_UnreadBranch(root)]
        while waiting:
            line = waiting.pop()
            branch, points = await self._read_branch(line)
            found.append(branch)
            # The last one is taken first.
            for child in reversed(self._list_children(line.info.id)):
                waiting.append(
                    _UnreadBranch(child, line.info.id, line.depth + 1, points.get(child.forked_at))
                )
        return tuple(found)

    def _list_children(self, owner: str) -> list[SessionInfo]:
        return sorted(self._children.get(owner, ()), key=lambda info: (info.forked_at, info.created_at))

    async def _read_branch(self, line: _UnreadBranch) -> tuple[Branch, dict[int, LogReader]]:
        """The branch, and how far it was read where others left it."""
        info = line.info
        records, trouble = await _read_trusted(
            self._store, info.id, info.forked_at if line.reader_at_fork else 0
        )
        reading = line.reader_at_fork.copy() if line.reader_at_fork else LogReader()
        for record in records:
            if record.seq <= info.forked_at:
                reading.apply_record(record)
        left = reading.state
        # What was spent before it left was spent by its owner.
        reading.state = replace(left, total_spent=Spending())
        own = [record for record in records if record.seq > info.forked_at]
        wanted = {child.forked_at for child in self._list_children(info.id)}
        points = {0: LogReader()}
        for record in own:
            reading.apply_record(record)
            if record.seq in wanted:
                points[record.seq] = reading.copy()
        self.tenants[info.id] = reading.state.owner
        return _make_branch(line, left, reading.state, own, trouble), points


def _make_branch(line: _UnreadBranch, left: State, now: State, own: Sequence[Record], trouble: str) -> Branch:
    info, shared = line.info, left.transcript.messages
    return Branch(
        session=info.id,
        parent=line.owner,
        depth=line.depth,
        at=info.forked_at,
        message=shared[-1].id if shared else "",
        length=info.length,
        model=now.settings.model.name,
        messages=len(now.transcript.messages),
        own_messages=len(now.transcript.messages) - len(shared),
        steps=now.total_spent.steps,
        usage=now.total_spent.usage,
        usd=now.total_spent.usd,
        end=describe_end(now),
        first_text=_first_prompt_text(own),
        created_at=info.created_at,
        updated_at=info.updated_at,
        read_error=trouble,
    )


def _first_prompt_text(records: Sequence[Record]) -> str:
    for record in records:
        if isinstance(record.event, Prompted):
            return " ".join(part.text for part in record.event.parts if isinstance(part, Text))
    return ""


def _find_owner(infos: Mapping[str, SessionInfo], info: SessionInfo) -> str:
    """Whose own record it left at: a fork of a fork may have left before that one was there at all."""
    seen = {info.id}
    parent = infos.get(info.parent)
    while parent is not None and parent.id not in seen:
        seen.add(parent.id)
        if not parent.parent or info.forked_at > parent.forked_at:
            return parent.id
        parent = infos.get(parent.parent)
    return ""


def _first_fork_events(event: Forked, lost: str, model: Model | None, state: State) -> list[Event]:
    """What a fork has to say for itself before anybody goes on with it."""
    events: list[Event] = []
    if lost:
        told = f"forked from {event.parent} at record {event.at}, the last that can be trusted: {lost}"
        events.append(LogRepaired(items=(told,), records_lost=True))
    events.append(event)
    if model is not None and model != state.settings.model:
        events.append(Configured(settings=replace(set_model(state.settings, model), models=())))
    return events


def _seal_records(events: Sequence[Event], after: int, now: float, head: str) -> list[Record]:
    records: list[Record] = []
    for seq, event in enumerate(events, after + 1):
        records.append(seal_record(seq, now, event, records[-1].hash if records else head))
    return records


async def _read_trusted(store: Store, session: str, after: int = 0) -> tuple[Sequence[Record], str]:
    """The records up to the first that cannot be trusted, and what is wrong with that one."""
    try:
        return await store.read(session, after), ""
    except Corrupt as error:
        if error.last_good is None or not isinstance(store, RepairableStore):
            raise
        whole = (await store.read_intact(session))[: error.last_good]
        return [record for record in whole if record.seq > after], str(error)
