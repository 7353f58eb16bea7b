"""One call, run: whatever the tool does, a result comes back, and in time.

This holds the one broad `except` of the project.  A tool is foreign code and its failure
is the model's to handle, so everything it can raise becomes words; only the cancellation
of the run itself passes through, and a real Ctrl-C.

The tool is a task of its own.  One that does not stop when it is cancelled is left behind
after a short grace: a deadline that the tool may ignore would be none.
"""

import asyncio
import threading

import msgspec
from msgspec.structs import replace

from ..core.effects import RunTool
from ..ports.tool import CallContext, Tool
from ..values.parts import Media, Outcome, Text, ToolResult
from ..values.text import sound

ERROR_CHARACTERS_MAX = 2_000
GRACE_SECONDS = 2.0
"""How long a cancelled tool may clean up before it is left behind."""


async def act(tool: Tool, effect: RunTool, session: str, seconds: float | None) -> ToolResult:
    call = effect.call
    context = CallContext(session=session, call_id=call.id, key=effect.key, attempt=effect.attempt)
    running = asyncio.create_task(_run(tool, call.arguments, context))
    try:
        await asyncio.wait((running,), timeout=seconds)
    except asyncio.CancelledError:
        await _stop(running)
        raise
    if not running.done():
        await _stop(running)
        if not running.done() or running.cancelled():
            words = f"no result within {seconds:g} seconds; it may still take effect"
            return _failed(call.id, "timeout", words)
    if running.cancelled():
        return _failed(call.id, "error", "the tool cancelled itself")
    parts = running.result()
    if isinstance(parts, str):
        return _failed(call.id, "error", parts)
    return ToolResult(call_id=call.id, parts=parts)


async def _run(tool: Tool, arguments: str, context: CallContext) -> tuple[Text | Media, ...] | str:
    """The parts a tool gave, or what went wrong in words."""
    try:
        return _checked(await tool.run(msgspec.json.decode(arguments.strip() or "{}"), context))
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            raise
        return _words(error)


async def _stop(running: "asyncio.Task[tuple[Text | Media, ...] | str]") -> None:
    running.cancel()
    await asyncio.wait((running,), timeout=GRACE_SECONDS)


def _checked(given: object) -> tuple[Text | Media, ...]:
    """What is kept for ever must be what it claims to be, or the log could not be read again."""
    parts = tuple(given) if isinstance(given, list | tuple) else (given,)
    for part in parts:
        if not isinstance(part, Text | Media):
            raise TypeError(f"Tool.run must give Text and Media, not {type(part).__name__}")
    return tuple(replace(part, text=sound(part.text)) if isinstance(part, Text) else part for part in parts)


def _words(error: BaseException) -> str:
    try:
        said = str(error)
    except Exception as second:  # noqa: BLE001 - even telling what went wrong may go wrong
        said = f"(its own message raised {type(second).__name__})"
    return sound(f"{type(error).__name__}: {said}"[:ERROR_CHARACTERS_MAX])


def _failed(call_id: str, outcome: Outcome, words: str) -> ToolResult:
    return ToolResult(call_id=call_id, parts=(Text(text=words),), outcome=outcome)
