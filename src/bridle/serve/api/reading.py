"""Answers of the API that only read: agents, sessions, events, messages, approvals."""

from collections.abc import Sequence

import msgspec

from bridle.core.state import State
from bridle.run.calls.approval import list_approved_calls, list_pending_approvals
from bridle.run.recovery.session_log import fold_records
from bridle.run.replay.replay_session import read_records
from bridle.run.validate_input import check_session, check_tenant
from bridle.serve.host import AgentHost, AnyAgent
from bridle.serve.session_list import check_page, is_running, make_summary
from bridle.values.record import Record
from bridle.values.request import ToolSpec

from . import types as t
from .call import ApiCall


async def list_agents(call: ApiCall) -> t.AgentList:
    """List the agents."""
    host = call.host
    live = host.runs.count_by_agent()
    return t.AgentList(
        agents=tuple(_describe_agent(name, agent, live.get(name, 0)) for name, agent in host.agents.items())
    )


def _read_schema(spec: ToolSpec) -> dict[str, object]:
    return msgspec.json.decode(spec.parameters, type=dict[str, object])


def _describe_agent(name: str, agent: AnyAgent, live_runs: int) -> t.ServedAgent:
    settings = agent.settings
    tools = (
        t.ToolSummary(name=spec.name, description=spec.description, parameters=_read_schema(spec))
        for spec in settings.all_tools
    )
    return t.ServedAgent(
        name=name,
        model=settings.model.name,
        instructions=settings.instructions,
        tools=tuple(tools),
        live_runs=live_runs,
    )


async def read_session(
    host: AgentHost, session: str, tenant: str | None = None
) -> tuple[Sequence[Record], State]:
    """The records of a session and its state; raises `MisuseError` if it belongs to another tenant."""
    check_session(session)
    records = await read_records(host.store, session)
    state = (await fold_records(records)).state
    check_tenant(session, state, tenant or None)
    return records, state


async def list_sessions(call: ApiCall, query: t.SessionQuery) -> t.SessionPage:
    """List, search and filter sessions, newest first."""
    return await call.sessions.list(query, call.access)


async def read_detail(call: ApiCall, query: t.TenantQuery) -> t.SessionDetail:
    """Show a session."""
    host, session = call.host, call.session
    records, state = await read_session(host, session, query.tenant)
    runs, summary = await is_running(host, session), make_summary(session, records, state)
    if runs and summary.status == "unfinished":
        summary = msgspec.structs.replace(summary, status="running")
    return t.SessionDetail(
        summary=summary,
        is_live_here=session in host.runs,
        is_running=runs,
        answer=state.run.end.answer,
        tools=tuple(spec.name for spec in state.settings.all_tools),
        approvals=list_pending_approvals(session, state),
        approved_calls=list_approved_calls(session, state),
        head=records[-1].hash,
    )


def make_log_event(record: Record) -> t.LogEvent:
    return t.LogEvent(
        seq=record.seq, at=record.at, event=msgspec.Raw(record.data), is_redacted=record.is_redacted
    )


async def read_events(call: ApiCall, query: t.EventQuery) -> t.EventPage:
    """List the events of a session."""
    host, session = call.host, call.session
    limit = check_page(query.limit, query.after, t.EVENTS_MAX)
    records = await host.store.read(check_session(session), query.after, limit + 1)
    if not records or (query.tenant and call.access.sessions == "all"):  # else the owner is checked
        await read_session(host, session, query.tenant)
    page = records[:limit]
    return t.EventPage(
        events=tuple(map(make_log_event, page)),
        next=page[-1].seq if len(records) > limit else None,
        records=page[-1].seq if page else query.after,
    )


async def read_messages(call: ApiCall, query: t.TenantQuery) -> t.MessageList:
    """List the messages of a session."""
    _, state = await read_session(call.host, call.session, query.tenant)
    return t.MessageList(messages=state.conversation.transcript.messages)


async def read_approvals(call: ApiCall, query: t.TenantQuery) -> t.ApprovalList:
    """List the questions that wait for a person, and the approved calls that have not started."""
    session = call.session
    _, state = await read_session(call.host, session, query.tenant)
    return t.ApprovalList(
        approvals=list_pending_approvals(session, state),
        approved_calls=list_approved_calls(session, state),
    )
