"""Calls hooks for a driver and records their decisions.

core/hooks.py decides which hook is due. An exception, a timeout and a wrong return value are recorded as a
failure of the hook, which ends the run.
"""

import functools
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec
from msgspec.structs import replace

from bridle.core.calls.pending import PendingCall, find_call
from bridle.core.effects import RunHook
from bridle.core.hooks import (
    HOOK_MISSING,
    find_edit_problem,
    list_failed_again,
    list_new_messages,
    list_new_texts,
    make_head_edits,
)
from bridle.core.state import State
from bridle.ports.run_context import RunContext
from bridle.ports.tool import Tool
from bridle.run.calls.run_tool import ToolFailure, find_resource_claim, run_with_deadline
from bridle.run.context.reply_filter import FilterHook
from bridle.run.context.run_context import RunContexts
from bridle.run.result import OutputChecker
from bridle.tools.function.threads import run_in_thread
from bridle.values.errors import ModelRetry
from bridle.values.events import Event
from bridle.values.hooks import (
    Answer,
    Change,
    FinishedRun,
    HeadText,
    HookDecided,
    HookDecision,
    HookPoint,
    ModelInput,
    Refuse,
)
from bridle.values.message import Media, Reply, Text, ToolCall, ToolResult, ViewChange
from bridle.values.text import escape_text, repair_surrogates

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    C_contra = TypeVar("C_contra", contravariant=True, default=object)
else:
    from typing import TypeVar

    C_contra = TypeVar("C_contra", contravariant=True)

Decided = HookDecision | Awaitable[HookDecision]


class BeforeModelHook(Protocol[C_contra]):
    def before_model(self, run: RunContext[C_contra], request: ModelInput, /) -> Decided: ...


class AfterModelHook(Protocol[C_contra]):
    def after_model(self, run: RunContext[C_contra], reply: Reply, /) -> Decided: ...


class BeforeToolHook(Protocol[C_contra]):
    def before_tool(self, run: RunContext[C_contra], call: ToolCall, /) -> Decided: ...


class AfterToolHook(Protocol[C_contra]):
    def after_tool(self, run: RunContext[C_contra], call: ToolCall, result: ToolResult, /) -> Decided: ...


class OnEndHook(Protocol[C_contra]):
    def on_end(self, run: RunContext[C_contra], end: FinishedRun, /) -> Decided: ...


Hook = (
    BeforeModelHook[C_contra]
    | AfterModelHook[C_contra]
    | BeforeToolHook[C_contra]
    | AfterToolHook[C_contra]
    | OnEndHook[C_contra]
    | FilterHook
)
"""A hook: an object with at least one of these methods."""
LOG = logging.getLogger("bridle")


ACCEPTED_FIELDS: Mapping[HookPoint, tuple[str, ...]] = {
    "before_model": ("text", "edits", "head"),
    "after_model": ("text",),
    "before_tool": ("arguments",),
    "after_tool": ("text", "parts"),
    "on_end": ("text",),
}
"""Fields of `Change` that each point accepts."""


class HookedDriver(Protocol):
    """The driver of the run, as hooks need it."""

    contexts: RunContexts
    state: State

    async def record(self, event: Event) -> None: ...


