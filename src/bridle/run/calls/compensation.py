"""Undoes the calls of a run, and of the runs inside its calls: agents used as tools, programs, and deeper ones.

Compensations run newest first, each durably and once.  They stop at the first failure, because earlier
work may depend on later work; a second call continues there.  A compensation that started and never
finished follows its tool's policy, like any other call.
"""

import logging
from collections.abc import Collection, Iterator, Mapping
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec.structs import replace

from bridle.core.calls.compensation import list_compensations, merge_compensations
from bridle.core.effects import RunTool
from bridle.core.state import Phase, State
from bridle.ports.tool import Json, Tool
from bridle.run.driver import Driver
from bridle.tools.collect_tools import collect_compensations
from bridle.values import events as e
from bridle.values.calls import Compensation
from bridle.values.errors import MisuseError, SessionNotFound
from bridle.values.message import Text, ToolCall, ToolResult
from bridle.values.text import escape_text

from .handover import list_agents
from .raised_errors import report_error
from .run_tool import run_tool

if TYPE_CHECKING:
    from bridle.run.session import Session

ABANDONED_REASON = "the run before was left unfinished"
LOG = logging.getLogger("bridle")
INNER_NOT_FOUND = (
    "session {session} of a run inside the tool {tool} is not in this store, so its calls are neither listed nor"
    " undone; undo them with its own agent: agent.compensate({session!r})"
)
OTHER_AGENT = ", or undo the run inside it with its own agent first: agent.compensate({session!r})"
SETTLED_BY_PERSON = "A person has seen to it: there is nothing left to undo."


class UndoableRun(NamedTuple):
    """The last run of a session, with the runs inside its calls."""

    driver: Driver
    session: str
    """Empty for the outermost run."""
    tools: Mapping[str, Tool]
    """The compensating tools of its agents."""
    inner: "Mapping[str, UndoableRun]"

    def list_compensations(self) -> tuple[Compensation, ...]:
        """Compensations of this run and of those inside it, in the order to run them."""
        nested = {name: each.list_compensations() for name, each in self.inner.items()}
        found = merge_compensations(self.driver.state, nested)
        return tuple(item if item.session else replace(item, session=self.session) for item in found)

    def find(self, session: str) -> "UndoableRun":
        """The run of a session in this tree, which must be there."""
        return next(each for each in self.list_runs() if each.session == session)

    def list_runs(self) -> "Iterator[UndoableRun]":
        yield self
        for each in self.inner.values():
            yield from each.list_runs()


async def open_undoable_run(
    opened: "Session", driver: Driver, held: AsyncExitStack | None = None, session: str = ""
) -> UndoableRun:
    """The run with those inside it: of agents that are its tools, of programs, and of other runs in its store.

    Inner sessions are leased while `held` is open, and abandoned runs are ended; without it they are only read.
    """
    must_know = held is not None and not session
    agents = list_agents(opened, driver.state) if must_know else _list_known_agents(opened, driver.state)
    inner: dict[str, UndoableRun] = {}
    for subrun in driver.state.run.budget.subruns:
        for nested in _list_openings(agents, subrun.tool, subrun.session, driver):
            reading = nested.new_driver()
            with suppress(SessionNotFound):  # it was dropped from a store in memory
                await reading.restore()
            if not reading.has_begun:
                continue
            if reading.state.run.origin.parent_session == opened.session:  # not a run inside that one
                if held is not None:
                    await held.enter_async_context(nested.lease())
                    await reading.restore_and_repair()
                inner[subrun.session] = await open_undoable_run(nested, reading, held, subrun.session)
            break
        else:
            LOG.warning("%s", escape_text(INNER_NOT_FOUND.format(session=subrun.session, tool=subrun.tool)))
    tools = collect_compensations(*(agent.parts.tool_layout.tools for agent in agents))
    run = UndoableRun(driver, session, tools, inner)
    if held is not None:
        await _end_abandoned(driver)
    return run


