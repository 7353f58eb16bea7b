"""Undo what a run has done, last things first, each one durably and once.

It stops at the first that fails: what was built before may need what stands on it.  Called
again, it goes on from there; what is done is never undone twice.  An undoing that was started
and never finished follows its tool's policy, like any other call.
"""

from collections.abc import Collection, Mapping

import msgspec

from ..core.effects import RunTool
from ..core.undoing import compensations
from ..ports.tool import Json, Tool
from ..values import event as e
from ..values.compensation import Compensation
from ..values.errors import MisuseError
from ..values.parts import Text, ToolCall, ToolResult
from .acting import act
from .driver import Driver

SETTLED = "A person has seen to it: there is nothing left to undo."


async def undo(
    driver: Driver, tools: Mapping[str, Tool], settled: Collection[str] = (), across: str = ""
) -> tuple[Compensation, ...]:
    """`across` is the tenant for whom it is done, where the session is another's."""
    for item in compensations(driver.state):
        if item.by not in tools:
            raise MisuseError(
                f"{item.tool} is undone by {item.by!r}, which is not here; register {item.tool}"
            )
    for item in compensations(driver.state):
        if item.call_id in settled and item.state != "done":
            told = ToolResult(call_id=f"{item.call_id}_undo", parts=(Text(text=SETTLED),))
            await driver.record(
                e.CompensationFinished(call_id=item.call_id, attempt=item.attempt, result=told, across=across)
            )
            continue
        if item.state == "done":
            continue
        tool = tools[item.by]
        if item.state == "in_doubt" and tool.spec.on_unknown != "retry":
            break  # a person must look; undoing on a guess is how things are undone twice
        await _undo(driver, tool, item, across)
        if next(now for now in compensations(driver.state) if now.call_id == item.call_id).state != "done":
            break
    return compensations(driver.state)


async def _undo(driver: Driver, tool: Tool, item: Compensation, across: str) -> None:
    # An excerpt is for models; what undoes a thing needs all that doing it brought.
    receipt = await driver.keeping.text_of(item.whole) if item.whole else item.receipt
    attempt = item.attempt + 1
    started = e.CompensationStarted(
        call_id=item.call_id, name=item.by, key=item.key, attempt=attempt, across=across
    )
    await driver.record(started)
    call = ToolCall(id=f"{item.call_id}_undo", name=item.by, arguments=_arguments(tool, item, receipt))
    effect = RunTool(call=call, key=item.key, attempt=attempt, timeout_seconds=tool.spec.timeout_seconds)
    result = await act(tool, effect, driver.session, tool.spec.timeout_seconds)
    await driver.record(
        e.CompensationFinished(call_id=item.call_id, attempt=attempt, result=result, across=across)
    )


def _arguments(tool: Tool, item: Compensation, receipt: str) -> str:
    """Those of the call, as far as the undoing has parameters for them, and the receipt if it wants it."""
    given: dict[str, Json] = msgspec.json.decode(item.arguments.strip() or "{}")
    schema: dict[str, dict[str, Json]] = msgspec.json.decode(tool.spec.parameters)
    wanted = schema.get("properties", {})
    known: dict[str, Json] = {**given, "receipt": receipt}
    return msgspec.json.encode({name: known[name] for name in wanted if name in known}).decode()
