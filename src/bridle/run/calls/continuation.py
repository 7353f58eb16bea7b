"""Asks whether the code of an agent can continue an unfinished run, before anything of it is recorded.

core/calls/compatibility.py compares. This module finds the code: the agent that has the run after hand-overs, and,
for a run inside a call, the agent that is the tool, within the agent of the outer run. All entries that take an answer
come here through `Session.answer`.

An agent without tools and hand-overs, and with another name than the session's, only records answers
(`bridle approvals approve` without -a): it has no code to compare, and the process that resumes the run compares.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from bridle.core.calls.compatibility import (
    CodeOffer,
    compare_answer,
    compare_run,
    compare_version,
    is_promised_to_person,
    is_unfinished,
    upgrade_calls,
    void_by_previews,
)
from bridle.core.state import Phase, State
from bridle.ports.store import Store
from bridle.run.recovery.session_log import load_log
from bridle.values.calls import ApprovalVerdict, CallUpgrade, Obstacle, PendingApproval
from bridle.values.errors import ApprovedCallWaits, CannotContinue, Corrupt, MisuseError, SessionNotFound
from bridle.values.events import ApprovalAnswered
from bridle.values.message import ToolCall
from bridle.values.settings import Settings

from .approval import list_approved_calls
from .handover import list_agents
from .run_tool import preview_call
from .verdicts import encode_edited, read_verdict

if TYPE_CHECKING:
    from bridle.run.session import Session


class RunCode(NamedTuple):
    """The code that has an unfinished run."""

    session: "Session"
    offer: CodeOffer


class InnerRun(NamedTuple):
    """An unfinished run inside an open call."""

    call: ToolCall
    session: str
    state: State


def make_offer(opened: "Session", settings: Settings, state: State, *, is_program: bool = False) -> CodeOffer:
    """What an agent offers to a run; the tools of servers that are not connected are not known.

    A program calls all tools of its agent, also those that the model does not see.
    """
    tools = opened.parts.tool_layout.tools
    upgrades = {name: getattr(tool, "upgrade_arguments", None) for name, tool in tools.items()}
    given = (override.code for override in state.settings.overrides if override.option == "tools")
    if is_program:
        settings = replace(settings, tools=tuple(tool.spec for tool in tools.values()), hidden_tools=())
    return CodeOffer(
        settings,
        {name: upgrade for name, upgrade in upgrades.items() if upgrade is not None},
        tuple(source.prefix for source in opened.parts.sources),
        frozenset(name for names in given for name in names),
    )


def is_recorder(opened: "Session", state: State) -> bool:
    """True if an agent has no code of the session, and only records answers."""
    first = state.run.origin.first_settings or state.settings
    has_name = bool(first.name) and opened.parts.settings.name == first.name
    has_code = opened.parts.inputs.tools or opened.successors or opened.unknown_agents
    return not has_name and not has_code


async def check_run(
    opened: "Session", settings: Settings, state: State, settled: Collection[str] = ()
) -> None:
    """Raise `CannotContinue` if these settings lack something that the run needs, or a run inside its calls."""
    obstacles = await list_obstacles(RunCode(opened, make_offer(opened, settings, state)), state, settled)
    # guard: run-needs-compared
    if obstacles:
        raise CannotContinue(opened.session, obstacles)


async def check_abandoned(opened: "Session", state: State) -> None:
    """Raise what forbids a new prompt to end or to settle an unfinished run.

    `CannotContinue` if another version of the agent has the run, and `ApprovedCallWaits` if a person approved a call
    that has not started, in it or in a run inside its calls.
    """
    if not is_unfinished(state):
        return
    try:
        obstacles = compare_version(state, make_code(opened, state).offer)
    except CannotContinue:  # a hand-over agent is missing, which gives the run up unless a call is approved
        obstacles = ()
    if obstacles:
        raise CannotContinue(opened.session, obstacles)
    if state.phase is Phase.IDLE:
        return  # its calls in doubt are settled before the prompt
    if approved := await list_all_approved_calls(opened.store, opened.session, state):
        raise ApprovedCallWaits(opened.session, approved, await _find_outermost(opened, state))


async def list_all_approved_calls(store: Store, session: str, state: State) -> tuple[PendingApproval, ...]:
    """The calls that are approved and have not started, also those of runs inside the open calls, at any depth."""
    found = [*list_approved_calls(session, state)]
    for _, name, inner_state in await _load_inner_runs(store, state):
        found += await list_all_approved_calls(store, name, inner_state)
    return tuple(found)


async def _load_inner_runs(store: Store, state: State) -> list[InnerRun]:
    """The unfinished runs inside the open calls of a run. Those in another store are not known."""
    found: list[InnerRun] = []
    for item in state.calls.batch.pending:
        if item.result is not None:
            continue
        names = [each.session for each in state.run.budget.subruns if each.call_id == item.call.id]
        for name in dict.fromkeys((*filter(None, (item.waiting_session,)), *names)):
            try:
                inner = (await load_log(store, name)).state
            except (SessionNotFound, Corrupt):
                continue  # nothing is known about it
            # A run that started in a session of its own is this call's; one deeper inside belongs to that run.
            if is_unfinished(inner) and inner.run.origin.parent_session in ("", state.identity.id):
                found.append(InnerRun(item.call, name, inner))
    return found


async def _is_promised_inside(store: Store, state: State) -> bool:
    """True if a person was asked about an open call of the run, or of a run inside its calls."""
    if is_promised_to_person(state):
        return True
    return any(
        [await _is_promised_inside(store, each.state) for each in await _load_inner_runs(store, state)]
    )


async def _find_outermost(opened: "Session", state: State) -> str:
    """The session to resume: that of the outermost run around this one."""
    session, seen = opened.session, {opened.session}
    while (parent := state.run.origin.parent_session) and parent not in seen:
        state = (await load_log(opened.store, parent)).state
        if state.phase is Phase.NEW:
            break
        session = parent
        seen.add(parent)
    return session


async def list_obstacles(code: RunCode, state: State, settled: Collection[str] = ()) -> tuple[Obstacle, ...]:
    """What a run needs and the code lacks; also for the unfinished runs inside its calls."""
    inner_runs = [
        each for each in await _load_inner_runs(code.session.store, state) if each.call.id not in settled
    ]
    promised = {
        each.call.id for each in inner_runs if await _is_promised_inside(code.session.store, each.state)
    }
    found = [*compare_run(state, code.offer, settled, promised).obstacles]
    for call, session, inner_state in inner_runs:
        try:
            inner = open_inner(code, call.name, session, inner_state)
        except CannotContinue as error:  # it was handed over to an agent that this code lacks
            found += error.obstacles
            continue
        found += await list_obstacles(inner, inner_state) if inner is not None else ()
    return tuple(found)


async def check_answer(
    opened: "Session", state: State, question: PendingApproval, verdict: ApprovalVerdict
) -> None:
    """Raise `CannotContinue` if the answer could not be honoured by the agent's code.

    `MisuseError` if no code could: the question was asked inside a call that has ended.
    """
    if ended := await find_ended_outer(opened.store, opened.session, state):
        if verdict.answer != "approve":
            return  # it is compared with no code
        raise MisuseError(
            f"the question in session {opened.session!r} was asked inside a call of session {ended!r} that has ended,"
            " for example by a new prompt, so nothing would run after an approval and none was recorded. Next: reject"
            f" the question, or prompt session {ended!r} again"
        )
    if is_recorder(opened, state):
        return
    code, outer_obstacles = await find_code(opened, state)
    verdict = read_verdict(verdict)
    answer = ApprovalAnswered(
        call_id=question.call_id,
        binding=question.binding,
        answer=verdict.answer,
        arguments=encode_edited(question.arguments, verdict.arguments),
    )
    previews = await _make_previews(code.session, code.offer, state)
    obstacles = (*outer_obstacles, *compare_answer(state, code.offer, answer, previews))
    # guard: answer-honoured
    if obstacles:
        raise CannotContinue(opened.session, obstacles)


async def find_ended_outer(store: Store, session: str, state: State) -> str:
    """Session around this one whose call has ended, so that nothing continues this run any more; empty without one."""
    seen = {session}
    while (parent := state.run.origin.parent_session) and parent not in seen:
        state = (await load_log(store, parent)).state
        if state.phase is Phase.NEW:
            break  # it is in another store
        if not _has_open_call(state, session):
            return parent
        session = parent
        seen.add(parent)
    return ""


def _has_open_call(state: State, inner: str) -> bool:
    """True if the call that an inner run belongs to has no result; any open call if the log does not name it."""
    named = {each.call_id for each in state.run.budget.subruns if each.session == inner}
    still_open = {item.call.id for item in state.calls.batch.pending if item.result is None}
    return bool(still_open & named) if named else bool(still_open)


async def check_waiting(
    opened: "Session", state: State
) -> tuple[tuple[Obstacle, ...], tuple[CallUpgrade, ...]]:
    """What keeps an agent from continuing a session, and the calls that it would ask a person about again."""
    try:
        code = make_code(opened, state)
    except CannotContinue as error:
        return error.obstacles, ()
    obstacles = await list_obstacles(code, state)
    previews = await _make_previews(code.session, code.offer, state)
    upgrades = void_by_previews(state, compare_run(state, code.offer).upgrades, previews)
    return obstacles, tuple(each for each in upgrades if each.voids)


async def plan_upgrades(opened: "Session", settings: Settings, state: State) -> tuple[CallUpgrade, ...]:
    """What becomes of the open calls under new settings, to be recorded with them."""
    if not state.calls.batch.pending or settings.all_tools == state.settings.all_tools:
        return ()
    offer = make_offer(opened, settings, state)
    previews = await _make_previews(opened, offer, state)
    return void_by_previews(state, compare_run(state, offer).upgrades, previews)


async def find_code(opened: "Session", state: State) -> tuple[RunCode, tuple[Obstacle, ...]]:
    """The code that has the run of a session, within the runs around it, and what these lack.

    Raises `CannotContinue` for an agent that is not known.
    """
    parent = state.run.origin.parent_session
    outer_state = (await load_log(opened.store, parent)).state if parent else None
    if outer_state is not None and outer_state.phase is not Phase.NEW:
        around, obstacles = await find_code(opened.open_other(parent), outer_state)
        obstacles = (*obstacles, *compare_run(outer_state, around.offer).obstacles)
        subruns = outer_state.run.budget.subruns
        tool = next((each.tool for each in subruns if each.session == opened.session), "")
        inner = open_inner(around, tool, opened.session, state)
        if inner is not None:
            return inner, obstacles
        if obstacles:
            raise CannotContinue(opened.session, obstacles)
    return make_code(opened, state), ()


def open_inner(around: RunCode, tool: str, session: str, state: State) -> RunCode | None:
    """The code of a run inside a call of this tool; None if the tool is no agent and no program."""
    known = around.offer.find_tool(tool)
    made = around.session.parts.tool_layout.tools.get(known.name if known is not None else tool)
    opener = getattr(made, "open_session", None)
    if opener is not None:
        return make_code(opener(session, None, around.session.store), state)
    if not state.settings.model.endpoint.is_program:
        return None
    opened = around.session.open_other(session)
    return RunCode(opened, make_offer(opened, opened.parts.settings, state, is_program=True))


def make_code(opened: "Session", state: State) -> RunCode:
    """The code of the agent that has the run; raises `CannotContinue` for an agent that is not known."""
    agent = list_agents(opened, state)[-1]
    return RunCode(agent, make_offer(agent, agent.parts.settings, state))


async def _make_previews(opened: "Session", offer: CodeOffer, state: State) -> dict[str, str]:
    """What the present code shows about the calls that wait for a person, if the code has changed; by call."""
    if offer.settings.all_tools == state.settings.all_tools:
        return {}
    tools = opened.parts.tool_layout.tools
    upgraded = upgrade_calls(state, compare_run(state, offer).upgrades)
    found = {}
    for item in upgraded.calls.batch.pending:
        is_asked = item.result is None and item.question is not None and item.question.question == "run"
        if is_asked and not item.is_declined and item.call.name in tools:
            found[item.call.id] = await preview_call(tools, item.call)
    return found
