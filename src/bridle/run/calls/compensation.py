"""Undoes the calls of a run.

Compensations run newest first, each durably and once.  They stop at the first failure, because earlier
work may depend on later work; a second call continues there.  A compensation that started and never
finished follows its tool's policy, like any other call.
"""

from collections.abc import Callable, Collection, Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import msgspec

from bridle.core.calls.compensation import list_compensations, merge_compensations
from bridle.core.effects import RunTool
from bridle.core.state import Phase
from bridle.ports.tool import Json, Tool
from bridle.run.driver import Driver
from bridle.values import events as e
from bridle.values.calls import Compensation
from bridle.values.errors import MisuseError
from bridle.values.message import Text, ToolCall, ToolResult

from .run_tool import run_tool

if TYPE_CHECKING:
    from bridle.run.session import Session

ABANDONED_REASON = "the run before was left unfinished"
SETTLED_BY_PERSON = "A person has seen to it: there is nothing left to undo."


async def close_programs(
    driver: Driver, open_session: "Callable[[str], Session]", held: AsyncExitStack
) -> dict[str, Driver]:
    """End the last run if it was abandoned, and its programs.

    Returns their drivers by session, the run's own under the empty name; sessions are leased while `held` is open.
    """
    drivers = {"": driver}
    for subrun in driver.state.run.budget.subruns:
        inner = open_session(subrun.session)
        opened = inner.new_driver()
        await opened.restore()
        if opened.state.settings.model.endpoint.is_program:
            await held.enter_async_context(inner.lease())
            await opened.restore_and_repair()
            drivers[subrun.session] = opened
    for each in drivers.values():
        end = e.RunEnded(stop="cancelled", reason=ABANDONED_REASON)
        if each.state.phase is not Phase.IDLE:
            await each.record(end)
        elif each.state.calls.batch.pending:  # in doubt: undoing the run settles them
            await each.record(e.Resumed(), then=end)
    return drivers


async def run_compensations(
    drivers: Mapping[str, Driver], tools: Mapping[str, Tool], settled: Collection[str] = (), across: str = ""
) -> tuple[Compensation, ...]:
    """Undo the calls of the last run.  `across` is the caller's tenant if the session is another tenant's.

    `drivers` are those of the session, under the empty name, and of the programs in its last run, by session.
    """
    for item in _list_all(drivers):
        if item.compensating_tool not in tools:
            raise MisuseError(
                f"{item.tool} is undone by {item.compensating_tool!r}, which is not registered;"
                f" register {item.tool}"
            )
    for item in _list_all(drivers):
        driver = drivers[item.session]
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
        tool = tools[item.compensating_tool]
        if item.state == "in_doubt" and tool.spec.on_unknown != "retry":
            break  # a person must decide: retrying could undo the call twice
        await _run_compensation(driver, tool, item, across)
        now = next(each for each in list_compensations(driver.state) if each.call_id == item.call_id)
        if now.state != "done":
            break
    return _list_all(drivers)


def _list_all(drivers: Mapping[str, Driver]) -> tuple[Compensation, ...]:
    programs = {session: driver.state for session, driver in drivers.items() if session}
    return merge_compensations(drivers[""].state, programs)


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
    result = await run_tool(tool, effect, driver.contexts.for_call(effect), tool.spec.timeout_seconds)
    await driver.record(
        e.CompensationFinished(call_id=item.call_id, attempt=attempt, result=result, across=across)
    )


def _compensation_arguments(tool: Tool, item: Compensation, receipt: str) -> str:
    """The arguments of the call that the compensating tool has parameters for, and `receipt` if it has one."""
    given: dict[str, Json] = msgspec.json.decode(item.arguments.strip() or "{}")
    schema: dict[str, dict[str, Json]] = msgspec.json.decode(tool.spec.parameters)
    wanted = schema.get("properties", {})
    known: dict[str, Json] = {**given, "receipt": receipt}
    return msgspec.json.encode({name: known[name] for name in wanted if name in known}).decode()
