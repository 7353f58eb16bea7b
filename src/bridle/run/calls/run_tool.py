"""Runs one tool call; always returns a result, in time, whatever the tool does.

A tool is foreign code and its failure is for the model to handle, so every exception becomes a text result.
Only the cancellation of the run itself and a real Ctrl-C pass through.  An exception that the tool did not declare
is probably a bug: the caller logs it with its traceback, and the record of the result names its place.

The tool runs in its own task.  If it ignores cancellation it is abandoned after a short grace period, so that
deadlines hold.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec
from msgspec.structs import force_setattr, replace

from bridle.core.effects import ProbeTool, RunTool
from bridle.ports.forbidden_requests import RequestForbidden
from bridle.ports.run_context import RunContext
from bridle.ports.tool import DEADLINE_CANCEL, ClaimingTool, Json, NotStarted, ProbingTool, Tool
from bridle.run.cancellation import is_interrupt
from bridle.tools.function.threads import find_not_started, run_in_thread
from bridle.values.calls import ResourceClaim
from bridle.values.errors import EndRun, ModelRetry, OutcomeUnknown
from bridle.values.message import Media, Outcome, Text, ToolCall, ToolResult
from bridle.values.text import describe_error, locate_error, repair_surrogates

if TYPE_CHECKING:
    from bridle.ports.timeout_pause import TimeoutPause

ERROR_CHARACTERS_MAX = 2_000
NO_PARTS: tuple[Text | Media, ...] = ()
PART_TYPES, PART_LISTS = (Text, Media), (list, tuple)
GRACE_SECONDS = 2.0
"""Time a cancelled tool has for cleanup before it is abandoned."""
PREVIEW_SECONDS = 10.0
"""Time a tool has to show what a call would do."""
RUN_ENDED = "This call ended the run."
MAY_TAKE_EFFECT = "it may still take effect"
NOT_STARTED_IN_TIME = "the run's time was up before it could start; it was not run"


class FinishedCall(NamedTuple):
    """The result of a call, and what else is recorded with it."""

    result: ToolResult
    error: BaseException | None = None
    """An exception that the tool did not declare."""
    end: EndRun | None = None
    """The tool's request to end the run."""


async def run_tool(
    tool: Tool,
    effect: RunTool,
    context: RunContext,
    seconds: float | None,
    is_cut_in_doubt: Callable[[], bool] = lambda: False,
    run_seconds: Callable[[], float | None] = lambda: None,
) -> FinishedCall:
    """Run a call. A call that is cut at its time limit is a `timeout`, or `unknown` if `is_cut_in_doubt` says so.

    `run_seconds` is the time left for the run, which goes on while the timeout of the call is paused.
    """
    call = effect.call
    ended = await run_with_deadline(seconds, partial(_run_parts, tool, call, context), context, run_seconds)
    if isinstance(ended, ToolFailure):
        in_doubt = ended.is_cut and is_cut_in_doubt()
        result = _failed_result(call.id, "unknown" if in_doubt else ended.outcome, ended.message)
        return FinishedCall(result, ended.error, ended.end)
    # getattr instead of isinstance with a protocol, which would take a tenth of a step's time.
    list_revealed: Callable[[Sequence[Text | Media]], Sequence[str]] | None = getattr(
        tool, "list_revealed_tools", None
    )
    revealed = tuple(list_revealed(ended)) if list_revealed is not None else ()
    return FinishedCall(ToolResult(call_id=call.id, parts=ended, reveals_tools=revealed))


async def probe_tool(
    tool: Tool, effect: ProbeTool, context: RunContext, seconds: float | None
) -> ToolResult | None:
    """Ask a tool what became of a call in doubt; None if the call never took effect.

    If the tool cannot tell, the result is `unknown` and the model is informed.
    """
    call = effect.call
    probing = tool if isinstance(tool, ProbingTool) else None
    if probing is None:
        return _failed_result(
            call.id, "unknown", f"{effect.unknown_notice} Its tool has no way to look for it."
        )
    found = await run_with_deadline(
        seconds, lambda: _probe_parts(probing, _decode_arguments(call), context), context
    )
    if isinstance(found, ToolFailure):
        return _failed_result(
            call.id, "unknown", f"{effect.unknown_notice} Looking for it failed: {found.message}"
        )
    return None if found == NO_PARTS else ToolResult(call_id=call.id, parts=found)


