"""Removes old sessions from a store.

A session stays if it is newer than the limit, if a run of it is unfinished or waits for an answer, if a process drives
it, or if another session that stays shares its records or has it inside a tool call. Budgets and notes always stay.
The control log of a session goes with it: without its session, its requests would meet a new session of that name.
An old control log without a session, which a crash left, goes too.
"""

from collections.abc import Sequence

from bridle.core.recovery.log_repair import fold_log
from bridle.core.state import Phase
from bridle.ports.store import PrunableStore, SessionInfo, Store, supports
from bridle.run.archive.sessions import find_people
from bridle.run.calls.approval import list_pending_approvals
from bridle.stores.conflicts import RESERVED_PREFIXES
from bridle.values.base import Value
from bridle.values.budget import SubrunStarted
from bridle.values.calls import CONTROL_LOG_PREFIX, control_log_name
from bridle.values.errors import Conflict, Corrupt, MisuseError
from bridle.values.record import GENESIS, Record

from .verification import list_all_sessions


class RetainedSession(Value, kw_only=True):
    """An old session, with the reason why it stays; without one it is removed."""

    session: str
    updated_at: float
    records: int
    kept: str = ""


async def list_old_sessions(
    store: Store, before: float, *, tenant: str | None = None, caller: str | None = None
) -> list[RetainedSession]:
    """The sessions last written before a time, forks before their parents.

    With a tenant or a caller, only those of the tenant, and those in which the caller prompted; a session in which
    somebody else prompted too stays.
    """
    listed = await list_all_sessions(store)
    infos = {info.id: info for info in listed if not info.id.startswith(RESERVED_PREFIXES)}
    orphans = [info for info in listed if (found := _find_controlled(info.id)) and found not in infos]
    kept: dict[str, str] = {}
    others: set[str] = set()
    for info in infos.values():
        try:
            records = await store.read(info.id)
        except Corrupt:
            kept[info.id] = "it is damaged: see `bridle store verify`"
            continue
        people = find_people(records)
        if not people.is_of(tenant, caller):
            others.add(info.id)
        reason = _find_reason(info, records, before, kept)
        if not reason and caller is not None and people.callers != (caller,):
            reason = "another caller prompted in it too"
        if reason or info.id in others:
            kept[info.id] = reason or "it is not chosen"
    for info in infos.values():
        if info.id in kept:
            _keep_ancestors(info, infos, kept)
    candidates = (*infos.values(), *(orphans if tenant is None and caller is None else ()))
    old = [info for info in candidates if info.updated_at < before and info.id not in others]
    depths = {info.id: _count_ancestors(info, infos) for info in old}
    return [
        RetainedSession(
            session=each.id, updated_at=each.updated_at, records=each.length, kept=kept.get(each.id, "")
        )
        for each in sorted(old, key=lambda info: (-depths[info.id], info.updated_at, info.id))
    ]


async def remove_session(store: Store, session: str, *, now: float, reason: str) -> str:
    """Remove a session, or the control log of one that is gone, under its lease; returns the reason why it stays."""
    assert supports(store, PrunableStore)
    try:
        if controlled := _find_controlled(session):
            async with store.lease(controlled):
                requests = await store.read(session)
                if await store.read(controlled):
                    return f"session {controlled} uses it"
                head = requests[-1].hash if requests else GENESIS
                await store.remove_session(session, head, at=now, reason=reason)
            return ""
        async with store.lease(session):
            records = await store.read(session)
            if waits := find_open_work(session, records):
                return waits
            requests = await store.read(control := control_log_name(session))
            if requests:
                await store.remove_session(control, requests[-1].hash, at=now, reason=reason)
            await store.remove_session(
                session, records[-1].hash if records else GENESIS, at=now, reason=reason
            )
    except Conflict:
        return "a run is using it"
    except (Corrupt, MisuseError) as error:  # damaged, forked or removed since it was listed
        return str(error)
    return ""


def _find_controlled(log: str) -> str:
    """The session that a control log belongs to; empty for another log."""
    return log.removeprefix(CONTROL_LOG_PREFIX) if log.startswith(CONTROL_LOG_PREFIX) else ""


def _find_reason(info: SessionInfo, records: Sequence[Record], before: float, kept: dict[str, str]) -> str:
    waits = find_open_work(info.id, records)
    reason = waits or ("it is newer" if info.updated_at >= before else "")
    if waits:
        for record in records:
            if isinstance(record.event, SubrunStarted):
                kept.setdefault(record.event.session, f"it belongs to {info.id}, which is unfinished")
    return reason


def find_open_work(session: str, records: Sequence[Record]) -> str:
    """Why the run of a session is not over; empty if it is, or if there is none."""
    state = fold_log(records)[0]
    if list_pending_approvals(session, state):
        return "it waits for an answer"
    return "" if state.phase in (Phase.NEW, Phase.IDLE) else "its run is unfinished"


def _keep_ancestors(info: SessionInfo, infos: dict[str, SessionInfo], kept: dict[str, str]) -> None:
    while info.parent in infos:
        kept.setdefault(info.parent, f"it shares records with {info.id}")
        info = infos[info.parent]


def _count_ancestors(info: SessionInfo, infos: dict[str, SessionInfo]) -> int:
    count = 0
    while info.parent in infos:
        info, count = infos[info.parent], count + 1
    return count
