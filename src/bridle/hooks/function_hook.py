"""Decorators that make a hook from a function, and guardrails made from one check.

    @before_tool(tools=["refund"])
    def limit_refund(run: RunContext[Shop], call: ToolCall) -> HookDecision:
        ...

The function may be synchronous or asynchronous. A synchronous one runs in a thread.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Collection
from typing import Generic, TypeVar

from bridle.ports.run_context import RunContext
from bridle.values.errors import MisuseError
from bridle.values.hooks import HOOK_SECONDS_DEFAULT, FinishedRun, HookDecision, ModelInput, Refuse
from bridle.values.message import Reply, ToolCall, ToolResult

C = TypeVar("C")
F = TypeVar("F", bound=Callable[..., object])
H = TypeVar("H")
Decided = HookDecision | Awaitable[HookDecision]
Checked = str | None | Awaitable[str | None]
"""Reason of a refusal; None to continue."""


class _FunctionHook(Generic[F]):
    def __init__(
        self, decide: F, name: str, timeout_seconds: float, tools: Collection[str] | None = None
    ) -> None:
        self.decide, self.name = decide, name or decide.__name__
        self.timeout_seconds, self.tools = timeout_seconds, tools
        self.is_async = inspect.iscoroutinefunction(decide)
        if isinstance(tools, str):
            raise MisuseError(f"tools is a list of names; write tools=[{tools!r}]")

    def applies_to(self, tool: str) -> bool:
        return self.tools is None or tool in self.tools


class BeforeModelFunction(_FunctionHook[Callable[[RunContext[C], ModelInput], Decided]], Generic[C]):
    def before_model(self, run: RunContext[C], request: ModelInput) -> Decided:
        return self.decide(run, request)


class AfterModelFunction(_FunctionHook[Callable[[RunContext[C], Reply], Decided]], Generic[C]):
    def after_model(self, run: RunContext[C], reply: Reply) -> Decided:
        return self.decide(run, reply)


class BeforeToolFunction(_FunctionHook[Callable[[RunContext[C], ToolCall], Decided]], Generic[C]):
    def before_tool(self, run: RunContext[C], call: ToolCall) -> Decided:
        return self.decide(run, call)


class AfterToolFunction(_FunctionHook[Callable[[RunContext[C], ToolCall, ToolResult], Decided]], Generic[C]):
    def after_tool(self, run: RunContext[C], call: ToolCall, result: ToolResult) -> Decided:
        return self.decide(run, call, result)


class OnEndFunction(_FunctionHook[Callable[[RunContext[C], FinishedRun], Decided]], Generic[C]):
    def on_end(self, run: RunContext[C], result: FinishedRun) -> Decided:
        return self.decide(run, result)


def before_model(
    *, name: str = "", timeout: float = HOOK_SECONDS_DEFAULT
) -> Callable[[Callable[[RunContext[C], ModelInput], Decided]], BeforeModelFunction[C]]:
    """Decide about every request of a new step."""
    return lambda decide: BeforeModelFunction(decide, name, timeout)


def after_model(
    *, name: str = "", timeout: float = HOOK_SECONDS_DEFAULT
) -> Callable[[Callable[[RunContext[C], Reply], Decided]], AfterModelFunction[C]]:
    """Decide about every complete reply, before it becomes part of the conversation."""
    return lambda decide: AfterModelFunction(decide, name, timeout)


def before_tool(
    *, tools: Collection[str] | None = None, name: str = "", timeout: float = HOOK_SECONDS_DEFAULT
) -> Callable[[Callable[[RunContext[C], ToolCall], Decided]], BeforeToolFunction[C]]:
    """Decide about every valid call, or about those of the named tools, before rules and approvals do."""
    return lambda decide: BeforeToolFunction(decide, name, timeout, tools)


def after_tool(
    *, tools: Collection[str] | None = None, name: str = "", timeout: float = HOOK_SECONDS_DEFAULT
) -> Callable[[Callable[[RunContext[C], ToolCall, ToolResult], Decided]], AfterToolFunction[C]]:
    """Decide about the result of every call that ran, or of the named tools, before the model receives it."""
    return lambda decide: AfterToolFunction(decide, name, timeout, tools)


def on_end(
    *, name: str = "", timeout: float = HOOK_SECONDS_DEFAULT
) -> Callable[[Callable[[RunContext[C], FinishedRun], Decided]], OnEndFunction[C]]:
    """Decide about the end of a run."""
    return lambda decide: OnEndFunction(decide, name, timeout)


def guard_input(
    *, name: str = "", timeout: float = HOOK_SECONDS_DEFAULT
) -> Callable[[Callable[[RunContext[C], str], Checked]], BeforeModelFunction[C]]:
    """Refuse a prompt: the check gets its text and returns a reason, or None to continue."""

    def make_hook(check: Callable[[RunContext[C], str], Checked]) -> BeforeModelFunction[C]:
        async def decide(run: RunContext[C], request: ModelInput) -> HookDecision:
            texts = [each.text for each in request.new_messages if each.provenance == "person"]
            return await _check(check, run, "\n".join(texts)) if texts else None

        return BeforeModelFunction(decide, name or check.__name__, timeout)

    return make_hook


def guard_output(
    *, name: str = "", timeout: float = HOOK_SECONDS_DEFAULT
) -> Callable[[Callable[[RunContext[C], str], Checked]], AfterModelFunction[C]]:
    """Refuse a reply: the check gets its text and returns a reason, or None to continue."""

    def make_hook(check: Callable[[RunContext[C], str], Checked]) -> AfterModelFunction[C]:
        async def decide(run: RunContext[C], reply: Reply) -> HookDecision:
            return await _check(check, run, reply.text) if reply.text else None

        return AfterModelFunction(decide, name or check.__name__, timeout)

    return make_hook


async def _check(
    check: Callable[[RunContext[C], str], Checked], run: RunContext[C], text: str
) -> Refuse | None:
    if inspect.iscoroutinefunction(check):
        reason = await check(run, text)
    else:
        reason = await asyncio.to_thread(check, run, text)
    return Refuse(reason=reason) if reason else None
