"""Read a log that nobody promised to be whole: what can be understood counts, and the rest is named.

A log is written by one driver under one set of rules, and then folding it never meets a surprise.
But logs live long: a newer version writes kinds of events we do not know, a tool for editing removes a
line, an older bug wrote a result twice.  None of that may make a session unusable.

    fold(records)    the state they add up to, and one sentence for each thing that was put right

Rule 1: the records stay as they are; only their reading is mended, by these rules, every time alike.
Rule 2: a whole log is read exactly as it was written, and nothing is said about it.
Rule 3: what does not fit is bridged where it is plain what is missing (`BRIDGES`), else passed over.
Rule 4: what was named once in a `Repaired` is not named again.

Whether records are those that were written is not asked here: that is proved by their hashes.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from msgspec.structs import replace

from bridle.core.calls.dispatch import CALL_IN_DOUBT
from bridle.core.calls.pending import PendingCall, find_call
from bridle.core.calls.transitions import CALL_NOT_STARTED
from bridle.core.loop import TRANSITIONS, apply_event
from bridle.core.state import Phase, State
from bridle.values import events as e
from bridle.values.errors import MisuseError
from bridle.values.message import Part, Text, ToolCall, ToolResult
from bridle.values.record import Record
from bridle.values.settings import Settings

Bridge = Literal["begin", "end", "fill", "go on", "ask"]
CallEvent = (
    e.ToolStarted | e.ToolProbed | e.ToolFinished | e.ApprovalAsked | e.ApprovalAnswered | e.CallReviewed
)

MODEL_EVENTS = (
    e.ModelAsked,
    e.ModelReplied,
    e.ModelFailed,
    e.ModelSwitched,
    e.Reprompted,
    e.ViewChanged,
    e.Compacted,
)
RUN_STARTING_EVENTS = (e.Prompted, e.Imported, e.CompensationStarted, e.CompensationFinished)
BRIDGES: dict[tuple[Phase, type], Bridge] = {
    **{(Phase.NEW, kind): "begin" for kind in (*RUN_STARTING_EVENTS, *MODEL_EVENTS, e.Resumed)},
    **{
        (phase, kind): "end"
        for phase in (
            Phase.CALLING_MODEL,
            Phase.EVALUATING_REPLY,
            Phase.RUNNING_TOOLS,
            Phase.AWAITING_APPROVAL,
        )
        for kind in RUN_STARTING_EVENTS
    },
    **{
        (phase, kind): "fill"
        for phase in (Phase.RUNNING_TOOLS, Phase.AWAITING_APPROVAL)
        for kind in MODEL_EVENTS
    },
    **{(Phase.IDLE, kind): "go on" for kind in MODEL_EVENTS},
    (Phase.EVALUATING_REPLY, e.ModelReplied): "ask",
}
"""What must have happened before an event that has no place where it stands."""
BRIDGE_NOTES: dict[Bridge, str] = {
    "begin": "the settings before record {seq} are missing; it goes on with none",
    "end": "the run before record {seq} has no end; it counts as cancelled{calls}",
    "fill": "results before record {seq} are missing{calls}",
    "go on": "what began the run before record {seq} is missing",
    "ask": "the question that record {seq} answers is missing",
}
CALL_ID_PATTERN = re.compile(r"\bc(\d{1,9})_\d")
"""The number of the reply that a call's id is made of."""
BRIDGE_ROUNDS = range(2)
"""A beginning, and then what the beginning was for."""
RUN_WITHOUT_END = "the log has no end of this run"


class FoldedLog(NamedTuple):
    state: State
    repairs: tuple[str, ...]
    """What was put right since that was written down last, one sentence each."""


def fold_log(records: Iterable[Record]) -> FoldedLog:
    reading = LogReader()
    for record in records:
        reading.apply_record(record)
    reading.continue_numbering()
    return FoldedLog(reading.state, tuple(reading.repairs))


def iterate_states(records: Iterable[Record]) -> Iterator[tuple[Record, State]]:
    """Each record and what everything up to it adds up to."""
    reading = LogReader()
    for record in records:
        reading.apply_record(record)
        yield record, reading.state


