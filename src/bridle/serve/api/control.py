"""Requests of the API that change something: prompt, steer, cancel, pause, resume, answer, fork."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import cast
from urllib.parse import quote

from bridle.core.state import State
from bridle.ports.store import SupportsApprovalKey, supports
from bridle.ports.tool import Json
from bridle.run.agent import Agent
from bridle.run.archive.sessions import find_parent_session
from bridle.run.calls.approval import list_approved_calls, list_pending_approvals, make_approval_id
from bridle.run.calls.verdicts import check_names
from bridle.run.control.requests import ControlOutcome, SessionControl
from bridle.run.lineage import fork_session
from bridle.run.recovery.session_log import fold_records, has_engine
from bridle.run.validate_input import check_session, check_tenant
from bridle.serve.api.types import StartedRun
from bridle.serve.errors import ServeError
from bridle.serve.host import AgentHost, AnyAgent
from bridle.serve.session_list import is_running
from bridle.values.calls import ApprovalAnswered, ApprovalVerdict, ControlAction, PendingApproval
from bridle.values.errors import Conflict, MisuseError
from bridle.values.lineage import Fork
from bridle.values.message import Prompt

from . import types as t
from .call import ApiCall
from .reading import read_session

PLACEHOLDER_MODEL = "sim:"
"""Model of an agent that only records answers."""
WHOLE_ID = "an answer names the whole id of its question; nothing is recorded"
CONTINUED_LATER = ("agent_not_served", "session_busy")
"""Errors of a run that goes on without the request that answered its question: elsewhere, or already here."""
WAIT_SECONDS = 10.0
"""Time in which the process that runs a session should take a request."""


async def create_session(call: ApiCall, body: t.PromptBody) -> StartedRun:
    """Start a session with its first prompt."""
    host = call.host
    return await _prompt(call, host.find_agent(body.agent), body, body.session or None, new=True)


async def prompt_session(call: ApiCall, body: t.PromptBody) -> StartedRun:
    """Continue a session with a prompt."""
    host, session = call.host, call.session
    if body.session and body.session != session:
        raise ServeError(400, "invalid_request", "the body names another session than the path")
    agent = host.find_agent(body.agent) if body.agent else await host.find_session_agent(session)
    return await _prompt(call, agent, body, session, new=False)


async def _prompt(
    call: ApiCall, agent: AnyAgent, body: t.PromptBody, session: str | None, *, new: bool
) -> StartedRun:
    prompt: Prompt = body.prompt
    given = {"budget": body.budget, "caller": body.caller, "tenant": body.tenant}
    return await call.host.prompt(agent, prompt, session, new=new, access=call.access, **given)  # type: ignore[arg-type]


async def steer(call: ApiCall, body: t.SteerBody) -> ControlOutcome:
    """Send a message to the run, which takes it up before its next request."""
    return await _control(call, "steer", body, body.text)


async def cancel(call: ApiCall, body: t.ControlBody) -> ControlOutcome:
    """End the run at once; what it produced is kept."""
    return await _control(call, "cancel", body)


async def pause(call: ApiCall, body: t.ControlBody) -> ControlOutcome:
    """Stop the run after its current step."""
    return await _control(call, "pause", body)


async def _control(
    call: ApiCall, action: ControlAction, body: t.SteerBody | t.ControlBody, text: str = ""
) -> ControlOutcome:
    """Ask something of the run, in whatever process it is; not of another tenant's, if the body names one."""
    host, session, by = call.host, call.session, body.by
    check_session(session)
    if body.tenant is not None:
        await read_session(host, session, body.tenant)
    live = host.runs.find(session)
    if live is not None and supports(host.store, SupportsApprovalKey):
        # A store in memory has no other processes, so its runs do not listen for requests.
        if action == "steer":
            await live.handle.steer(text, by=by)
        elif action == "pause":
            await live.handle.pause(by=by)
        else:
            live.handle.cancel()
            stop = (await live.handle.result()).stop
            if stop != "cancelled":
                raise MisuseError(f"session {session!r} is not running: its run has just ended as {stop}")
        return ControlOutcome(session=session, action=action, request="", status="taken")
    control = SessionControl(host.store, session)
    if action == "steer":
        return await control.steer(text, by=by, wait_seconds=WAIT_SECONDS)
    if action == "pause":
        return await control.pause(by=by, wait_seconds=WAIT_SECONDS)
    return await control.cancel(by=by, wait_seconds=WAIT_SECONDS)


async def resume(call: ApiCall, body: t.ResumeBody) -> StartedRun:
    """Continue an unfinished run here."""
    host, session = call.host, call.session
    agent = host.find_agent(body.agent) if body.agent else None
    given = {"budget": body.budget, "tenant": body.tenant, "access": call.access}
    return await host.resume(session, agent=agent, **given)  # type: ignore[arg-type]


async def fork(call: ApiCall, body: t.ForkBody) -> Fork:
    """Start a session with the records of this one."""
    host, session = call.host, call.session
    # guard: model-of-fork
    if body.model is not None:
        call.access.require("administer")  # it may cost more, and may be at any address
    return await fork_session(
        host.store, session, body.at, body.session, model=body.model, tenant=body.tenant
    )


