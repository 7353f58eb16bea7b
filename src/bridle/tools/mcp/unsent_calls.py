"""Calls that were not sent to their server yet, and those that wait for a person who signs in.

A call that ends while it is unsent was not run, whatever ends it.  The time that the person takes does not count
towards its timeout.
"""

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

from bridle.ports.run_context import RunContext
from bridle.ports.timeout_pause import TimeoutPause, find_pause

NOT_SENT_IN_TIME = (
    "the time was up before the call could be sent to the MCP server {server!r}; it was not run"
)
RESOURCE_CALL: ContextVar[RunContext | None] = ContextVar("bridle_mcp_resource_call", default=None)
"""The tool call for which resources are listed or read."""


class UnsentCall:
    """A request to a server that has its own time limits: that of a tool call, and that of a function here."""

    def __init__(self, context: RunContext | None = None, limit: asyncio.Timeout | None = None) -> None:
        self._context, self._limit = context, limit
        self._left: float | None = None
        self._opened: TimeoutPause | None = None

    def pause(self) -> None:
        """Stop the time limits."""
        if self._context is not None:
            self._opened = find_pause(self._context)
            self._opened.open()
        if self._limit is not None and not self._limit.expired() and (ends := self._limit.when()) is not None:
            self._left = ends - asyncio.get_running_loop().time()
            self._limit.reschedule(None)

    def go_on(self) -> None:
        """Start the time limits again, where they were stopped."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None
        if self._limit is not None and self._left is not None:
            self._limit.reschedule(asyncio.get_running_loop().time() + self._left)
            self._left = None


class UnsentCalls:
    """The unsent calls of one server in one event loop."""

    def __init__(self) -> None:
        self._calls: set[UnsentCall] = set()
        self._asking_count = 0

    @contextmanager
    def track(self, call: UnsentCall) -> Generator[UnsentCall]:
        """A call that is unsent until `mark_sent`."""
        self.mark_unsent(call)
        try:
            yield call
        finally:
            self.mark_sent(call)

    def is_unsent(self, call: UnsentCall) -> bool:
        return call in self._calls

    def mark_unsent(self, call: UnsentCall | None) -> None:
        """Note that a call waits to be sent, at first or after the server refused it for want of a token."""
        if call is not None and call not in self._calls:
            self._calls.add(call)
            if self._asking_count:
                call.pause()

    def mark_sent(self, call: UnsentCall | None) -> None:
        if call is not None and call in self._calls:
            self._calls.remove(call)
            if self._asking_count:
                call.go_on()

    def ask_person(self) -> Callable[[], None]:
        """Stop the time limits of all unsent calls; the result starts them again, and may be called twice."""
        self._asking_count += 1
        if self._asking_count == 1:
            for call in self._calls:
                call.pause()
        is_over = False

        def end() -> None:
            nonlocal is_over
            if is_over:
                return
            is_over = True
            self._asking_count -= 1
            if not self._asking_count:
                for call in self._calls:
                    call.go_on()

        return end


CURRENT_CALL: ContextVar[UnsentCall | None] = ContextVar("bridle_mcp_call", default=None)
"""The call that a request of the `mcp` package belongs to: its transports send each message in its sender's context."""
