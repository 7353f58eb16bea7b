"""Replays a log: decides again, record by record, and compares the decisions with the recorded events.

Every event of a log is an input (a prompt, a person's message, a resume, a cancel) or the answer to an effect that
core wanted in the state before it. An input is taken from the log. An answer is made again (answers.py): its facts
come from the log, and all that follows from the effect and the state is derived. The first event that differs, or
that no effect explains, is the divergence.

Decisions that were made from content that a person removed later cannot be made again: one that differs is reported as
not checked, up to the record of the removal. Later requests were made from what is left, and are compared.

With other settings, the same replay finds the first request that these settings would change.
"""

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from bridle.core.calls.catalogue import is_handover_due
from bridle.core.compaction.handover import HANDOVER_NOTE, plan_handover_view
from bridle.core.context.assemble import limit_output
from bridle.core.effects import AskModel, Effect, RecordFinding, RunTool
from bridle.core.json_differences import list_differences
from bridle.core.loop import next_effects
from bridle.core.model_turn import describe_reply
from bridle.core.recovery.log_repair import LogReader
from bridle.core.state import Phase, State
from bridle.values import events as e
from bridle.values.budget import SubrunCharged, SubrunStarted, SubrunWaiting
from bridle.values.calls import redaction_key
from bridle.values.errors import Failure
from bridle.values.lineage import Divergence
from bridle.values.memory import NoteRemoved, NoteWritten
from bridle.values.message import PartRef
from bridle.values.record import GENESIS, Record, seal_record
from bridle.values.request import Request, ToolChoice
from bridle.values.settings import Settings
from bridle.values.usage import Usage

from .answers import FINDINGS, expect_answer, expect_finished

CONCURRENT_EVENTS = (
    e.Steered,
    e.PauseRequested,
    SubrunStarted,
    SubrunCharged,
    e.ToolsChanged,
    e.ServerAsked,
    e.ServerAnswered,
    e.ControlRefused,
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
    e.ContentRedacted,
    e.UnknownEvent,
)
DERIVED_EVENTS = (e.ModelReplied, e.ModelFailed, e.ToolStarted, e.ViewChanged, e.Compacted, *FINDINGS)
"""Events whose derived fields may follow other settings without being another decision."""
DIFFERENCES_MAX = 8


class EncodedCall(NamedTuple):
    """A request as it is sent."""

    digest: str
    losses: tuple[str, ...]
    """Parts of the request that the wire cannot express."""
    unsent_media: tuple[str, ...] = ()
    """Media that the wire cannot carry."""


class WireCheck(Protocol):
    """Encodes requests without sending them; None for a request that cannot be rebuilt here."""

    def encode(self, request: Request) -> EncodedCall | None: ...

    def locate_rejected_parts(self, request: Request, failure: Failure) -> tuple[PartRef, ...] | None: ...


class AskedCall(NamedTuple):
    """A model call of the log."""

    record: Record
    effect: AskModel
    """The call that core wants, with the request as it was sent."""


ChangedSettings = Callable[[e.Configured, State], Settings]
"""Settings to use in place of the recorded ones."""


