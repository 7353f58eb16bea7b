"""Replays a log: decides again, record by record, and compares the decisions with the recorded events.

Every event of a log is an input (a prompt, a person's message, a resume, a cancel) or the answer to an effect that
core wanted in the state before it. An input is taken from the log. An answer is made again: the facts in it (a reply,
a tool's result, a hook's decision, a random draw, a time) come from the log, and all that follows from the effect and
the state is derived. The first event that differs, or that no effect explains, is the divergence.

With other settings, the same replay finds the first request that these settings would change.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from bridle.core.calls.catalogue import is_handover_due
from bridle.core.calls.dispatch import skip_expired
from bridle.core.compaction.handover import HANDOVER_NOTE, plan_handover_view
from bridle.core.context.assemble import limit_output
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
from bridle.core.json_differences import list_differences
from bridle.core.loop import next_effects
from bridle.core.model_turn import describe_reply
from bridle.core.recovery.log_repair import LogReader
from bridle.core.state import Phase, State
from bridle.values import events as e
from bridle.values.budget import SubrunCharged, SubrunStarted, SubrunWaiting
from bridle.values.cache import PromptDropped, PromptStored
from bridle.values.errors import Failure
from bridle.values.lineage import Divergence
from bridle.values.memory import (
    ContextRetrieved,
    InstructionWritten,
    MemoryLoaded,
    NoteRemoved,
    NoteWritten,
)
from bridle.values.message import PartRef, ToolCall
from bridle.values.record import GENESIS, Record, seal_record
from bridle.values.request import Request, ToolChoice
from bridle.values.settings import Settings
from bridle.values.usage import Usage

CONCURRENT_EVENTS = (
    e.Steered,
    e.PauseRequested,
    SubrunStarted,
    SubrunCharged,
    e.ToolsChanged,
    NoteWritten,
    NoteRemoved,
)
"""Events that arrive while an effect is carried out; its answer follows them."""
START_EVENTS = (e.Configured, e.Prompted, e.Imported, e.Resumed, e.Forked, e.LogRepaired)
"""Events that a new driver records; nothing that an earlier one had in progress follows them."""
INPUT_EVENTS = (
    *START_EVENTS,
    *CONCURRENT_EVENTS,
    e.ApprovalAnswered,
    e.CallReviewed,
    e.CompensationStarted,
    e.CompensationFinished,
    e.UnknownEvent,
)
FINDINGS = (e.PrefixMoved, e.RequestAdjusted, e.CacheDegraded)
DERIVED_EVENTS = (e.ModelReplied, e.ModelFailed, e.ToolStarted, e.ViewChanged, e.Compacted, *FINDINGS)
"""Events whose derived fields may follow other settings without being another decision."""
DIFFERENCES_MAX = 8


class EncodedCall(NamedTuple):
    """A request as it is sent."""

    digest: str
    losses: tuple[str, ...]
    """Parts of the request that the wire cannot express."""


class WireCheck(Protocol):
    """Encodes requests without sending them; None for a request that cannot be rebuilt here."""

    def encode(self, request: Request) -> EncodedCall | None: ...

    def locate_rejected_parts(self, request: Request, failure: Failure) -> tuple[PartRef, ...] | None: ...


class AskedCall(NamedTuple):
    """A request in progress."""

    seq: int
    at: float
    effect: AskModel
    """With the request as it was sent."""


ChangedSettings = Callable[[e.Configured, State], Settings]
"""Settings to use in place of the recorded ones."""


class LogReplay:
    """Replays one log record by record; `changed` replaces recorded settings."""

    def __init__(self, wire: WireCheck, changed: ChangedSettings | None = None) -> None:
        self._wire, self._changed = wire, changed
        self._reader = LogReader()
        self._offered: tuple[Effect, ...] = ()
        """Effects of earlier states that may still be carried out."""
        self._running: dict[str, Effect] = {}
        """Calls that started, by id."""
        self._noted: set[tuple[str, ToolChoice]] = set()
        self.asked: AskedCall | None = None
        """The latest request, until a new driver takes over."""
        self._is_asking = False
        self.head = GENESIS
        """Hash of the log that the replay produced."""
        self.unchecked: list[str] = []
        """What could not be checked, one sentence each."""

    @property
    def state(self) -> State:
        return self._reader.state

    def apply_record(self, record: Record) -> Divergence | None:
        """Decide about one record and continue with it; returns the difference if there is one."""
        event, before = record.event, self._reader.state
        is_input = isinstance(event, INPUT_EVENTS) or _is_cancel(event)
        effects = () if is_input and not isinstance(event, CONCURRENT_EVENTS) else self._list_effects(record)
        expected = self._expect_input(event) if is_input else self._expect_answer(record, effects)
        difference = self._compare(record, expected, effects)
        damaged = bool(self._reader.repairs)
        if self._changed is not None and difference is None and not is_input:
            if expected is None:
                return None  # a finding that these settings do not cause
            event = expected
        elif self._changed is not None and expected is not None:
            event = expected
        if difference is not None and self._changed is not None:
            return difference
        self._reader.apply_record(replace(record, event=event))
        if difference is not None and not damaged and not self._reader.repairs:
            return difference
        if damaged and difference is not None:
            self._note(f"record {record.seq} follows a damaged or unknown record and was not checked")
        self._follow(record, event, effects, before)
        self._extend_head(record, event)
        return None

    def _list_effects(self, record: Record) -> tuple[Effect, ...]:
        """Effects that core wants now, then earlier ones that may still be carried out."""
        found = next_effects(self.state)
        while (
            self._changed is not None
            and len(found) == 1
            and isinstance(found[0], RecordFinding)
            and not isinstance(record.event, FINDINGS)
        ):
            # Other settings may cause findings that the log does not have.
            finding = replace(record, event=found[0].event)
            self._reader.apply_record(finding)
            found = next_effects(self.state)
        return (*found, *(each for each in self._offered if each not in found))

    def _expect_input(self, event: e.Event) -> e.Event | None:
        repairs = tuple(self._reader.repairs)
        if isinstance(event, e.LogRepaired) and event.items[: len(repairs)] != repairs:
            return replace(event, items=repairs)
        if isinstance(event, e.Configured) and self._changed is not None:
            return replace(event, settings=self._changed(event, self.state))
        return event

    def _expect_answer(self, record: Record, effects: tuple[Effect, ...]) -> e.Event | None:
        """The event that core and the recorded facts give; None if no effect explains it."""
        event, state = record.event, self.state
        if self._is_asking and self.asked is not None:
            answer = self._answer_request(self.asked, event)
            if answer is not None:
                return answer
        found: e.Event | None = None
        for effect in (*effects, *self._list_running(event)):
            if isinstance(effect, AskModel) and isinstance(event, e.ModelAsked):
                answer = self._expect_asked(record, effect, event)
            else:
                answer = expect_answer(effect, event, state)
            if answer == event:
                return answer
            found = found or answer
        if found is None and isinstance(event, e.Compacted) and is_handover_due(state):
            return plan_handover_view(state, None if event.summary == HANDOVER_NOTE else event.summary)
        return found

    def _list_running(self, event: e.Event) -> tuple[Effect, ...]:
        if not isinstance(event, e.ToolFinished | e.ToolInterrupted | SubrunWaiting):
            return ()
        effect = self._running.get(event.call_id)
        return () if effect is None else (effect,)

    def _expect_asked(self, record: Record, effect: AskModel, event: e.ModelAsked) -> e.ModelAsked:
        request, state = effect.request, self.state
        if event.reservation is not None and event.max_tokens is not None:
            room = event.max_tokens
            request = request if (request.max_tokens or room + 1) <= room else limit_output(request, room)
        encoded = self._wire.encode(request)
        key = request.model.model_key
        notes = effect.notes
        if encoded is None:
            self._note(f"the request of record {record.seq} cannot be rebuilt here")
            notes = event.notes
        elif (key, request.tool_choice) not in self._noted:
            known = state.run.adjustments.recorded_notes
            notes = (*notes, *(note for note in encoded.losses if note not in known))
        is_rated = event.wait_source == "rate-limit"
        expected = e.ModelAsked(
            step=effect.step,
            attempt=effect.attempt,
            digest=event.digest if encoded is None else encoded.digest,
            tool_choice=request.tool_choice,
            max_tokens=request.max_tokens,
            notes=notes,
            after_failure=effect.after_failure,
            wait_seconds=event.wait_seconds if is_rated else effect.wait_seconds,
            wait_source=event.wait_source if is_rated else effect.wait_source,
            reservation=event.reservation,
            breakpoints=request.breakpoints,
            stored_prompt=request.stored_prompt,
            conversation=request.conversation,
            summarizes_until=effect.summarizes_until,
            model_key="" if key == state.settings.model.model_key else key,
            asks_native_summary=request.asks_native_summary,
        )
        self.asked = AskedCall(record.seq, record.at, replace(effect, request=request))
        return expected

    def _answer_request(self, asked: AskedCall, event: e.Event) -> e.Event | None:
        """The outcome of the request in progress, with its facts taken from the event."""
        request, aside = asked.effect.request, asked.effect.summarizes_until
        match event:
            case e.ModelReplied(reply=reply):
                derived = describe_reply(self.state, request, reply, aside)
                return replace(
                    derived,
                    usd=_cost(asked, reply.usage),
                    output_error="" if aside else event.output_error,
                    resource_claims=() if aside else event.resource_claims,
                    latency=event.latency,
                   
                )
            case e.ModelFailed(failure=failure):
                located = self._wire.locate_rejected_parts(request, failure)
                parts = event.rejected_parts if located is None else located
                return replace(event, rejected_parts=parts, usd=_cost(asked, event.usage))
            case e.HookDecided(point="after_model", action="refuse") if not aside:
                return event  # a text filter blocked the reply
        return None

    def _compare(
        self, record: Record, expected: e.Event | None, effects: tuple[Effect, ...]
    ) -> Divergence | None:
        event = record.event
        if expected == event or (self._changed is not None and self._is_tolerated(event, expected)):
            return None
        differences = tuple(list_event_differences(event, expected)) if expected is not None else ()
        return Divergence(
            seq=record.seq,
            event=name_event(event),
            effects=tuple(each.name for each in effects[: len(effects) - len(self._offered) or None]),
            differences=differences[:DIFFERENCES_MAX],
            is_request=isinstance(event, e.ModelAsked) and isinstance(expected, e.ModelAsked),
        )

    def _is_tolerated(self, event: e.Event, expected: e.Event | None) -> bool:
        """True if other settings lead to the same decision here, worded in another way."""
        if isinstance(event, INPUT_EVENTS) or _is_cancel(event) or (expected is None and isinstance(event, FINDINGS)):
            return True
        if isinstance(event, e.ModelAsked) and isinstance(expected, e.ModelAsked):
            return expected.digest == event.digest
        return type(expected) is type(event) and isinstance(event, DERIVED_EVENTS)

    def _follow(self, record: Record, event: e.Event, effects: tuple[Effect, ...], before: State) -> None:
        """Note what is in progress after this event."""
        match event:
            case e.ModelAsked():
                self._is_asking = True
                if self.asked is not None:
                    request = self.asked.effect.request
                    self._noted.add((request.model.model_key, request.tool_choice))
            case e.ModelReplied() | e.ModelFailed() | e.RunEnded() | e.HookDecided(point="after_model"):
                self._is_asking = False
            case e.ToolStarted(call_id=call_id):
                for effect in effects:
                    if isinstance(effect, RunTool) and effect.call.id == call_id:
                        self._running[call_id] = effect
                        break
            case e.ToolFinished() | e.ToolInterrupted() | SubrunWaiting():
                self._running.pop(event.call_id, None)
        if isinstance(event, START_EVENTS):
            self._offered, self._is_asking = (), False
            self._running.clear()
            if not isinstance(event, e.Configured) or event.handed_over_to:
                self._noted.clear()
        elif isinstance(event, CONCURRENT_EVENTS) or before.phase is Phase.RUNNING_TOOLS:
            self._offered = effects
        else:
            self._offered = ()

    def _extend_head(self, record: Record, event: e.Event) -> None:
        if isinstance(event, e.UnknownEvent):
            self.head = record.hash  # its bytes are all that is known of it
            return
        self.head = seal_record(record.seq, record.at, event, self.head).hash

    def _note(self, sentence: str) -> None:
        if sentence not in self.unchecked:
            self.unchecked.append(sentence)


def _is_cancel(event: e.Event) -> bool:
    """True for a run that the caller or a new driver ended; core never does."""
    return isinstance(event, e.RunEnded) and event.stop == "cancelled"


def _cost(asked: AskedCall, usage: Usage | None) -> Any:
    price = asked.effect.request.model.price
    return price.cost(usage, asked.at) if price and usage and usage.is_known else None


def _raw_fields(event: e.ModelReplied) -> Mapping[str, Any]:
    return {"raw": event.raw}


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


def _tool_finished(effect: RunTool, event: e.ToolFinished, state: State) -> dict[str, object] | None:
    fields = _call_fields(effect.call, event)
    return fields and {**fields, "source": "run", "same_as_call": ""}


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


def _approval_expired(effect: AwaitApprovals, event: e.ToolFinished, state: State) -> dict[str, object] | None:
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


def _recorded(effect: Any, event: e.Event, state: State) -> e.Event | None:
    """The event of an effect that consists of recording it."""
    made = event_for_effect(effect)
    return made if type(made) is type(event) else None


def _take_facts(effect: Effect, event: e.Event, state: State) -> dict[str, object]:
    return {}


ANSWERS: dict[tuple[type, type], Callable[[Any, Any, State], Any]] = {
    (RunTool, e.ToolStarted): _tool_started,
    (RunTool, e.ToolFinished): _tool_finished,
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
    (RunHook, e.HookDecided): _hook_decided,
    (RevealTools, e.ToolsRevealed): _tools_revealed,
    (FindTools, e.ToolsRevealed): lambda effect, event, _: {"initial": True},
    (LoadMemory, MemoryLoaded): lambda effect, event, _: {"tenant": effect.tenant, "why": effect.why},
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
        (kind, event): _recorded
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


def name_event(event: e.Event) -> str:
    """Tag of the event in the log."""
    return str(type(event).__struct_config__.tag)


def list_event_differences(recorded: e.Event, expected: e.Event) -> Iterator[str]:
    """Fields in which the event of a replay differs from the recorded one."""
    if type(recorded) is not type(expected):
        yield f"the event is {name_event(expected)}"
        return
    yield from list_differences(
        *(msgspec.to_builtins(each, str_keys=True) for each in (recorded, expected)), at=""
    )