class LogReader:
    """A log as it is read, record by record."""

    def __init__(self) -> None:
        self.state = State()
        self.repairs: list[str] = []
        self._call_ids: set[str] = set()
        self._aliases: dict[str, list[str]] = {}
        """Ids of the calls that are open now, by the id the log calls them by."""
        self._reply_number = 0

    def apply_record(self, record: Record) -> None:
        event: e.Event | None = record.event
        if isinstance(event, e.LogRepaired):
            self.repairs.clear()
            self.continue_numbering()
        elif isinstance(event, e.UnknownEvent):
            for turn in CALL_ID_PATTERN.findall(record.data.decode("utf-8", "replace")):
                self._reply_number = max(self._reply_number, int(turn))
            self._add_repair(
                f"record {record.seq} ({event.kind or 'of no kind'}) cannot be read by this version;"
                " it is kept and passed over"
            )
        elif isinstance(event, e.ModelReplied):
            event = self._rename_calls(record.seq, event)
        elif isinstance(event, CallEvent):
            event = self._resolve_call(record.seq, event)
        if event is not None:
            self._bridge_and_apply(record, event)

    def copy(self) -> "LogReader":
        """The same reading, to go on with apart from this one."""
        other = LogReader()
        other.state, other.repairs, other._reply_number = self.state, list(self.repairs), self._reply_number
        other._call_ids = set(self._call_ids)
        other._aliases = {name: list(own) for name, own in self._aliases.items()}
        return other

    def continue_numbering(self) -> None:
        """Go on numbering behind every number that was ever given, also in what was passed over: stores
        keep a receipt once, and a call by a number that is taken could never be answered."""
        if self._reply_number > self.state.reply_count:
            self.state = replace(self.state, reply_count=self._reply_number)

    def _note_reply_number(self, call_id: str) -> None:
        found = CALL_ID_PATTERN.match(call_id)
        if found is not None:
            self._reply_number = max(self._reply_number, int(found[1]))

    def _bridge_and_apply(self, record: Record, event: e.Event) -> None:
        try:
            for _ in BRIDGE_ROUNDS:
                bridge = BRIDGES.get((self.state.phase, type(event)))
                if bridge is None or (self.state.phase, type(event)) in TRANSITIONS:
                    break
                calls = [item.call.id for item in self.state.pending_calls if item.result is None]
                self.state = _apply_bridge(self.state, bridge, record.at)
                told = f"; no result of {', '.join(calls)} is known" if calls else ""
                self._add_repair(BRIDGE_NOTES[bridge].format(seq=record.seq, calls=told))
            self.state = apply_event(self.state, event, record.at, record.hash)
        except (MisuseError, LookupError) as error:
            self._add_repair(
                f"record {record.seq} ({_event_tag(event)}) makes no sense there and is passed over: {error}"
            )

    def _rename_calls(self, seq: int, event: e.ModelReplied) -> e.ModelReplied:
        """The reply with ids that no call before has, and none of its own twice."""
        self._aliases = {}
        if not event.reply.calls:
            return event
        parts: list[Part] = []
        for part in event.reply.parts:
            if not isinstance(part, ToolCall):
                parts.append(part)
                continue
            self._note_reply_number(part.id)
            own = _make_unused_id(part.id, self._call_ids)
            self._call_ids.add(own)
            self._aliases.setdefault(part.id, []).append(own)
            if own != part.id:
                self._aliases.setdefault(own, []).append(own)
                self._add_repair(f"record {seq} uses the id {part.id} again; that call is {own} from here on")
            parts.append(replace(part, id=own))
        return replace(event, reply=replace(event.reply, parts=tuple(parts)))

    def _resolve_call(self, seq: int, event: CallEvent) -> e.Event | None:
        """The event about the very call it means; None when it is about none, or too late."""
        named = event.result.call_id if isinstance(event, e.ToolFinished) else event.call_id
        self._note_reply_number(named)
        if self.state.phase not in (Phase.RUNNING_TOOLS, Phase.AWAITING_APPROVAL):
            return event
        places = (find_call(self.state.pending_calls, own) for own in self._aliases.get(named, ()))
        meant = [self.state.pending_calls[place] for place in sorted({at for at in places if at is not None})]
        if not meant:
            self._add_repair(
                f"record {seq} ({_event_tag(event)}) is about {named}, which nobody called; it is passed over"
            )
            return None
        unanswered = [item for item in meant if item.result is None]
        if not unanswered:
            self._add_repair(
                f"record {seq} ({_event_tag(event)}) comes after the result of {named}; the first one counts"
            )
            return None
        own = _choose_call(event, unanswered).call.id
        if own == named:
            return event
        if isinstance(event, e.ToolFinished):
            return replace(event, result=replace(event.result, call_id=own))
        return replace(event, call_id=own)

    def _add_repair(self, words: str) -> None:
        self.repairs.append(words)


def _apply_bridge(state: State, bridge: Bridge, at: float) -> State:
    match bridge:
        case "begin":
            return apply_event(state, e.Configured(settings=Settings()), at)
        case "end":
            return apply_event(state, e.RunEnded(stop="cancelled", reason=RUN_WITHOUT_END), at)
        case "fill":
            after = apply_event(state, e.Resumed(), at) if state.phase is Phase.AWAITING_APPROVAL else state
            for item in state.pending_calls:
                if item.result is None:
                    after = apply_event(after, e.ToolFinished(result=_make_missing_result(item)), at)
            return after
        case "go on":
            return apply_event(state, e.Resumed(), at)
        case "ask":
            return apply_event(state, e.ModelAsked(step=state.run.spent.steps + 1, attempt=1, digest=""), at)


def _make_missing_result(item: PendingCall) -> ToolResult:
    started = item.attempt > 0
    return ToolResult(
        call_id=item.call.id,
        parts=(Text(text=CALL_IN_DOUBT if started else CALL_NOT_STARTED),),
        outcome="unknown" if started else "cancelled",
    )


def _choose_call(event: CallEvent, items: list[PendingCall]) -> PendingCall:
    """Of several calls by one id, the one an event can be about: started first, finished first."""
    started = [item for item in items if item.running]
    waiting = [item for item in items if not item.running]
    first, second = (waiting, started) if isinstance(event, e.ToolStarted) else (started, waiting)
    return (first or second)[0]


def _make_unused_id(wanted: str, known: set[str]) -> str:
    own, count = wanted, 1
    while own in known:
        count += 1
        own = f"{wanted}_{count}"
    return own


def _event_tag(event: e.Event) -> str:
    return str(type(event).__struct_config__.tag)