async def answer_approval(call: ApiCall, body: t.ApprovalBody) -> t.ApprovalReply:
    """Approve, edit or reject a call, and continue its run."""
    if body.arguments is not None and body.answer != "approve":
        raise ServeError(400, "invalid_request", "only `approve` takes arguments")
    check_names(await call.request.body())
    _, state = await read_session(call.host, call.session)
    approval = call.path["approval"]
    if is_no_id(approval, _list_answerable(call.session, state)):
        raise ServeError(400, "invalid_request", WHOLE_ID)
    async with hold_answers(call, call.session, watches_again=body.resume) as outer:
        question = await answer(call.host, call.session, call.path["approval"], body)
        run = await resume_answered(call, call.session, outer, body.tenant) if body.resume else None
    return t.ApprovalReply(approval=question, run=run)


@asynccontextmanager
async def hold_answers(call: ApiCall, session: str, *, watches_again: bool = True) -> AsyncIterator[str]:
    """Answer questions without the host resuming the run for them; yields the session to resume."""
    host = call.host
    outer = await _find_outermost(host, session)
    await call.access.check_session(host.store, outer)
    if watches_again:  # a run that cannot go on is noticed before its answer is recorded
        await host.check_resume_context(call.access, outer)
    async with host.answers.hold(outer, watches_again=watches_again):
        yield outer


async def resume_answered(
    call: ApiCall, session: str, outer: str, tenant: str | None = None
) -> StartedRun | None:
    """Continue a run whose questions are answered; None if one is open, it runs, or its agent is not served.

    A run of an engine is continued by the engine. If another process takes the session first, or this server adopts
    the run of one that ended, the answer is recorded all the same, and the host watches the run until it goes on.
    """
    host = call.host
    _, state = await read_session(host, session)
    if list_pending_approvals(session, state) or await is_running(host, outer):
        return None
    _, outer_state = await read_session(host, outer)
    if await has_engine(host.store, outer, outer_state):
        return None
    try:
        return await host.resume(outer, tenant=tenant, access=call.access)
    except Conflict:
        return None
    except ServeError as error:
        if error.detail.code not in CONTINUED_LATER:
            raise
        return None


def _list_answerable(session: str, state: State) -> list[PendingApproval]:
    """The open questions, and the approved calls that can still be rejected."""
    return [*list_pending_approvals(session, state), *list_approved_calls(session, state)]


def is_no_id(approval: str, pending: Sequence[PendingApproval]) -> bool:
    """True if this finds a question without being its id: the beginning of the id, or the id of the call.

    A program knows the whole id, which says what the call would do; the next question about a call has another.
    """
    known = {each.id for each in pending}
    found = any(each.call_id == approval or each.id.startswith(approval) for each in pending)
    return approval not in known and found


async def answer(host: AgentHost, session: str, approval: str, body: t.ApprovalBody) -> PendingApproval:
    """Record an answer; raises `ServeError` with 409 if another one was faster."""
    try:
        return await _record_answer(host, session, approval, body)
    except (MisuseError, Conflict):
        given = await _find_given_answer(host, session, approval, body.tenant)
        if given is None:
            raise
        by = f" by {given.by}" if given.by else ""
        problem = f"the question is answered already: {given.answer}{by}"
        hint = f"GET /api/sessions/{quote(session, safe='')} shows how the run goes on"
        raise ServeError(409, "already_answered", problem, hint) from None


async def check_answer(host: AgentHost, session: str, approval: str, body: t.ApprovalBody) -> None:
    """Raise what would prevent an answer from being recorded."""
    agent = await find_answering_agent(host, session)
    verdict = ApprovalVerdict(answer=body.answer, arguments=body.arguments, reason=body.reason, by=body.by)
    await agent.open_session(session).check_answer(approval, verdict)


async def _find_given_answer(
    host: AgentHost, session: str, approval: str, tenant: str | None
) -> ApprovalAnswered | None:
    """The answer to a question that is not open any more; None if there is no such question."""
    records = await host.store.read(session)
    state = (await fold_records(records)).state
    check_tenant(session, state, tenant)
    pending = list_pending_approvals(session, state)
    if any(each.id == approval or each.call_id == approval for each in pending):
        return None
    for record in reversed(records):
        event = record.event
        if isinstance(event, ApprovalAnswered) and approval in (
            event.call_id,
            make_approval_id(session, event.binding),
        ):
            return event
    return None


async def _record_answer(
    host: AgentHost, session: str, approval: str, body: t.ApprovalBody
) -> PendingApproval:
    agent = await find_answering_agent(host, session)
    if body.answer == "approve":
        return await agent.approve(
            session,
            approval,
            arguments=cast("dict[str, Json] | str | None", body.arguments),
            reason=body.reason,
            by=body.by,
            tenant=body.tenant,
        )
    if body.answer == "reject":
        return await agent.reject(session, approval, reason=body.reason, by=body.by, tenant=body.tenant)
    return await agent.settle(session, approval, body.reason, by=body.by, tenant=body.tenant)


async def find_answering_agent(host: AgentHost, session: str) -> AnyAgent:
    """The agent that continues the run, whose code must be able to honour an answer; raises `ServeError` without it.

    A host without agents, such as the inspector, continues nothing and only records answers.
    """
    if not host.agents:
        return Agent(PLACEHOLDER_MODEL, store=host.store)
    # guard: answering-agent-served
    return await host.find_session_agent(await _find_outermost(host, session))


async def _find_outermost(host: AgentHost, session: str) -> str:
    """The session to resume: that of the run in whose tools this one runs."""
    seen = {session}
    while True:
        parent = find_parent_session(await host.store.read(session))
        if not parent or parent in seen or not await host.store.read(parent, limit=1):
            return session
        session = parent
        seen.add(parent)
