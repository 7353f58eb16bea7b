"""One call, run: whatever the tool does, a result comes back.

This holds the one broad `except` of the project.  A tool is foreign code and its
failure is the model's to handle, so everything it can raise becomes words; only the
cancellation of the run itself passes through.
"""

import asyncio

import msgspec

from ..core.effects import RunTool
from ..ports.tool import CallContext, Tool
from ..values.parts import Outcome, Text, ToolResult

ERROR_CHARACTERS_MAX = 2_000


async def act(tool: Tool, effect: RunTool, session: str, seconds: float | None) -> ToolResult:
    call = effect.call
    context = CallContext(session=session, call_id=call.id, key=effect.key, attempt=effect.attempt)
    try:
        async with asyncio.timeout(seconds) as limit:
            parts = await tool.run(msgspec.json.decode(call.arguments.strip() or "{}"), context)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return _failed(call.id, "error", "the tool cancelled itself")
    except TimeoutError as error:
        if limit.expired():
            return _failed(
                call.id, "timeout", f"no result within {seconds:g} seconds; it may still take effect"
            )
        return _failed(call.id, "error", _words(error))
    except (Exception, SystemExit) as error:  # noqa: BLE001
        return _failed(call.id, "error", _words(error))
    return ToolResult(call_id=call.id, parts=tuple(parts))


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:ERROR_CHARACTERS_MAX]


def _failed(call_id: str, outcome: Outcome, words: str) -> ToolResult:
    return ToolResult(call_id=call_id, parts=(Text(text=words),), outcome=outcome)
