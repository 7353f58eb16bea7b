"""Decorators that make a hook from a function, and guardrails made from one check.

    @before_tool(tools=["refund"])
    def limit_refund(run: RunContext[Shop], call: ToolCall) -> HookDecision:
        ...

The function may be synchronous or asynchronous. A synchronous one runs in a thread.
"""

import inspect
from collections.abc import Awaitable, Callable, Collection
from typing import Generic, TypeVar

from bridle.ports.run_context import RunContext
from bridle.values.errors import MisuseError
from bridle.values.hooks import HOOK_SECONDS_DEFAULT, FinishedRun, HookDecision, ModelInput, Refuse
from bridle.values.message import Message, Reply, ToolCall, ToolResult

from .text_filter import list_documents, list_texts

C = TypeVar("C")
F = TypeVar("F", bound=Callable[..., object])
A = TypeVar("A")
Decided = HookDecision | Awaitable[HookDecision]
Checked = str | None | Awaitable[str | None]
"""Reason of a refusal; None to continue."""


GUARD_PARAMETERS = ("run", "text")


class FunctionHook(Generic[F]):
    """A hook made from `function`; `parameters` are its positional arguments if the hook's method has others."""

    def __init__(
        self,
        decide: F,
        name: str,
        timeout_seconds: float,
        tools: Collection[str] | None = None,
        *,
        function: Callable[..., object] | None = None,
    ) -> None:
        self.decide, self.function = decide, function or decide
        self.name = name or getattr(self.function, "__name__", type(self.function).__name__)
        self.timeout_seconds, self.tools = timeout_seconds, tools
        self.is_async = inspect.iscoroutinefunction(decide)
        self.parameters = GUARD_PARAMETERS if function is not None else ()


class BeforeModelFunction(FunctionHook[Callable[[RunContext[C], ModelInput], Decided]], Generic[C]):
    def before_model(self, run: RunContext[C], request: ModelInput) -> Decided:
        return self.decide(run, request)


class AfterModelFunction(FunctionHook[Callable[[RunContext[C], Reply], Decided]], Generic[C]):
    def after_model(self, run: RunContext[C], reply: Reply) -> Decided:
        return self.decide(run, reply)


class BeforeToolFunction(FunctionHook[Callable[[RunContext[C], ToolCall], Decided]], Generic[C]):
    def before_tool(self, run: RunContext[C], call: ToolCall) -> Decided:
        return self.decide(run, call)


class AfterToolFunction(FunctionHook[Callable[[RunContext[C], ToolCall, ToolResult], Decided]], Generic[C]):
    def after_tool(self, run: RunContext[C], call: ToolCall, result: ToolResult) -> Decided:
        return self.decide(run, call, result)


class OnEndFunction(FunctionHook[Callable[[RunContext[C], FinishedRun], Decided]], Generic[C]):
    def on_end(self, run: RunContext[C], result: FinishedRun) -> Decided:
        return self.decide(run, result)


def before_model(
    function: None = None, /, *, name: str = "", timeout: float = HOOK_SECONDS_DEFAULT
) -> Callable[[Callable[[RunContext[C], ModelInput], Decided]], BeforeModelFunction[C]]:
    """Decide about every request of a new step."""
    _check_not_bare("before_model", function)
    return lambda decide: BeforeModelFunction(decide, name, timeout)


def after_model(
    function: None = None, /, *, name: str = "", timeout: float = HOOK_SECONDS_DEFAULT
) -> Callable[[Callable[[RunContext[C], Reply], Decided]], AfterModelFunction[C]]:
    """Decide about every complete reply, before it becomes part of the conversation."""
    _check_not_bare("after_model", function)
    return lambda decide: AfterModelFunction(decide, name, timeout)


def before_tool(
    function: None = None,
    /,
    *,
    tools: Collection[str] | None = None,
    name: str = "",
    timeout: float = HOOK_SECONDS_DEFAULT,
) -> Callable[[Callable[[RunContext[C], ToolCall], Decided]], BeforeToolFunction[C]]:
    """Decide about every valid call, or about those of the named tools, before rules and approvals do."""
    _check_not_bare("before_tool", function)
    return lambda decide: BeforeToolFunction(decide, name, timeout, tools)