def find_resource_claim(tools: Mapping[str, Tool], call: ToolCall) -> ResourceClaim | None:
    """The resource claim of a tool's own code for a call; if that code fails, the most restrictive claim."""
    tool = tools.get(call.name)
    if tool is None or not (tool.spec.claims_resource or tool.spec.approve == "depends"):
        return None
    if not isinstance(tool, ClaimingTool):
        return None
    try:
        resource, ask = tool.claim_resource(_decode_arguments(call))
    except BaseException as error:  # foreign code; its failure must not permit anything
        if is_interrupt(error):
            raise
        return ResourceClaim(
            call_id=call.id, needs_approval=tool.spec.approve == "depends", why=_describe_exception(error)
        )
    return ResourceClaim(
        call_id=call.id,
        resource=None if resource is None else repair_surrogates(resource),
        needs_approval=ask,
    )


async def preview_call(tools: Mapping[str, Tool], call: ToolCall) -> str:
    """Describe the effect of a call in the words of its tool; empty if the tool has no preview."""
    show = getattr(tools.get(call.name), "preview_call", None)
    if show is None:
        return ""
    try:
        async with asyncio.timeout(PREVIEW_SECONDS):
            shown = await run_in_thread(partial(show, _decode_arguments(call)), "functions")
    except Exception as error:  # noqa: BLE001 - foreign code; the person is told that there is no preview
        return f"no preview: {find_not_started(error) or _describe_exception(error)}"
    return repair_surrogates(str(shown))


class ToolFailure(NamedTuple):
    outcome: Outcome
    message: str
    raised: str = ""
    """Type and place of the exception, if there is one."""
    is_cut: bool = False
    """It was cut at its time limit and did not say what it had done."""
    is_started: bool = True
    error: BaseException | None = None
    """The exception, if it is not one of those by which a tool says what to do."""
    end: EndRun | None = None


R = TypeVar("R")


async def run_with_deadline(
    seconds: float | None,
    work: Callable[[], Awaitable[R]],
    context: RunContext,
    run_seconds: Callable[[], float | None] = lambda: None,
) -> R | ToolFailure:
    """The result of user code, or a description of its failure."""
    if seconds is not None and seconds <= 0:
        return ToolFailure("timeout", NOT_STARTED_IN_TIME)  # not started: a partial run could have effects
    running = asyncio.get_running_loop().create_task(_run_safely(work))
    try:
        await wait_for_task(running, seconds)
        if context.pause is not None and not running.done():
            await _wait_for_paused_task(running, context.pause, run_seconds)
    except asyncio.CancelledError:
        await _stop_task(running, context)
        raise
    if running.done():
        return ToolFailure("error", "the tool cancelled itself") if running.cancelled() else running.result()
    await _stop_task(running, context, DEADLINE_CANCEL)
    ended = (
        running.result()
        if running.done() and not running.cancelled()
        else ToolFailure("timeout", MAY_TAKE_EFFECT, is_cut=True)
    )
    if isinstance(ended, ToolFailure) and ended.is_started:
        # An exception raised on cancellation describes the timeout, not an error of the call.
        message = ended.message.removeprefix(f"{TimeoutError.__name__}: ")
        return ToolFailure("timeout", f"no result within {seconds:g} seconds; {message}", is_cut=ended.is_cut)
    return ended  # the result arrived within the grace period


async def wait_for_task(task: "asyncio.Task[R]", seconds: float | None = None) -> None:
    """Wait until the task has ended or the time is up, like `asyncio.wait` and in as many turns of the event loop.

    Most tools end in their first turn; the timer is set after it.
    """
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()
    timer: asyncio.TimerHandle | None = None

    def release(_: object = None) -> None:
        if not waiter.done():
            waiter.set_result(None)

    def set_timer() -> None:
        nonlocal timer
        if seconds is not None and not task.done() and not waiter.done():
            timer = loop.call_later(seconds, release)

    task.add_done_callback(release)
    if seconds is not None:
        loop.call_soon(set_timer)
    try:
        await waiter
    finally:
        task.remove_done_callback(release)
        if timer is not None:
            timer.cancel()


