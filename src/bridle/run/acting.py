"""One call, run: whatever the tool does, a result comes back, and in time.

This holds the one broad `except` of the project.  A tool is foreign code and its failure
is the model's to handle, so everything it can raise becomes words; only the cancellation
of the run itself passes through, and a real Ctrl-C.

The tool is a task of its own.  One that does not stop when it is cancelled is left behind
after a short grace: a deadline that the tool may ignore would be none.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from ..core.effects import ProbeTool, RunTool
from ..ports.tool import TIME_IS_UP, CallContext, Claiming, Json, Probing, Tool
from ..values.parts import Media, Outcome, Text, ToolCall, ToolResult
from ..values.policy import Claim
from ..values.text import describe_error, sound
from .interrupt import is_interrupt

ERROR_CHARACTERS_MAX = 2_000
NOTHING: tuple[Text | Media, ...] = ()
GRACE_SECONDS = 2.0
"""How long a cancelled tool may clean up before it is left behind."""
UNKNOWN = "it may still take effect"
NO_TIME = "the run's time was up before it could start; it was not run"


async def act(tool: Tool, effect: RunTool, session: str, seconds: float | None) -> ToolResult:
    call = effect.call
    context = CallContext(session=session, call_id=call.id, key=effect.key, attempt=effect.attempt)
    ended = await _within(seconds, lambda: tool.run(_arguments(call), context))
    if isinstance(ended, Failed):
        return _failed(call.id, ended.outcome, ended.words)
    # Asked of a protocol, this would be a tenth of a step's time.
    showing: Callable[[Sequence[Text | Media]], Sequence[str]] | None = getattr(tool, "shows", None)
    shows = tuple(showing(ended)) if showing is not None else ()
    return ToolResult(call_id=call.id, parts=ended, shows=shows)


async def look_up(tool: Tool, effect: ProbeTool, session: str, seconds: float | None) -> ToolResult | None:
    """What became of a call in doubt, as its tool finds out; None when it surely never took effect.

    A tool that cannot find out leaves the call in doubt for ever: the model is told.
    """
    call = effect.call
    context = CallContext(session=session, call_id=call.id, key=effect.key, attempt=effect.attempt)
    probing = tool if isinstance(tool, Probing) else None
    if probing is None:
        return _failed(call.id, "unknown", f"{effect.unknown} Its tool has no way to look for it.")
    found = await _within(seconds, lambda: _probed(probing, _arguments(call), context))
    if isinstance(found, Failed):
        return _failed(call.id, "unknown", f"{effect.unknown} Looking for it failed: {found.words}")
    return None if found == NOTHING else ToolResult(call_id=call.id, parts=found)


def claim(tools: Mapping[str, Tool], call: ToolCall) -> Claim | None:
    """What a tool's own code says of a call; code that fails says the most careful thing."""
    tool = tools.get(call.name)
    if tool is None or not (tool.spec.keyed or tool.spec.approve == "depends"):
        return None
    if not isinstance(tool, Claiming):
        return None
    try:
        resource, ask = tool.claim(_arguments(call))
    except BaseException as error:  # foreign code; what it cannot say must not let anything through
        if is_interrupt(error):
            raise
        return Claim(call_id=call.id, ask=tool.spec.approve == "depends", why=_words(error))
    return Claim(call_id=call.id, resource=None if resource is None else sound(resource), ask=ask)


class Failed(NamedTuple):
    outcome: Outcome
    words: str


async def _within(
    seconds: float | None, work: Callable[[], Awaitable[Sequence[Text | Media]]]
) -> tuple[Text | Media, ...] | Failed:
    if seconds is not None and seconds <= 0:
        return Failed("timeout", NO_TIME)  # begun only to be cancelled, it might do half of what it does
    running = asyncio.create_task(_run(work))
    try:
        await asyncio.wait((running,), timeout=seconds)
    except asyncio.CancelledError:
        await _stop(running)
        raise
    if running.done():
        return Failed("error", "the tool cancelled itself") if running.cancelled() else running.result()
    await _stop(running, TIME_IS_UP)
    ended = running.result() if running.done() and not running.cancelled() else Failed("timeout", UNKNOWN)
    if isinstance(ended, Failed):
        # What a tool raises when it is told to stop is about its end, not an error of the call.
        words = ended.words.removeprefix(f"{TimeoutError.__name__}: ")
        return Failed("timeout", f"no result within {seconds:g} seconds; {words}")
    return ended  # it came in the grace: what has happened is not denied


async def _run(work: Callable[[], Awaitable[Sequence[Text | Media]]]) -> tuple[Text | Media, ...] | Failed:
    """The parts a tool gave, or what went wrong in words."""
    try:
        return _checked(await work())
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        if is_interrupt(error):
            raise
        return Failed("error", _words(error))


async def _probed(
    tool: Probing, arguments: Mapping[str, Json], context: CallContext
) -> Sequence[Text | Media]:
    found = await tool.probe(arguments, context)
    return NOTHING if found is None else found or (Text(text="It was done."),)


def _arguments(call: ToolCall) -> dict[str, Json]:
    arguments: dict[str, Json] = msgspec.json.decode(call.arguments.strip() or "{}")
    return arguments


async def _stop(running: "asyncio.Task[tuple[Text | Media, ...] | Failed]", why: str | None = None) -> None:
    running.cancel(why)
    await asyncio.wait((running,), timeout=GRACE_SECONDS)


def _checked(given: object) -> tuple[Text | Media, ...]:
    """What is kept for ever must be what it claims to be, or the log could not be read again."""
    parts = tuple(given) if isinstance(given, list | tuple) else (given,)
    for part in parts:
        if not isinstance(part, Text | Media):
            raise TypeError(f"Tool.run must give Text and Media, not {type(part).__name__}")
    return tuple(replace(part, text=sound(part.text)) if isinstance(part, Text) else part for part in parts)


def _words(error: BaseException) -> str:
    return sound(f"{type(error).__name__}: {describe_error(error)}"[:ERROR_CHARACTERS_MAX])


def _failed(call_id: str, outcome: Outcome, words: str) -> ToolResult:
    return ToolResult(call_id=call_id, parts=(Text(text=words),), outcome=outcome)
