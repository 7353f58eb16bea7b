"""Reports of the API about one session: cost, cache, requests, replay, audit, branches."""

from collections.abc import Iterable
from decimal import Decimal

from bridle.core.audit.report import AuditReport
from bridle.core.budget.ledger import list_entries
from bridle.core.cache.report import list_cache_calls, sum_cache_calls
from bridle.run.archive.audit import audit_session
from bridle.run.lineage import compare_sessions, list_branches
from bridle.run.replay.changed_settings import AgentSettingsNow
from bridle.run.replay.replay_session import make_wire, replay_session
from bridle.run.replay.sent_calls import CallReader, read_call
from bridle.run.validate_input import check_session
from bridle.serve.identity import find_owner
from bridle.values.lineage import Comparison, RecordedCall, Replay

from . import types as t
from .call import ApiCall
from .reading import read_session


async def read_cost(call: ApiCall, query: t.TenantQuery) -> t.CostReply:
    """Show what a session cost."""
    host, session = call.host, call.session
    records, state = await read_session(host, session, query.tenant)
    entries = list_entries(session, records)
    shares = [share for entry in entries for share in entry.shares]
    return t.CostReply(
        session=session,
        usage=state.totals.spent.usage,
        usd=state.totals.spent.usd,
        by_model=_group((entry.model, 1, entry.usage.total, entry.usd) for entry in entries),
        by_tool=_group(
            (each.tool, each.calls, each.schema_tokens + each.result_tokens + each.call_tokens, each.usd)
            for each in shares
        ),
        calls=entries,
    )


def _group(items: Iterable[tuple[str, int, int, Decimal | None]]) -> tuple[t.CostGroup, ...]:
    """Sums by name, the most tokens first; dollars are unknown if those of one item are."""
    groups: dict[str, tuple[int, int, Decimal | None]] = {}
    for name, calls, tokens, usd in items:
        had_calls, had_tokens, had_usd = groups.get(name, (0, 0, Decimal(0)))
        total = None if usd is None or had_usd is None else had_usd + usd
        groups[name] = had_calls + calls, had_tokens + tokens, total
    rows = (t.CostGroup(name=name, calls=n, tokens=m, usd=usd) for name, (n, m, usd) in groups.items())
    return tuple(sorted(rows, key=lambda row: -row.tokens))


async def read_cache(call: ApiCall, query: t.TenantQuery) -> t.CacheReply:
    """Show cache hits and the cause of every miss."""
    host, session = call.host, call.session
    records, _ = await read_session(host, session, query.tenant)
    calls = list_cache_calls(records)
    total = sum_cache_calls(calls)
    return t.CacheReply(session=session, sum=total, hit_rate=total.hit_rate, calls=calls)


async def list_calls(call: ApiCall, query: t.TenantQuery) -> t.CallList:
    """List the model calls."""
    host, session = call.host, call.session
    records, _ = await read_session(host, session, query.tenant)
    reader = CallReader(make_wire(None), stream=True)
    return t.CallList(calls=tuple(map(_make_row, reader.read(records))))


async def read_raw_call(call: ApiCall, query: t.TenantQuery) -> t.RawCallReply:
    """Show a request as it was sent, and its difference to the one before it."""
    found = await read_call(
        call.session, call.number, store=call.host.store, stream=True, tenant=query.tenant or None
    )
    return t.RawCallReply(
        call=_make_row(found),
        method=found.method,
        url=found.url,
        headers=found.headers,
        body=found.body.decode(errors="replace"),
        digest=found.digest,
        difference=found.difference,
    )


def _make_row(call: RecordedCall) -> t.CallRow:
    return t.CallRow(
        number=call.number,
        seq=call.seq,
        step=call.step,
        attempt=call.attempt,
        model=call.model,
        outcome=call.outcome,
        stop=call.stop,
        body_bytes=len(call.body),
        is_proven=call.is_proven,
        problem=call.problem,
    )


async def read_replay(call: ApiCall, query: t.ReplayQuery) -> Replay:
    """Replay a session without a model, or compare it with an agent of the server."""
    host, session = call.host, call.session
    now = AgentSettingsNow(host.find_agent(query.agent)) if query.agent else None
    return await replay_session(host.store, session, now=now, tenant=query.tenant or None)


async def read_audit(call: ApiCall, query: t.TenantQuery) -> AuditReport:
    """Show who decided what."""
    host, session = call.host, call.session
    await read_session(host, session, query.tenant)
    return await audit_session(host.store, session)


async def read_branches(call: ApiCall, query: t.TenantQuery) -> t.BranchList:
    """List the forks of a session and its parents."""
    host, session = call.host, call.session
    branches = await list_branches(host.store, session, tenant=query.tenant or None)
    if call.access.sessions == "all":
        return t.BranchList(branches=branches)
    visible = [each for each in branches if call.access.may_see(await find_owner(host.store, each.session))]
    return t.BranchList(branches=tuple(visible))


async def read_comparison(call: ApiCall, query: t.CompareQuery) -> Comparison:
    """Compare two sessions."""
    host, session = call.host, call.session
    await call.access.check_session(host.store, check_session(query.other))
    return await compare_sessions(host.store, session, query.other, tenant=query.tenant or None)