async def _wait_for_paused_task(
    task: "asyncio.Task[R]", pause: "TimeoutPause", run_seconds: Callable[[], float | None]
) -> None:
    """Wait on after the timeout for as long as it was paused, at most until the end of the run's time."""
    loop = asyncio.get_running_loop()
    expired_at = loop.time()
    while not task.done():
        run_left = run_seconds()
        if run_left is not None and run_left <= 0:
            return
        if pause.is_open:
            closing = asyncio.ensure_future(pause.wait_until_closed())
            try:
                await asyncio.wait((task, closing), timeout=run_left, return_when=asyncio.FIRST_COMPLETED)
            finally:
                closing.cancel()
            continue
        left = pause.seconds - (loop.time() - expired_at)
        if left <= 0:
            return
        await wait_for_task(task, left if run_left is None else min(left, run_left))


async def _run_safely(work: Callable[[], Awaitable[R]]) -> R | ToolFailure:
    try:
        return await work()
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        if is_interrupt(error):
            raise
        if isinstance(error, OutcomeUnknown):
            message = repair_surrogates(describe_error(error)[:ERROR_CHARACTERS_MAX])
            return ToolFailure("unknown", message, locate_error(error))
        if isinstance(error, NotStarted):
            return ToolFailure("error", str(error), locate_error(error), is_started=False)
        if isinstance(error, ModelRetry):
            message = repair_surrogates(error.message[:ERROR_CHARACTERS_MAX])
            return ToolFailure("retry", message, locate_error(error))
        if isinstance(error, EndRun):
            has_failed = error.failed is not None
            message = repair_surrogates((error.failed or RUN_ENDED)[:ERROR_CHARACTERS_MAX])
            return ToolFailure("error" if has_failed else "ok", message, locate_error(error), end=error)
        if isinstance(error, RequestForbidden):
            raise  # for the test that forbade requests, not for the model
        return ToolFailure("error", _describe_exception(error), locate_error(error), error=error)


async def _run_parts(tool: Tool, call: ToolCall, context: RunContext) -> tuple[Text | Media, ...]:
    return _check_parts(await tool.run(_decode_arguments(call), context))


async def _probe_parts(
    tool: ProbingTool, arguments: Mapping[str, Json], context: RunContext
) -> tuple[Text | Media, ...]:
    found = await tool.probe(arguments, context)
    return NO_PARTS if found is None else _check_parts(found or (Text(text="It was done."),))


def _decode_arguments(call: ToolCall) -> dict[str, Json]:
    arguments: dict[str, Json] = msgspec.json.decode(call.arguments.strip() or "{}")
    return arguments


async def _stop_task(
    running: "asyncio.Task[R | ToolFailure]",
    context: RunContext,
    why: str | None = None,
) -> None:
    force_setattr(context, "cancelled", True)  # a function in a thread sees nothing else
    running.cancel(why)
    await asyncio.wait((running,), timeout=GRACE_SECONDS)


def _check_parts(given: object) -> tuple[Text | Media, ...]:
    """Return the parts as a tuple; raises `TypeError` for other types, which the log could not decode."""
    parts = tuple(given) if isinstance(given, PART_LISTS) else (given,)
    is_clean = True
    for part in parts:
        if not isinstance(part, PART_TYPES):
            raise TypeError(f"Tool.run must return Text and Media, not {type(part).__name__}")
        is_clean = is_clean and _repair_part(part) is part
    return parts if is_clean else tuple(map(_repair_part, parts))


def _repair_part(part: Text | Media) -> Text | Media:
    if not isinstance(part, Text) or part.text.isascii():
        return part
    return replace(part, text=repair_surrogates(part.text))


def _describe_exception(error: BaseException) -> str:
    return repair_surrogates(f"{type(error).__name__}: {describe_error(error)}"[:ERROR_CHARACTERS_MAX])


def _failed_result(call_id: str, outcome: Outcome, message: str) -> ToolResult:
    return ToolResult(call_id=call_id, parts=(Text(text=message),), outcome=outcome)
