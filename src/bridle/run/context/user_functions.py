"""Calls functions of the user: with a time limit, and in a thread unless they are async.

What they raise becomes a sentence for the log.  The cancellation of the run itself passes through.
"""

import asyncio
import inspect
import logging
import traceback
from collections.abc import Awaitable, Callable
from typing import TypeVar

from bridle.tools.function.threads import find_not_started, run_in_thread
from bridle.values.text import escape_text, locate_error, repair_surrogates

T = TypeVar("T")
LOG = logging.getLogger("bridle")
ERROR_CHARACTERS_KEPT = 500
"""Longer error messages are cut."""


class FunctionError(str):
    """The description of a function's failure."""

    __slots__ = ()


class NotStartedError(FunctionError):
    """The function had to wait for others until its time was up, so it did not run."""

    __slots__ = ()


async def call_with_deadline(name: str, work: Awaitable[T], seconds: float) -> T | FunctionError:
    """Await the work of the function `name`; a failure or a timeout is returned as a sentence."""
    warning = ""
    try:
        async with asyncio.timeout(seconds) as time:
            return await work
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        message = f"{name} was cancelled by its own code"  # the run itself was not cancelled
    except Exception as error:  # noqa: BLE001 - foreign code, and what it raises is for the log
        if isinstance(error, TimeoutError) and (waited := find_not_started(error)) is not None:
            message = f"{name} {waited}"
            LOG.warning("%s", escape_text(message))
            return NotStartedError(message)
        if isinstance(error, TimeoutError) and time.expired():
            message = f"{name} took longer than {seconds:g} seconds"
        else:
            # format_exception_only handles errors whose __str__ raises.
            description = traceback.format_exception_only(error)[-1].strip()
            message = repair_surrogates(f"{name} failed with {description}"[:ERROR_CHARACTERS_KEPT])
            warning = f"{name} failed with {locate_error(error)}; the session log has the message"
    # guard: function-warning-escaped
    LOG.warning("%s", escape_text(warning or message))
    return FunctionError(message)


async def call_user_function(call: Callable[[], object], function: object) -> object:
    """Call a user function; an ordinary one runs in a thread so that it does not block the event loop."""
    inner = inspect.unwrap(function) if callable(function) else function
    asynchronous = inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(
        getattr(inner, "__call__", None)  # noqa: B004 - an object whose call is a coroutine
    )
    found = call() if asynchronous else await run_in_thread(call, "functions")
    return await found if inspect.isawaitable(found) else found


def shorter_time(seconds: float, left: float | None) -> float:
    return seconds if left is None else min(seconds, left)
