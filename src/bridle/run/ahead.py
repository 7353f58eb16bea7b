"""Tools that run ahead of the reply that calls them.

What may start early is the core's to say (core/early.py).  This keeps what was started until
the reply is complete: then the call takes its result from here if it is the same call to the
letter, and whatever nobody takes is stopped and forgotten.
"""

import asyncio
from collections.abc import Awaitable, Coroutine

from ..core.early import count_reads, early
from ..core.effects import RunTool
from ..core.state import State
from ..values.delta import CallReady
from ..values.parts import ToolCall, ToolResult


class Ahead:
    def __init__(self) -> None:
        self._ready: dict[int, ToolCall] = {}
        self._reads = 0
        self._started: dict[str, tuple[ToolCall, asyncio.Task[ToolResult]]] = {}
        self.discarded: tuple[str, ...] = ()
        """What was stopped last, by the names of the tools."""

    def ready(self, state: State, delta: CallReady) -> RunTool | None:
        """The tool to start now.  A provider that begins its reply again starts nothing twice."""
        self._ready[delta.index] = delta.call
        if delta.index < self._reads:
            self._reads = 0  # the reply began again
        self._reads = count_reads(state, self._ready, self._reads)
        effect = early(state, self._ready, delta.index, len(self._started), self._reads)
        return None if effect is None or effect.call.id in self._started else effect

    def start(self, effect: RunTool, work: Coroutine[None, None, ToolResult]) -> None:
        self._started[effect.call.id] = effect.call, asyncio.create_task(work)

    def take(self, call: ToolCall) -> Awaitable[ToolResult] | None:
        """What was started for this very call; None when nothing was, or for another."""
        started = self._started.get(call.id)
        if started is None or (started[0].name, started[0].arguments) != (call.name, call.arguments):
            return None
        del self._started[call.id]
        return _result(started[1])

    async def discard(self) -> tuple[str, ...]:
        """Stop everything that was not taken; the names of those tools."""
        self._ready.clear()
        self._reads = 0
        left, self._started = self._started, {}
        self.discarded = tuple(call.name for call, _ in left.values())
        if not left:
            return ()
        for _, task in left.values():
            task.cancel()
        await asyncio.gather(*(task for _, task in left.values()), return_exceptions=True)
        return self.discarded


async def _result(task: "asyncio.Task[ToolResult]") -> ToolResult:
    """In as many turns of the event loop as a tool takes that is run now, so that logs come out the same."""
    try:
        await asyncio.sleep(0)
        await asyncio.wait((task,))
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        raise
    return task.result()