class HookRunner:
    """Calls the hooks of one run."""

    def __init__(
        self,
        hooks: Mapping[str, object],
        tools: Mapping[str, Tool],
        driver: HookedDriver,
        output: OutputChecker,
    ) -> None:
        self._hooks, self._tools, self._driver, self._output = hooks, tools, driver, output

    async def perform(self, effect: RunHook) -> None:
        """Let the hook decide, and record its decision."""
        await self._driver.record(await self._decide(effect))

    async def _decide(self, effect: RunHook) -> HookDecided:
        hook, point = self._hooks.get(effect.hook), effect.point
        call_id = effect.subject if point in ("before_tool", "after_tool") else ""
        if hook is None:
            return HookDecided(hook=effect.hook, point=point, call_id=call_id, reason=HOOK_MISSING)
        if call_id and not self._applies(hook, call_id):
            return HookDecided(hook=effect.hook, point=point, call_id=call_id)
        context = self._driver.contexts.for_step(effect.hook)
        decided = await run_with_deadline(
            effect.timeout_seconds, lambda: self._call(hook, effect, context), context
        )
        if isinstance(decided, ToolFailure):
            why = decided.raised or decided.outcome
            text = f"hook {effect.hook} failed at {point}: {why}; the session log has the message"
            # guard: hook-warning-escaped
            LOG.warning("%s", escape_text(text))
            is_input = point == "before_model"
            return HookDecided(
                hook=effect.hook,
                point=point,
                call_id=call_id,
                action="fail",
                reason=decided.message,
                withheld=list_failed_again(self._driver.state, effect.hook) if is_input else (),
            )
        return decided

    def _applies(self, hook: object, call_id: str) -> bool:
        tools = getattr(hook, "tools", None)
        return tools is None or self._find_call(call_id).name in tools

    async def _call(self, hook: object, effect: RunHook, context: RunContext) -> HookDecided:
        method: Callable[..., object] = getattr(hook, effect.point)
        arguments = (context, *self._list_arguments(effect))
        try:
            if inspect.iscoroutinefunction(method) or getattr(hook, "is_async", False):
                found = method(*arguments)
            else:
                found = await run_in_thread(functools.partial(method, *arguments), "functions")
            decision = await found if inspect.isawaitable(found) else found
        except ModelRetry as retry:
            return self._make_retry(effect, str(retry))
        return self._make_decided(effect, decision)

    def _list_arguments(self, effect: RunHook) -> tuple[object, ...]:
        """Arguments of the hook's method after the context."""
        state = self._driver.state
        match effect.point:
            case "before_model":
                return (
                    ModelInput(
                        step=state.run.budget.spent.steps + 1,
                        model=state.settings.model,
                        messages=state.conversation.view,
                        new_messages=list_new_messages(state, effect.hook),
                        new_texts=list_new_texts(state, effect.hook),
                    ),
                )
            case "after_model":
                held = state.run.evaluation.hooks.unreviewed
                assert held is not None
                return (held.reply,)
            case "before_tool":
                return (self._find_call(effect.subject),)
            case "after_tool":
                item = self._find_pending(effect.subject)
                assert item.hooks.unreviewed is not None
                # guard: hook-sees-run-arguments
                return (item.effective_call, item.hooks.unreviewed.result)
            case "on_end":
                end = state.run.end
                return (FinishedRun(stop=end.stop or "", reason=end.reason, answer=end.answer),)

    def _find_pending(self, call_id: str) -> PendingCall:
        calls = self._driver.state.calls.batch.pending
        place = find_call(calls, call_id)
        assert place is not None, call_id
        return calls[place]

    def _find_call(self, call_id: str) -> ToolCall:
        return self._find_pending(call_id).effective_call

    def _make_retry(self, effect: RunHook, reason: str) -> HookDecided:
        if effect.point != "after_model":
            raise TypeError(
                f"ModelRetry may be raised in after_model, not in {effect.point}; return Refuse(…)"
            )
        return HookDecided(
            hook=effect.hook, point=effect.point, action="retry", reason=repair_surrogates(reason)
        )

    def _make_decided(self, effect: RunHook, decision: object) -> HookDecided:
        """The event for a hook's return value; raises `TypeError` if the point does not accept it."""
        point = effect.point
        call_id = effect.subject if point in ("before_tool", "after_tool") else ""
        decided = HookDecided(hook=effect.hook, point=point, call_id=call_id)
        match decision:
            case None:
                return decided
            case Refuse(reason=reason):
                _check_text(decision, "reason", reason)
                if not reason.strip():
                    raise ValueError("Refuse needs a reason; the model or the caller receives it")
                withheld = self._list_withheld(decided, decision) if point == "before_model" else ()
                return replace(decided, action="refuse", reason=repair_surrogates(reason), withheld=withheld)
            case Answer(text=text):
                _check_text(decision, "text", text)
                return self._check_reply(
                    replace(decided, action="answer", replacement=repair_surrogates(text))
                )
            case Change():
                return self._make_change(decided, decision)
        returned = f"the class {decision.__name__}" if isinstance(decision, type) else type(decision).__name__
        raise TypeError(f"{point} must return None, Change, Refuse or Answer, not {returned}")

    def _make_change(self, decided: HookDecided, change: Change) -> HookDecided:
        accepted = ACCEPTED_FIELDS[decided.point]
        given = [name for name in change.__struct_fields__ if getattr(change, name) not in (None, (), [])]
        wrong = [name for name in given if name not in accepted]
        if wrong or not given:
            raise TypeError(
                f"Change at {decided.point} takes {' or '.join(accepted)}, not {', '.join(wrong) or 'nothing'}"
            )
        _check_change(change)
        arguments = claim = None
        if change.arguments is not None:
            arguments = msgspec.json.encode(change.arguments).decode()
            call = replace(self._find_call(decided.call_id), arguments=arguments)
            claim = find_resource_claim(self._tools, call)
        edits = tuple(change.edits)
        ids = (edit.message for edit in edits)
        if edits and (problem := find_edit_problem(self._driver.state, decided.hook, ids)):
            raise ValueError(problem)
        changed = replace(
            decided,
            action="change",
            replacement=None if change.text is None else repair_surrogates(change.text),
            parts=tuple(change.parts),
            arguments=arguments,
            resource_claim=claim,
            edits=edits,
            head_edits=make_head_edits(self._driver.state, change.head) if change.head else (),
        )
        return self._check_reply(changed)

    def _list_withheld(self, decided: HookDecided, refused: Refuse) -> tuple[str, ...]:
        """Ids of the messages that later prompts are sent without: those named, or all that are new to the hook."""
        state = self._driver.state
        named = tuple(refused.messages)
        if problem := find_edit_problem(state, decided.hook, named):
            raise ValueError(problem)
        return named or tuple(message.id for message in list_new_messages(state, decided.hook))

    def _check_reply(self, decided: HookDecided) -> HookDecided:
        """The decision with the objection of the output type to a changed reply; it must accept a changed answer."""
        state = self._driver.state
        if decided.point == "on_end" and state.settings.output is not None and state.run.end.stop == "done":
            return self._check_answer(decided, state.run.evaluation.output_progress.function)
        if decided.point == "before_tool" and decided.action == "answer" and state.settings.output_functions:
            name = self._find_call(decided.call_id).name
            return self._check_answer(decided, name) if name in state.settings.output_functions else decided
        held = state.run.evaluation.hooks.unreviewed
        if decided.point != "after_model" or held is None:
            return decided
        changed = replace(held.reply, parts=(Text(text=decided.replacement or ""),))
        return replace(decided, output_error=self._output.find_reply_error(state, changed))

    def _check_answer(self, decided: HookDecided, function: str) -> HookDecided:
        if error := self._output.find_error(decided.replacement or "", function):
            raise TypeError(f"its text is an answer that the output type rejects: {error}")
        return decided


def _check_text(decision: Refuse | Answer | Change, field: str, value: object) -> None:
    """Raise `TypeError` for other types, which the log could not decode."""
    if not isinstance(value, str):
        raise TypeError(f"{type(decision).__name__}({field}=…) takes text, not {type(value).__name__}")


def _check_change(change: Change) -> None:
    if change.text is not None:
        _check_text(change, "text", change.text)
    if change.arguments is not None and not isinstance(change.arguments, Mapping):
        raise TypeError(f"Change(arguments=…) takes a dict, not {type(change.arguments).__name__}")
    for field, accepted in (("parts", (Text, Media)), ("edits", (ViewChange,)), ("head", (HeadText,))):
        values = getattr(change, field)
        names = " and ".join(each.__name__ for each in accepted)
        if not isinstance(values, Sequence) or not all(isinstance(each, accepted) for each in values):
            raise TypeError(f"Change({field}=…) takes a list of {names}")