def after_tool(
    function: None = None,
    /,
    *,
    tools: Collection[str] | None = None,
    name: str = "",
    timeout: float = HOOK_SECONDS_DEFAULT,
) -> Callable[[Callable[[RunContext[C], ToolCall, ToolResult], Decided]], AfterToolFunction[C]]:
    """Decide about the result of every call that ran, or of the named tools, before the model receives it."""
    _check_not_bare("after_tool", function)
    return lambda decide: AfterToolFunction(decide, name, timeout, tools)


def on_end(
    function: None = None, /, *, name: str = "", timeout: float = HOOK_SECONDS_DEFAULT
) -> Callable[[Callable[[RunContext[C], FinishedRun], Decided]], OnEndFunction[C]]:
    """Decide about the end of a run."""
    _check_not_bare("on_end", function)
    return lambda decide: OnEndFunction(decide, name, timeout)


def guard_input(
    function: None = None, /, *, name: str = "", timeout: float = HOOK_SECONDS_DEFAULT
) -> Callable[[Callable[[RunContext[C], str], Checked]], BeforeModelFunction[C]]:
    """Refuse a prompt: the check gets its text and returns a reason, or None to continue.

    The text is everything from outside that the provider has not been sent yet: prompts and their text documents,
    imported history, and the system prompt and tools if they were given for this run.
    """
    _check_not_bare("guard_input", function)

    def make_hook(check: Callable[[RunContext[C], str], Checked]) -> BeforeModelFunction[C]:
        def decide(run: RunContext[C], request: ModelInput) -> Decided:
            texts = [text for each in request.new_messages for text in _list_foreign_texts(each)]
            texts += [each.text for each in request.new_texts if each.is_given]
            return _decide_by_check(check(run, "\n".join(texts))) if texts else None

        return BeforeModelFunction(_match_kind(decide, check), name, timeout, function=check)

    return make_hook


def guard_output(
    function: None = None, /, *, name: str = "", timeout: float = HOOK_SECONDS_DEFAULT
) -> Callable[[Callable[[RunContext[C], str], Checked]], AfterModelFunction[C]]:
    """Refuse a reply: the check gets its text and returns a reason, or None to continue."""
    _check_not_bare("guard_output", function)

    def make_hook(check: Callable[[RunContext[C], str], Checked]) -> AfterModelFunction[C]:
        def decide(run: RunContext[C], reply: Reply) -> Decided:
            return _decide_by_check(check(run, reply.text)) if reply.text else None

        return AfterModelFunction(_match_kind(decide, check), name, timeout, function=check)

    return make_hook


def _list_foreign_texts(message: Message) -> list[str]:
    """Texts of a message that come from outside: not those of the harness, of models and of tools."""
    if message.provenance == "person":
        return [message.text, *list_documents(message)]
    return list_texts(message) if message.provenance == "import" else []


def _check_not_bare(decorator: str, function: object) -> None:
    if function is not None:
        raise MisuseError(f"write @{decorator}() with parentheses")


def _match_kind(
    decide: Callable[[RunContext[C], A], Decided], check: Callable[..., object]
) -> Callable[[RunContext[C], A], Decided]:
    """The function, asynchronous if the check is: only a synchronous check runs in a thread."""
    if not inspect.iscoroutinefunction(check):
        return decide

    async def decide_later(run: RunContext[C], subject: A) -> HookDecision:
        decision = decide(run, subject)
        return await decision if inspect.isawaitable(decision) else decision

    return decide_later


def _decide_by_check(reason: Checked) -> Decided:
    if inspect.isawaitable(reason):
        return _decide_later(reason)
    # False could mean "not allowed": only None lets a text pass.
    if reason is not None and not (isinstance(reason, str) and reason.strip()):
        raise TypeError(f"a guard returns a reason to refuse, or None to continue; not {reason!r:.40}")
    return None if reason is None else Refuse(reason=reason)


async def _decide_later(reason: Awaitable[str | None]) -> HookDecision:
    decision = _decide_by_check(await reason)
    return await decision if inspect.isawaitable(decision) else decision
