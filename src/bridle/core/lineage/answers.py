"""Which events answer which effect, and the part of each event that follows from the effect and the state.

The rest of an event are facts that only the outside knows: a reply, a result, a decision of the user's code, a time.
"""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from bridle.core.calls.dispatch import skip_expired
from bridle.core.effects import (
    AskModel,
    AwaitApprovals,
    ChangeView,
    CheckOutput,
    ChooseOptions,
    Compact,
    DropConversation,
    DropPrompt,
    Effect,
    EndRun,
    FindTools,
    LoadMemory,
    OpenConversation,
    ProbeTool,
    RecordFinding,
    Reprompt,
    RequestApproval,
    RetrieveContext,
    RevealTools,
    RunHook,
    RunTool,
    SkipCall,
    StorePrompt,
    SwitchModel,
    TakeSteering,
    WriteInstruction,
    event_for_effect,
    make_approval_question,
)
from bridle.core.state import State
from bridle.values import events as e
from bridle.values.budget import SubrunWaiting
from bridle.values.cache import PromptDropped, PromptStored
from bridle.values.memory import ContextRetrieved, InstructionWritten, MemoryLoaded
from bridle.values.message import ToolCall

FINDINGS = (e.PrefixMoved, e.RequestAdjusted, e.CacheDegraded)


def expect_answer(effect: Effect, event: e.Event, state: State) -> e.Event | None:
    """The event that answers this effect, with its facts taken from `event`; None for another kind of event."""
    derive = ANSWERS.get((type(effect), type(event)))
    if derive is None:
        return None
    derived: Mapping[str, object] | e.Event | None = derive(effect, event, state)
    if derived is None or not isinstance(derived, Mapping):
        return derived
    return replace(event, **derived)


def _call_fields(call: ToolCall, event: Any) -> dict[str, object] | None:
    """Name and arguments of the call that an event is about; None if it is about another call."""
    return {"name": call.name, "arguments": call.arguments} if event.call_id == call.id else None


def _tool_started(effect: RunTool, event: e.ToolStarted, state: State) -> dict[str, object] | None:
    fields = _call_fields(effect.call, event)
    return fields and {**fields, "key": effect.key, "attempt": effect.attempt, "rule": effect.rule}


def expect_finished(effect: RunTool, event: e.ToolFinished) -> e.ToolFinished:
    """The receipt of a call that ran, with its result taken from `event`."""
    call = effect.call
    return replace(event, name=call.name, arguments=call.arguments, source="run", rule="", same_as_call="")


def _call_refused(effect: RunTool, event: e.ToolFinished, state: State) -> dict[str, object] | None:
    """The result of a call that a shared budget or a rate refused before it started."""
    fields = _call_fields(effect.call, event)
    is_refused = event.result.outcome == "cancelled" and bool(event.rule)
    return {**fields, "source": "run"} if fields and is_refused else None


def _call_skipped(effect: SkipCall, event: e.ToolFinished, state: State) -> dict[str, object] | None:
    fields = _call_fields(effect.call, event)
    if fields is None:
        return None
    if effect.receipt is not None:
        return {**fields, "source": "receipt", "same_as_call": effect.receipt.result.call_id}
    result = replace(event.result, outcome=effect.outcome)
    if event.stored_result is None and event.output is None and event.result.parts:
        first = replace(event.result.parts[0], text=effect.why)
        result = replace(result, parts=(first, *event.result.parts[1:]))
    return {**fields, "result": result, "rule": effect.rule, "source": effect.source}


def _approval_expired(
    effect: AwaitApprovals, event: e.ToolFinished, state: State
) -> dict[str, object] | None:
    for item in effect.calls:
        if item.call.id == event.call_id:
            return _call_skipped(skip_expired(item), event, state)
    return None


def _run_waits(effect: AwaitApprovals, event: e.RunEnded, state: State) -> dict[str, object] | None:
    return {"stop": "waiting"} if event.stop == "waiting" else None


def _run_ended(effect: EndRun, event: e.RunEnded, state: State) -> dict[str, object]:
    return {"stop": effect.stop, "reason": effect.reason, "partial_text": state.run.attempt.partial_text}


def _not_sent(effect: AskModel, event: e.RunEnded, state: State) -> dict[str, object] | None:
    """A run that ends because its shared budget or its rates leave no room for the request."""
    is_limit = event.stop in ("budget", "seconds")
    return {"partial_text": state.run.attempt.partial_text} if is_limit else None


def _not_expressible(effect: AskModel, event: e.RequestAdjusted, state: State) -> dict[str, object] | None:
    """A request that its wire cannot express in full, where no adjustment is accepted."""
    return {} if state.settings.on_adjusted == "error" and not effect.summarizes_until else None


