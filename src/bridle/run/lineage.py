"""Forks a session, lists the branches of its family, and compares two sessions.

    fork = await agent.fork(session, at="m4")     a new session that starts with the first four messages
    await agent.run("…", session=fork.session)    continue it, with this agent's model
    await agent.branches(session)                 its family: parents, forks and forks of forks
    await agent.compare(session, fork.session)    the shared messages, and what each did afterwards

To roll back, fork: a log only grows, and an old session id must never show another conversation.  The fork
has a new id and the old session is unchanged.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from bridle.core.lineage.compare import compare_logs, describe_end
from bridle.core.lineage.fork import find_fork_point
from bridle.core.recovery.fallback import set_model
from bridle.core.recovery.log_repair import LogReader, fold_log
from bridle.core.state import SessionIdentity, State
from bridle.ports.clock import Clock
from bridle.ports.store import RepairableStore, SessionInfo, Store, supports
from bridle.values.budget import Spending
from bridle.values.calls import ContentRedacted
from bridle.values.errors import Conflict, Corrupt, SessionNotFound
from bridle.values.events import Configured, Event, Forked, LogRepaired, Prompted
from bridle.values.lineage import Branch, Comparison, CrossTenant, Fork, ForkPlace
from bridle.values.message import Text
from bridle.values.model import Model
from bridle.values.record import GENESIS, Record, seal_record

from .clock import SystemClock
from .model_connection import find_model_by_name
from .validate_input import check_session, check_tenant, new_session_id

FAMILY_SESSIONS_MAX = 1_000_000
"""Maximum sessions searched for a family: more than any store on one machine holds."""


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
    """Create a session that shares the records up to a message (`"m4"`) or a record number.

    Without `at`, shares every intact record; if some are not, the first record of the fork says so.
    `model` is the model the fork continues with.  With a `tenant`, raises `MisuseError` for another
    tenant's session.
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
    cut_reason = lost if place.at == len(records) else ""
    chosen = find_model_by_name(model, needs_address=False) if isinstance(model, str) else model
    forked = Forked(session=name, parent=session, at=place.at, cross_tenant=across)
    later = (record.event for record in records[place.at :])
    # Every log proves its own redactions; without these, the shared records would count as changed.
    redactions = [event for event in later if isinstance(event, ContentRedacted) and event.record <= place.at]
    events = [*_first_fork_events(forked, cut_reason, chosen, place.state), *redactions]
    try:
        await store.fork(session, place.at, name)
    except Conflict:
        if not await _is_unfinished_fork(store, name, session, place.at):
            raise
    head = records[place.at - 1].hash if place.at else GENESIS
    await store.append(name, place.at, _seal_records(events, place.at, now, head))
    return Fork(
        session=name,
        parent=session,
        at=place.at,
        message=place.message,
        requested_at=place.requested_at,
        cut_reason=cut_reason,
        completed_actions=place.completed_actions,
    )


async def _is_unfinished_fork(store: Store, name: str, parent: str, at: int) -> bool:
    """True if the fork exists without records of its own: a process crashed between the two writes."""
    infos = await store.sessions(limit=FAMILY_SESSIONS_MAX)
    return any((i.id, i.parent, i.forked_at, i.length) == (name, parent, at, at) for i in infos)


async def list_branches(store: Store, session: str, *, tenant: str | None = None) -> tuple[Branch, ...]:
    """List the family of a session, parents before children, in the order they were forked.

    With a `tenant`, raises `MisuseError` for another tenant's session and leaves out others' branches.
    """
    check_session(session)
    infos = {info.id: info for info in await store.sessions(limit=FAMILY_SESSIONS_MAX)}
    if session not in infos:
        raise SessionNotFound(f"there is no session {session!r} here; `bridle sessions` lists them")
    owners = {info.id: _find_owner(infos, info) for info in infos.values()}
    root = session
    for _ in infos:  # bounded, so that a cycle in a damaged store cannot loop forever
        root = owners[root] or root
    children: dict[str, list[SessionInfo]] = {}
    for info in infos.values():
        children.setdefault(owners[info.id], []).append(info)
    family = _FamilyReader(store, children)
    found = await family.read_branches(infos[root])
    check_tenant(session, State(identity=SessionIdentity(owner=family.tenants[session])), tenant)
    if tenant is None or isinstance(tenant, CrossTenant):
        return found
    return _reattach_branches(
        [each for each in found if family.tenants[each.session] in (None, tenant)], found
    )


def _reattach_branches(kept: Sequence[Branch], family: Sequence[Branch]) -> tuple[Branch, ...]:
    """The kept branches, each attached to its nearest kept ancestor."""
    parents = {branch.session: branch.parent for branch in family}
    depths: dict[str, int] = {"": -1}
    shown: list[Branch] = []
    for branch in kept:
        parent = branch.parent
        while parent not in depths:
            parent = parents[parent]
        depths[branch.session] = depths[parent] + 1
        shown.append(replace(branch, parent=parent, depth=depths[branch.session]))
    return tuple(shown)


