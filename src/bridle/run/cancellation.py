"""Finishing what must not be left half-way, however often somebody asks to stop."""

import asyncio
import functools
import signal
import threading
from collections.abc import Coroutine
from types import CodeType, TracebackType
from typing import TypeVar

T = TypeVar("T")


async def finish_despite_cancel(work: Coroutine[None, None, T]) -> T:
    """Do it to its end; whoever was cancelled meanwhile hears of it afterwards."""
    doing = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not doing.done():
        try:
            await asyncio.wait((doing,))
        except asyncio.CancelledError as error:
            cancelled = error
    result = doing.result()
    if cancelled is not None:
        raise cancelled
    return result


# Ctrl-C told apart from a `KeyboardInterrupt` that a tool raised by itself.


def is_interrupt(error: BaseException) -> bool:
    """True if the error may come from a signal, and so must end the program.

    A signal is handled in the main thread, inside a call of the handler, so the handler is in the
    traceback.  The default handler is no Python function and leaves no trace: then it is believed.
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
