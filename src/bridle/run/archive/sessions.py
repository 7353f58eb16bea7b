"""Lists the sessions of a store, and decides which of them have a run that is to be continued."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from bridle.core.recovery.log_repair import fold_log
from bridle.core.state import Phase, State
from bridle.ports.store import SessionInfo, Store
from bridle.run.calls.approval import list_pending_approvals
from bridle.run.recovery.session_log import SESSIONS_MAX
from bridle.stores.conflicts import RESERVED_PREFIXES
from bridle.values.calls import PendingApproval
from bridle.values.errors import Corrupt
from bridle.values.events import Prompted
from bridle.values.record import Record


async def list_sessions(store: Store, limit: int) -> list[SessionInfo]:
    """The most recently updated sessions, without the logs of budgets, notes and control requests."""
    asked = limit
    while True:
        infos = await store.sessions(limit=asked)
        found = [info for info in infos if not info.id.startswith(RESERVED_PREFIXES)]
        if len(found) >= limit or len(infos) < asked:
            return found[: max(limit, 0)]
        asked *= 2


class SessionPeople(NamedTuple):
    """Whose session it is: the tenant of its first prompt, and the callers of all of them."""

    tenant: str
    callers: tuple[str, ...]

    def is_of(self, tenant: str | None, caller: str | None) -> bool:
        """True if the tenant owns the session, if one is given, and the caller prompted in it, if one is given."""
        return tenant in (None, self.tenant) and (caller is None or caller in self.callers)


def find_people(records: Sequence[Record]) -> SessionPeople:
    prompts = [record.event for record in records if isinstance(record.event, Prompted)]
    owner = prompts[0].tenant if prompts else ""
    return SessionPeople(owner, tuple(dict.fromkeys(each.caller for each in prompts)))


async def list_sessions_of(
    store: Store, limit: int, *, tenant: str | None = None, caller: str | None = None
) -> list[SessionInfo]:
    """The most recently updated sessions of a tenant, and of those the ones in which a caller prompted.

    `caller=""` are sessions with a prompt without a caller. The logs are read, because stores know neither. A session
    whose log cannot be read is nobody's.
    """
    if tenant is None and caller is None:
        return await list_sessions(store, limit)
    found: list[SessionInfo] = []
    for info in await list_sessions(store, SESSIONS_MAX):
        if len(found) >= limit:
            break
        try:
            records = await store.read(info.id)
        except Corrupt:
            continue
        if find_people(records).is_of(tenant, caller):
            found.append(info)
    return found


def find_parent_session(records: Sequence[Record]) -> str:
    """The session whose tool started this one; empty if none did."""
    prompts = [record.event for record in records if isinstance(record.event, Prompted)]
    return prompts[-1].parent_session if prompts else ""


async def find_due(store: Store, state: State) -> Literal["", "interrupted", "answered", "waiting"]:
    """Why a session is continued: its process ended, or a question was answered. `waiting`: no question was."""
    if state.phase in (Phase.NEW, Phase.IDLE):
        return ""
    if state.phase is not Phase.AWAITING_APPROVAL:
        return "interrupted"
    for item in state.calls.batch.pending:
        if item.result is not None or item.unanswered_question is not None:
            continue
        if item.question is not None:
            return "answered"
        # The answer to a question of a run inside a tool is in that run's log.
        inner = fold_log(await store.read(item.waiting_session)).state if item.waiting_session else None
        if inner is not None and await find_due(store, inner) != "waiting":
            return "answered"
    return "waiting"


async def list_all_approvals(store: Store, session: str, state: State) -> tuple[PendingApproval, ...]:
    """The questions that a run waits for: its own, and those of runs inside its calls, at any depth."""
    found = [*list_pending_approvals(session, state)]
    for item in state.calls.batch.pending:
        if item.result is None and item.waiting_session:
            inner = fold_log(await store.read(item.waiting_session)).state
            found += await list_all_approvals(store, item.waiting_session, inner)
    return tuple(found)