class LogReplay:
    """Replays one log record by record; `changed` replaces recorded settings."""

    def __init__(
        self, wire: WireCheck, changed: ChangedSettings | None = None, *, accepts_requests: bool = False
    ) -> None:
        """With `accepts_requests`, a changed request is part of the new log and no difference."""
        self._wire, self._changed, self._accepts_requests = wire, changed, accepts_requests
        self._reader = LogReader(grows=False)  # requests are encoded from every state
        self._offered: tuple[Effect, ...] = ()
        """Effects of earlier states that may still be carried out."""
        self._running: dict[str, RunTool] = {}
        """Calls that started, by id."""
        self._noted: set[tuple[str, ToolChoice]] = set()
        """Requests of the driver whose losses on the wire are recorded."""
        self._is_asking = False
        self.asked: AskedCall | None = None
        """The latest model call."""
        self.head = GENESIS
        """Hash of the log that the replay produced; empty if the recorded log is no chain."""
        self.produced: list[Record] = []
        """The log with changed settings, if changed requests are accepted."""
        self._has_unknown = False
        """True after a record of a newer version, until its repair is recorded."""
        self._removals: set[str] = set()
        """Removals of content from earlier records that the log records later, by their unique keys."""
        self.damage: Divergence | None = None
        """First record that does not fit, until its repair is recorded."""
        self.unchecked: list[str] = []
        """Parts that could not be checked, one sentence each."""

    @property
    def state(self) -> State:
        return self._reader.state

    @property
    def follows_removed(self) -> bool:
        """True if the decisions after the latest record were made from content that was removed since."""
        return bool(self._removals)

    def apply_record(self, record: Record) -> Divergence | None:
        """Decide about one record and continue with it; returns the difference if there is one."""
        if record.is_redacted:
            self._removals.add(redaction_key(record.seq, record.data))
        if isinstance(record.event, e.ContentRedacted):
            self._removals.discard(record.event.unique_key or "")
        if self._changed is not None:
            return self._apply_changed(record)
        before, repairs = self.state, len(self._reader.repairs)
        effects, expected = self._decide(record)
        self._reader.apply_record(record)
        self._follow(record.event, effects, before)
        is_repair, is_damaged = isinstance(record.event, e.LogRepaired), len(self._reader.repairs) > repairs
        if self._removals and expected != record.event and not (repairs or is_damaged):
            self._note(describe_unchecked(record.seq))
        elif expected != record.event or is_damaged:
            difference = _describe(record, expected, before)
            if is_repair or not (repairs or is_damaged):
                return difference
            if not self._has_unknown and not isinstance(record.event, e.UnknownEvent):
                self.damage = self.damage or difference
        elif is_repair and self.damage is not None:
            self._note(f"records {self.damage.seq} to {record.seq - 1} are damaged; their repair is recorded")
            self.damage = None
        self._has_unknown = not is_repair and (self._has_unknown or isinstance(record.event, e.UnknownEvent))
        if isinstance(record.event, e.UnknownEvent):
            self._note(f"record {record.seq} is of a kind that this version does not know")
        # An equal event has the recorded bytes, in which a number may be spelled in another way than here.
        self.head = record.hash if record.prev == self.head else ""
        return None

    def _apply_changed(self, record: Record) -> Divergence | None:
        """Decide with other settings, which may cause or prevent findings without changing a request."""
        if not isinstance(record.event, FINDINGS):
            while isinstance(finding := next(iter(next_effects(self.state)), None), RecordFinding):
                self._continue_with(record, finding.event)
        before = self.state
        effects, expected = self._decide(record)
        is_asked = isinstance(record.event, e.ModelAsked) and isinstance(expected, e.ModelAsked)
        if not (is_asked and self._accepts_requests) and not _is_same_decision(record.event, expected):
            if not self._removals:
                return _describe(record, expected, before)
            self._note(describe_unchecked(record.seq))
            expected = record.event
        if expected is not None:
            self._continue_with(record, expected)
            self._follow(expected, effects, before)
        return None

    def _continue_with(self, record: Record, event: e.Event) -> None:
        """Apply an event in place of a recorded one."""
        made = replace(record, event=event)
        if self._accepts_requests:
            made = seal_record(len(self.produced) + 1, record.at, event, self.head)
            self.head = made.hash
            self.produced.append(made)
        self._reader.apply_record(made)

    def _decide(self, record: Record) -> tuple[tuple[Effect, ...], e.Event | None]:
        """The effects that may be in progress, and the event that is due; None if no effect explains one."""
        event = record.event
        if _is_input(event) and not isinstance(event, CONCURRENT_EVENTS):
            return (), self._expect_input(event)
        wanted = next_effects(self.state)
        effects = (*wanted, *(each for each in self._offered if each not in wanted))
        return effects, event if _is_input(event) else self._expect_answer(record, effects)

    def _expect_input(self, event: e.Event) -> e.Event:
        repairs = tuple(self._reader.repairs)
        if isinstance(event, e.LogRepaired) and event.items[: len(repairs)] != repairs:
            return replace(event, items=repairs)
        if isinstance(event, e.Configured) and self._changed is not None:
            return replace(event, settings=self._changed(event, self.state))
        return event

    def _expect_answer(self, record: Record, effects: tuple[Effect, ...]) -> e.Event | None:
        event, state = record.event, self.state
        if self._is_asking and self.asked is not None:
            answer = self._expect_outcome(self.asked, event)
            if answer is not None:
                return answer
        if isinstance(event, e.Compacted) and is_handover_due(state):
            return plan_handover_view(state, None if event.summary == HANDOVER_NOTE else event.summary)
        if isinstance(event, e.RunEnded) and event.stop == "failed" and is_handover_due(state):
            return event  # the user's function that chooses the visible text failed
        found: e.Event | None = None
        running = self._running.get(_call_of(event))
        if running is not None and isinstance(event, e.ToolFinished):
            return expect_finished(running, event)
        for effect in (*effects, *filter(None, (running,))):
            if isinstance(effect, AskModel) and isinstance(event, e.ModelAsked):
                answer = self._expect_asked(record, effect, event)
            else:
                answer = expect_answer(effect, event, state)
            if answer == event:
                return answer
            found = found or answer
        return found

    def _expect_asked(self, record: Record, effect: AskModel, event: e.ModelAsked) -> e.ModelAsked:
        request, settings = effect.request, self.state.settings
        if event.reservation is not None and event.max_tokens is not None:
            room = event.max_tokens
            request = request if (request.max_tokens or room + 1) <= room else limit_output(request, room)
        encoded, key, notes = self._wire.encode(request), request.model.model_key, effect.notes
        if encoded is None:
            self._note(f"the request of record {record.seq} cannot be rebuilt here")
            notes = event.notes
        else:
            known = self.state.run.adjustments.recorded_notes
            losses = encoded.losses if (key, request.tool_choice) not in self._noted else ()
            notes = (*notes, *(note for note in (*losses, *encoded.unsent_media) if note not in known))
        is_rated = event.wait_source == "rate-limit"
        self.asked = AskedCall(record, replace(effect, request=request))
        return e.ModelAsked(
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
            model_key="" if key == settings.model.model_key else key,
            asks_native_summary=request.asks_native_summary,
        )

    def _expect_outcome(self, asked: AskedCall, event: e.Event) -> e.Event | None:
        """The outcome of the request in progress, with its facts taken from the event."""
        request, aside = asked.effect.request, asked.effect.summarizes_until
        match event:
            case e.ModelReplied(reply=reply):
                derived = describe_reply(self.state, request, reply, aside)
                return replace(
                    event,
                    reply=derived.reply,
                    usd=_cost(asked, reply.usage),
                    output_error="" if aside else event.output_error,
                    resource_claims=() if aside else event.resource_claims,
                    truncation_hint=derived.truncation_hint,
                    usage_doubt=derived.usage_doubt,
                    summarizes_until=aside,
                )
            case e.ModelFailed(failure=failure):
                located = self._wire.locate_rejected_parts(request, failure)
                parts = event.rejected_parts if located is None else located
                return replace(event, rejected_parts=parts, usd=_cost(asked, event.usage))
            case e.HookDecided(point="after_model", action="refuse") if not aside:
                return event  # a text filter blocked the reply
        return None

    def _follow(self, event: e.Event, effects: tuple[Effect, ...], before: State) -> None:
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
                started = (each for each in effects if isinstance(each, RunTool) and each.call.id == call_id)
                self._running.update((call_id, effect) for effect in started)
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

    def _note(self, sentence: str) -> None:
        if sentence not in self.unchecked:
            self.unchecked.append(sentence)


