"""Holds tool calls that were started before their reply was complete.

core/calls/early_start.py decides which calls may start early.  Once the reply is complete, a call takes its
result from here if name and arguments are identical; calls that are not taken are cancelled and discarded.
"""

import asyncio
from collections.abc import Awaitable, Coroutine

from bridle.core.calls.early_start import count_reads, start_early
from bridle.core.effects import RunTool
from bridle.core.state import State
from bridle.values.message import ToolCall, ToolResult
from bridle.values.result import CallReady


class EarlyCalls:
    def __init__(self) -> None:
        self._ready_calls: dict[int, ToolCall] = {}
        self._read_count = 0
        self._started: dict[str, tuple[ToolCall, asyncio.Task[ToolResult]]] = {}
        self.discarded_tools: tuple[str, ...] = ()
        """Names of the tools cancelled by the last `discard`."""

    def offer_call(self, state: State, delta: CallReady) -> RunTool | None:
        """The call to start now, if any.  A reply that starts over does not start a call twice."""
        self._ready_calls[delta.index] = delta.call
        if delta.index < self._read_count:
            self._read_count = 0  # the reply started over
        self._read_count = count_reads(state, self._ready_calls, self._read_count)
        effect = start_early(state, self._ready_calls, delta.index, len(self._started), self._read_count)
        return None if effect is None or effect.call.id in self._started else effect

    def start(self, effect: RunTool, work: Coroutine[None, None, ToolResult]) -> None:
        self._started[effect.call.id] = effect.call, asyncio.create_task(work)

    def take_result(self, call: ToolCall) -> Awaitable[ToolResult] | None:
        """The result of the identical call that was started early; None if there is none."""
        started = self._started.get(call.id)
        if started is None or (started[0].name, started[0].arguments) != (call.name, call.arguments):
            return None
        del self._started[call.id]
        return _await_early_result(started[1])

    async def discard(self) -> tuple[str, ...]:
        """Cancel all calls that were not taken and return the names of their tools."""
        self._ready_calls.clear()
        self._read_count = 0
        left, self._started = self._started, {}
        self.discarded_tools = tuple(call.name for call, _ in left.values())
        if not left:
            return ()
        for _, task in left.values():
            task.cancel()
        await asyncio.gather(*(task for _, task in left.values()), return_exceptions=True)
        return self.discarded_tools


async def _await_early_result(task: "asyncio.Task[ToolResult]") -> ToolResult:
    """Await an early result in as many event loop turns as a fresh call, so that logs are identical."""
    try:
        await asyncio.sleep(0)
        await asyncio.wait((task,))
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        raise
    return task.result()