def _breaker_open(effect: AskModel, event: e.ModelFailed, state: State) -> dict[str, object]:
    return {"partial_text": "", "usage": None, "latency": None}


def _hook_decided(effect: RunHook, event: e.HookDecided, state: State) -> dict[str, object] | None:
    call_id = effect.subject if effect.point in ("before_tool", "after_tool") else ""
    is_due = (effect.hook, effect.point, call_id) == (event.hook, event.point, event.call_id)
    return {} if is_due else None


def _tools_revealed(effect: RevealTools, event: e.ToolsRevealed, state: State) -> dict[str, object]:
    return {
        "names": effect.names, "why": effect.why, "initial": effect.initial, "tokens": effect.tokens,
        "uncached_tokens": effect.uncached_tokens,
    }  # fmt: skip


def _approval_asked(effect: RequestApproval, event: e.ApprovalAsked, state: State) -> e.Event | None:
    return make_approval_question(effect, event.preview) if event.call_id == effect.call.id else None


def _keep_recorded(effect: Any, event: e.Event, state: State) -> e.Event | None:
    """The event of an effect that consists of recording it."""
    made = event_for_effect(effect)
    return made if type(made) is type(event) else None


def _take_facts(effect: Effect, event: e.Event, state: State) -> dict[str, object]:
    return {}


ANSWERS: dict[tuple[type, type], Callable[[Any, Any, State], Any]] = {
    (RunTool, e.ToolStarted): _tool_started,
    (RunTool, e.ToolFinished): _call_refused,
    (RunTool, e.ToolInterrupted): lambda effect, event, _: _call_fields(effect.call, event),
    (RunTool, SubrunWaiting): lambda effect, event, _: {} if event.call_id == effect.call.id else None,
    (ProbeTool, e.ToolProbed): lambda effect, event, _: _call_fields(effect.call, event),
    (ProbeTool, e.ToolFinished): lambda effect, event, _: _call_fields(effect.call, event),
    (SkipCall, e.ToolFinished): _call_skipped,
    (RequestApproval, e.ApprovalAsked): _approval_asked,
    (AwaitApprovals, e.ToolFinished): _approval_expired,
    (AwaitApprovals, e.RunEnded): _run_waits,
    (AskModel, e.ModelFailed): _breaker_open,
    (AskModel, e.RunEnded): _not_sent,
    (AskModel, e.RequestAdjusted): _not_expressible,
    (RunHook, e.HookDecided): _hook_decided,
    (RevealTools, e.ToolsRevealed): _tools_revealed,
    (FindTools, e.ToolsRevealed): lambda effect, event, _: {"initial": True},
    (LoadMemory, MemoryLoaded): lambda effect, event, _: {
        "tenant": effect.tenant,
        "caller": effect.caller,
        "why": effect.why,
    },
    (RetrieveContext, ContextRetrieved): _take_facts,
    (WriteInstruction, InstructionWritten): lambda effect, event, _: {
        "name": effect.function.name,
        "scope": effect.function.scope,
        "owner": effect.owner,
    },
    (StorePrompt, PromptStored): lambda effect, event, _: {"prompt_head": effect.prompt_head},
    (StorePrompt, PromptDropped): lambda effect, event, _: {"prompt_head": effect.prompt_head},
    (DropPrompt, PromptDropped): lambda effect, event, _: {"name": effect.stored.name},
    (OpenConversation, e.ConversationOpened): lambda effect, event, _: {"model_key": effect.model_key},
    (OpenConversation, e.ConversationDropped): lambda effect, event, _: {"model_key": effect.model_key},
    (ChooseOptions, e.OptionsChosen): lambda effect, event, _: {
        "options": replace(event.options, step=effect.step)
    },
    (CheckOutput, e.OutputChecked): lambda effect, event, _: {
        "validator": effect.validator,
        "answer_id": effect.answer_id,
    },
    (EndRun, e.RunEnded): _run_ended,
    **{
        (kind, event): _keep_recorded
        for kind, events in (
            (Reprompt, (e.Reprompted,)),
            (ChangeView, (e.ViewChanged,)),
            (SwitchModel, (e.ModelSwitched,)),
            (DropConversation, (e.ConversationDropped,)),
            (TakeSteering, (e.SteeringTaken,)),
            (Compact, (e.Compacted,)),
            (RecordFinding, FINDINGS),
        )
        for event in events
    },
}
"""Events that answer each effect, and the fields of each that follow from the effect and the state."""