async def compare_sessions(store: Store, a: str, b: str, *, tenant: str | None = None) -> Comparison:
    """Compare two sessions; with a `tenant`, raises `MisuseError` if one belongs to another tenant."""
    for name in (a, b):
        check_session(name)
    sides = [(await _read_trusted(store, name))[0] for name in (a, b)]
    for name, records in zip((a, b), sides, strict=True):
        if not records:
            raise SessionNotFound(f"there is no session {name!r} here; `bridle sessions` lists them")
        check_tenant(name, fold_log(records).state, tenant)
    return compare_logs(a, sides[0], b, sides[1])


class _UnreadBranch(NamedTuple):
    """A session of the family that is still to be read."""

    info: SessionInfo
    owner: str = ""
    depth: int = 0
    reader_at_fork: LogReader | None = None
    """State of the owner's log at the fork, if it was read."""


class _FamilyReader:
    """Reads the logs of a family; records shared with an owner are read only once."""

    def __init__(self, store: Store, children: Mapping[str, Sequence[SessionInfo]]) -> None:
        self._store, self._children = store, children
        self.tenants: dict[str, str | None] = {}
        """Tenants by session; None for a session that was never prompted."""

    async def read_branches(self, root: SessionInfo) -> tuple[Branch, ...]:
        found: list[Branch] = []
        waiting = [_UnreadBranch(root)]
        while waiting:
            unread = waiting.pop()
            branch, readers = await self._read_branch(unread)
            found.append(branch)
            # Reversed, because the last one is popped first.
            for child in reversed(self._list_children(unread.info.id)):
                waiting.append(
                    _UnreadBranch(child, unread.info.id, unread.depth + 1, readers.get(child.forked_at))
                )
        return tuple(found)

    def _list_children(self, owner: str) -> list[SessionInfo]:
        return sorted(self._children.get(owner, ()), key=lambda info: (info.forked_at, info.created_at))

    async def _read_branch(self, unread: _UnreadBranch) -> tuple[Branch, dict[int, LogReader]]:
        """The branch, and its log readers at the records where children forked."""
        info = unread.info
        records, read_error = await _read_trusted(
            self._store, info.id, info.forked_at if unread.reader_at_fork else 0
        )
        reader = unread.reader_at_fork.copy() if unread.reader_at_fork else LogReader()
        for record in records:
            if record.seq <= info.forked_at:
                reader.apply_record(record)
        at_fork = reader.state
        # Spending before the fork belongs to the owner.
        reader.state = replace(at_fork, totals=replace(at_fork.totals, spent=Spending()))
        own = [record for record in records if record.seq > info.forked_at]
        fork_points = {child.forked_at for child in self._list_children(info.id)}
        readers = {0: LogReader()}
        for record in own:
            reader.apply_record(record)
            if record.seq in fork_points:
                readers[record.seq] = reader.copy()
        self.tenants[info.id] = reader.state.identity.owner
        return _make_branch(unread, at_fork, reader.state, own, read_error), readers


def _make_branch(
    unread: _UnreadBranch, at_fork: State, now: State, own: Sequence[Record], read_error: str
) -> Branch:
    info, shared = unread.info, at_fork.conversation.transcript.messages
    return Branch(
        session=info.id,
        parent=unread.owner,
        depth=unread.depth,
        at=info.forked_at,
        message=shared[-1].id if shared else "",
        length=info.length,
        model=now.settings.model.name,
        messages=len(now.conversation.transcript.messages),
        own_messages=len(now.conversation.transcript.messages) - len(shared),
        steps=now.totals.spent.steps,
        usage=now.totals.spent.usage,
        usd=now.totals.spent.usd,
        end=describe_end(now),
        first_text=first_prompt_text(own),
        created_at=info.created_at,
        updated_at=info.updated_at,
        read_error=read_error,
    )


def first_prompt_text(records: Sequence[Record]) -> str:
    for record in records:
        if isinstance(record.event, Prompted):
            return " ".join(part.text for part in record.event.parts if isinstance(part, Text))
    return ""


def _find_owner(infos: Mapping[str, SessionInfo], info: SessionInfo) -> str:
    """The session that owns the record forked at: a fork of a fork may fork inside the shared records."""
    seen = {info.id}
    parent = infos.get(info.parent)
    while parent is not None and parent.id not in seen:
        seen.add(parent.id)
        if not parent.parent or info.forked_at > parent.forked_at:
            return parent.id
        parent = infos.get(parent.parent)
    return ""


def _first_fork_events(event: Forked, lost: str, model: Model | None, state: State) -> list[Event]:
    """The first own records of a fork: lost records, the fork itself, a change of model."""
    events: list[Event] = []
    if lost:
        repair = f"forked from {event.parent} at record {event.at}, the last intact one: {lost}"
        events.append(LogRepaired(items=(repair,), records_lost=True))
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
    """The records before the first corrupt one, and what is wrong with that one."""
    try:
        return await store.read(session, after), ""
    except Corrupt as error:
        if error.last_good is None or not supports(store, RepairableStore):
            raise
        intact = (await store.read_intact(session))[: error.last_good]
        return [record for record in intact if record.seq > after], str(error)
