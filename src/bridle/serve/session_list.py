"""Lists the sessions of a server with a summary of each, searched and filtered."""

from collections.abc import Sequence

import msgspec

from bridle.core.lineage.compare import describe_end
from bridle.core.state import State
from bridle.ports.store import LeaseInspectable, SessionInfo, supports
from bridle.run.archive.sessions import find_parent_session, find_people, list_sessions
from bridle.run.calls.approval import list_pending_approvals
from bridle.run.context.made_context import Owner
from bridle.run.lineage import first_prompt_text
from bridle.run.recovery.session_log import fold_records
from bridle.values.errors import Corrupt
from bridle.values.record import Record
from bridle.values.usage import Usage

from .adoption import SESSIONS_SEARCHED_MAX
from .api import types as t
from .errors import ServeError
from .host import AgentHost
from .identity import HOLDER, Access, find_owner

# not from outside: our own text, shown to a person or a model
PROMPT_CHARACTERS_MAX = 500
"""Part of the first prompt that a list shows and searches."""
SUMMARIES_MAX = 20_000


class SessionList:
    """Reads sessions for lists; the summary of a session that did not change is read once."""

    def __init__(self, host: AgentHost) -> None:
        self._host = host
        self._known: dict[str, tuple[SessionInfo, t.SessionSummary]] = {}
        self._owners: dict[str, tuple[SessionInfo, Owner | None]] = {}

    async def list(self, query: t.SessionQuery, access: Access = HOLDER) -> t.SessionPage:
        limit, found = check_page(query.limit, query.offset), []
        if not query.usd_min.is_finite():
            raise ServeError(400, "invalid_request", f"usd_min is a number of dollars, not {query.usd_min}")
        for info in await list_sessions(self._host.store, SESSIONS_SEARCHED_MAX):
            # guard: listed-of-identity
            if access.sessions != "all" and not access.may_see(await self._find_owner(info)):
                continue
            row = await self.summarize(info)
            if _matches(row, query):
                found.append(row)
                if len(found) > query.offset + limit:
                    break
        page = found[query.offset : query.offset + limit]
        is_more = len(found) > query.offset + limit
        return t.SessionPage(sessions=tuple(page), next=query.offset + limit if is_more else None)

    async def _find_owner(self, info: SessionInfo) -> Owner | None:
        known = self._owners.get(info.id)
        if known is None or known[0] != info:
            try:
                owner = await find_owner(self._host.store, info.id)
            except Corrupt:
                owner = None  # it is shown to those who see all sessions
            known = self._owners[info.id] = info, owner
            if len(self._owners) > SUMMARIES_MAX:
                del self._owners[next(iter(self._owners))]
        return known[1]

    async def summarize(self, info: SessionInfo) -> t.SessionSummary:
        known = self._known.get(info.id)
        if known is None or known[0] != info:
            try:
                records = await self._host.store.read(info.id)
                state = (await fold_records(records)).state
                made = make_summary(info.id, records, state, info.parent)
            except Corrupt as error:
                made = _make_damaged(info, error)
            known = self._known[info.id] = info, made
            if len(self._known) > SUMMARIES_MAX:
                del self._known[next(iter(self._known))]
        row = known[1]
        if row.status == "unfinished" and await is_running(self._host, info.id):
            return msgspec.structs.replace(row, status="running")
        return row


async def is_running(host: AgentHost, session: str) -> bool:
    """True if a process runs the session now."""
    if session in host.runs:
        return True
    return supports(host.store, LeaseInspectable) and await host.store.is_leased(session)


def make_summary(session: str, records: Sequence[Record], state: State, parent: str = "") -> t.SessionSummary:
    spent = state.totals.spent
    return t.SessionSummary(
        session=session,
        agent=state.settings.name,
        model=state.settings.model.name,
        status=describe_end(state),
        created_at=records[0].at if records else 0.0,
        updated_at=records[-1].at if records else 0.0,
        records=len(records),
        steps=spent.steps,
        usage=spent.usage,
        usd=spent.usd,
        prompt=first_prompt_text(records)[:PROMPT_CHARACTERS_MAX],
        tenant=state.identity.owner or "",
        caller=state.run.origin.caller,
        callers=find_people(records).callers,
        parent=parent,
        parent_session=find_parent_session(records),
        pending_approvals=len(list_pending_approvals(session, state)),
        reason=state.run.end.reason,
    )


def _make_damaged(info: SessionInfo, error: Corrupt) -> t.SessionSummary:
    return t.SessionSummary(
        session=info.id,
        agent="",
        model="",
        status="torn" if error.torn else "corrupt",
        created_at=info.created_at,
        updated_at=info.updated_at,
        records=info.length,
        steps=0,
        usage=Usage(),
        usd=None,
        prompt="",
        parent=info.parent,
        problem=str(error),
    )


def _matches(row: t.SessionSummary, query: t.SessionQuery) -> bool:
    text = query.text.lower()
    if text and text not in row.session.lower() and text not in row.prompt.lower():
        return False
    if row.updated_at < query.since or (query.usd_min and (row.usd or 0) < query.usd_min):
        return False
    if query.caller and query.caller not in row.callers:
        return False
    return all(
        not wanted or wanted == found
        for wanted, found in (
            (query.agent, row.agent),
            (query.status, row.status),
            (query.model, row.model),
            (query.tenant, row.tenant),
        )
    )


def check_page(limit: int, after: int, most: int = t.PAGE_MAX) -> int:
    if not 1 <= limit <= most or after < 0:
        raise ServeError(400, "invalid_request", f"limit is 1 to {most}, and an offset is not negative")
    return limit
