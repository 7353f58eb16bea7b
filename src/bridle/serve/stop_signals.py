"""Notices that the server around a mounted application was told to stop.

A server such as uvicorn waits for its open connections before it ends the lifespan of its application, so an event
stream without an end would keep it alive. The signals of the process say it earlier. Their handlers stay in place: this
one runs first and calls them. It installs no handler where nobody handles the signal, and none outside the main thread.
"""

import asyncio
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
UNHANDLED = (signal.SIG_DFL, signal.SIG_IGN, signal.default_int_handler, None)
"""Handlers of nobody: the process ends at once, ignores the signal, or is interrupted like a script."""


class StopSignals:
    """Calls a function in the event loop when the process is told to stop."""

    def __init__(self, on_stop: Callable[[], object]) -> None:
        self._on_stop = on_stop
        self._before: dict[int, Any] = {}
        """Handlers that were there, by signal."""
        self._loop: asyncio.AbstractEventLoop | None = None

    def install(self) -> None:
        """Listen; called in the event loop of the server."""
        if threading.current_thread() is not threading.main_thread():
            return  # only the main thread may set handlers
        self._loop = asyncio.get_running_loop()
        for number in STOP_SIGNALS:
            before = signal.getsignal(number)
            if before not in UNHANDLED:
                self._before[number] = before
                signal.signal(number, self._handle)

    def remove(self) -> None:
        """Put the handlers back, where nobody has replaced this one."""
        for number, before in self._before.items():
            if signal.getsignal(number) == self._handle:
                signal.signal(number, before)
        self._before.clear()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._on_stop)
        before = self._before.get(number)
        if callable(before):
            before(number, frame)
