"""Contract of pauses of a call's timeout: the time in which the call waits for a person before it is sent.

The tool that waits opens and closes the pause; run/calls/run_tool.py, which holds the timeout, reads it.  The
deadline of the run has no pauses.
"""

import asyncio

from msgspec.structs import force_setattr

from .run_context import RunContext


class TimeoutPause:
    """The pauses of one call's timeout; used in the event loop of the call."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._seconds, self._since, self._open_count = 0.0, 0.0, 0
        self._closed = asyncio.Event()

    @property
    def is_open(self) -> bool:
        return self._open_count > 0

    @property
    def seconds(self) -> float:
        """Time paused so far."""
        return self._seconds + (self._loop.time() - self._since if self.is_open else 0.0)

    def open(self) -> None:
        if not self.is_open:
            self._since = self._loop.time()
            self._closed.clear()
        self._open_count += 1

    def close(self) -> None:
        self._open_count -= 1
        if not self.is_open:
            self._seconds += self._loop.time() - self._since
            self._closed.set()

    async def wait_until_closed(self) -> None:
        await self._closed.wait()


def find_pause(context: RunContext) -> TimeoutPause:
    """The pause of the call that the context belongs to; made when it is first needed."""
    if context.pause is None:
        force_setattr(context, "pause", TimeoutPause())
    assert context.pause is not None
    return context.pause