def _call_of(event: e.Event) -> str:
    """Id of the call whose run an event ends; empty for other events."""
    return event.call_id if isinstance(event, e.ToolFinished | e.ToolInterrupted | SubrunWaiting) else ""


def _is_input(event: e.Event) -> bool:
    """True for an event that core does not cause; a run is cancelled by its caller or by a new driver only."""
    match event:
        case e.RunEnded(stop="cancelled") | e.ToolFinished(source="caller"):
            return True
    return isinstance(event, INPUT_EVENTS)


def _is_same_decision(recorded: e.Event, expected: e.Event | None) -> bool:
    """True if other settings lead to the same decision here, perhaps worded in another way."""
    if expected == recorded or _is_input(recorded) or (expected is None and isinstance(recorded, FINDINGS)):
        return True
    if isinstance(recorded, e.ModelAsked) and isinstance(expected, e.ModelAsked):
        return expected.digest == recorded.digest
    return type(expected) is type(recorded) and isinstance(recorded, DERIVED_EVENTS)


def _describe(record: Record, expected: e.Event | None, before: State) -> Divergence:
    event = record.event
    differences = list_event_differences(event, expected) if expected is not None else ()
    return Divergence(
        seq=record.seq,
        event=name_event(event),
        effects=tuple(effect.name for effect in next_effects(before)),
        differences=tuple(differences)[:DIFFERENCES_MAX],
        is_request=isinstance(event, e.ModelAsked) and isinstance(expected, e.ModelAsked),
    )


def _cost(asked: AskedCall, usage: Usage | None) -> Decimal | None:
    price = asked.effect.request.model.price
    return price.cost(usage, asked.record.at) if price and usage and usage.is_known else None


def describe_unchecked(seq: int) -> str:
    """The sentence about a record that was made from content that was removed since."""
    return f"record {seq} follows removed content and is not checked"


def name_event(event: e.Event) -> str:
    """Tag of the event in the log."""
    return str(type(event).__struct_config__.tag)


def list_event_differences(recorded: e.Event, expected: e.Event) -> Iterator[str]:
    """Fields in which the event of a replay differs from the recorded one."""
    if type(recorded) is not type(expected):
        yield f"the event is {name_event(expected)}"
        return
    one, other = (msgspec.to_builtins(each, str_keys=True) for each in (recorded, expected))
    yield from (line.removeprefix(".") for line in list_differences(one, other, at=""))