def _list_known_agents(opened: "Session", state: State) -> "list[Session]":
    """The agents that had the run; only the first if it was opened with another agent, which knows none of them."""
    names = state.run.origin.agents
    return list_agents(opened, state) if not names or names[0] in opened.successors else [opened]


def _list_openings(agents: "list[Session]", tool: str, session: str, driver: Driver) -> "Iterator[Session]":
    """The inner session as the agent sees it that is the tool, then as the outer agents do."""
    for agent in agents:
        open_inner = getattr(agent.parts.tool_layout.tools.get(tool), "open_session", None)
        if open_inner is not None:
            yield open_inner(session, driver.contexts.context, agent.store)
    yield agents[-1].open_other(session)


async def _end_abandoned(driver: Driver) -> None:
    end = e.RunEnded(stop="cancelled", reason=ABANDONED_REASON)
    if driver.state.phase is not Phase.IDLE:
        await driver.record(end)
    elif driver.state.calls.batch.pending:  # in doubt: undoing the run settles them
        await driver.record(e.Resumed(), then=end)


async def run_compensations(
    run: UndoableRun, settled: Collection[str] = (), across: str = ""
) -> tuple[Compensation, ...]:
    """Undo the calls of a run.  `across` is the caller's tenant if the session is another tenant's."""
    items = run.list_compensations()
    for item in items:
        if item.compensating_tool not in run.find(item.session).tools and item.state != "done":
            inside = OTHER_AGENT.format(session=item.session) if item.session else ""
            raise MisuseError(
                f"{item.tool} is undone by {item.compensating_tool!r}, which is not registered;"
                f" register {item.tool}{inside}"
            )
    for item in items:
        owner = run.find(item.session)
        driver = owner.driver
        if item.reference in settled and item.state != "done":
            result = ToolResult(call_id=f"{item.call_id}_undo", parts=(Text(text=SETTLED_BY_PERSON),))
            await driver.record(
                e.CompensationFinished(
                    call_id=item.call_id, attempt=item.attempt, result=result, across=across
                )
            )
            continue
        if item.state == "done":
            continue
        tool = owner.tools[item.compensating_tool]
        if item.state == "in_doubt" and tool.spec.on_unknown != "retry":
            break  # a person must decide: retrying could undo the call twice
        await _run_compensation(driver, tool, item, across)
        now = next(each for each in list_compensations(driver.state) if each.call_id == item.call_id)
        if now.state != "done":
            break
    return run.list_compensations()


async def _run_compensation(driver: Driver, tool: Tool, item: Compensation, across: str) -> None:
    # The compensating tool needs the whole result, not the excerpt made for the model.
    receipt = await driver.result_store.read_text(item.stored_result) if item.stored_result else item.receipt
    attempt = item.attempt + 1
    started = e.CompensationStarted(
        call_id=item.call_id, name=item.compensating_tool, key=item.key, attempt=attempt, across=across
    )
    await driver.record(started)
    call = ToolCall(
        id=f"{item.call_id}_undo",
        name=item.compensating_tool,
        arguments=_compensation_arguments(tool, item, receipt),
    )
    effect = RunTool(call=call, key=item.key, attempt=attempt, timeout_seconds=tool.spec.timeout_seconds)
    finished = await run_tool(tool, effect, driver.contexts.for_call(effect), tool.spec.timeout_seconds)
    report_error(tool, call, finished.error, driver.known_secrets)
    await driver.record(
        e.CompensationFinished(call_id=item.call_id, attempt=attempt, result=finished.result, across=across)
    )


def _compensation_arguments(tool: Tool, item: Compensation, receipt: str) -> str:
    """The arguments of the call that the compensating tool has parameters for, and `receipt` if it has one."""
    given: dict[str, Json] = msgspec.json.decode(item.arguments.strip() or "{}")
    schema: dict[str, dict[str, Json]] = msgspec.json.decode(tool.spec.parameters)
    wanted = schema.get("properties", {})
    known: dict[str, Json] = {**given, "receipt": receipt}
    return msgspec.json.encode({name: known[name] for name in wanted if name in known}).decode()
