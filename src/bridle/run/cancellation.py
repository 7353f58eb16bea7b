"""Cancellation and Ctrl-C: finish work despite a cancellation, recognize a real interrupt."""

import asyncio
import functools
import signal
import threading
from collections.abc import Coroutine
from types import CodeType, TracebackType
from typing import TypeVar

T = TypeVar("T")


async def finish_despite_cancel(work: Coroutine[None, None, T]) -> T:
    """Await `work` to completion even if this task is cancelled, then re-raise the cancellation."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = error
    result = task.result()
    if cancelled is not None:
        raise cancelled
    return result


def is_interrupt(error: BaseException) -> bool:
    """True if the error may come from Ctrl-C and must end the program; a tool may raise one by itself.

    Signals are handled in the main thread by calling the handler, so the handler appears in the traceback.
    The default handler is not a Python function and leaves no frame; in that case the answer is True.
    """
    if not isinstance(error, KeyboardInterrupt):
        return False
    if threading.current_thread() is not threading.main_thread():
        return False
    code = _handler_code(signal.getsignal(signal.SIGINT))
    return code is None or _has_frame(error.__traceback__, code)


def _handler_code(handler: object) -> CodeType | None:
    while isinstance(handler, functools.partial):
        handler = handler.func
    found = getattr(getattr(handler, "__func__", handler), "__code__", None)
    return found if isinstance(found, CodeType) else None


def _has_frame(trace: TracebackType | None, code: CodeType) -> bool:
    while trace is not None:
        if trace.tb_frame.f_code is code:
            return True
        trace = trace.tb_next
    return False
