"""Fold a log that may be damaged: apply what can be understood and report the rest.

A log written by one driver folds without surprises. But logs live long: a newer version writes unknown
events, an editing tool removes a line, an old bug recorded a result twice. None of this may make a session
unusable.

Rule 1: the records stay unchanged; only their interpretation is repaired, in the same way every time. Rule 2:
an intact log is read exactly as written, and nothing is reported. Rule 3: an event that does not fit is
bridged if it is clear what is missing (`BRIDGES`), else skipped. Rule 4: a repair recorded in a `LogRepaired`
is not reported again.

Tampering is not detected here: record hashes do that.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal, NamedTuple, cast, get_args

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

from .growing import let_conversation_grow, settle_conversation

Bridge = Literal["begin", "end", "fill", "go on", "ask"]
CallEvent = (
    e.ToolStarted
    | e.ToolProbed
    | e.ToolInterrupted
    | e.ToolFinished
    | e.ApprovalAsked
    | e.ApprovalAnswered
    | e.CallReviewed
)
CALL_EVENTS: frozenset[type] = frozenset(get_args(CallEvent))
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
"""Event to insert before one that is not allowed in the current phase."""
BRIDGE_NOTES: dict[Bridge, str] = {
    "begin": "the settings before record {seq} are missing; the session continues without settings",
    "end": "the run before record {seq} has no end; it is treated as cancelled{calls}",
    "fill": "results before record {seq} are missing{calls}",
    "go on": "the start of the run before record {seq} is missing",
    "ask": "the request that record {seq} answers is missing",
}
CALL_ID_PATTERN = re.compile(r"\bc(\d{1,9})_\d")
"""Matches call ids and captures the number of the reply."""
GROWING_RECORDS = 512
"""Records after which the fold looks for tuples that have become long."""
BRIDGE_ROUNDS = range(2)
"""At most two events are inserted: a start, and then the event that it was needed for."""
RUN_WITHOUT_END = "the log does not contain the end of this run"


class FoldedLog(NamedTuple):
    state: State
    repairs: tuple[str, ...]
    """Repairs since the last recorded `LogRepaired`, one sentence each."""


def fold_log(
    records: Iterable[Record], observe: Callable[[Record, State, State], None] | None = None
) -> FoldedLog:
    """Fold a log; `observe` is shown each record, with the states before and after it.

    It reads these states and keeps none: their conversations grow (growing.py).
    """
    reader = LogReader()
    apply_records(reader, records, observe)
    reader.continue_numbering()
    return FoldedLog(reader.state, tuple(reader.repairs))


def apply_records(
    reader: "LogReader",
    records: Iterable[Record],
    observe: Callable[[Record, State, State], None] | None = None,
) -> None:
    """Fold more records; the reader's state has plain tuples afterwards."""
    try:
        for record in records:
            before = reader.state
            reader.apply_record(record)
            if observe is not None:
                observe(record, before, reader.state)
    finally:
        reader.settle()


def iterate_states(records: Iterable[Record]) -> Iterator[tuple[Record, State]]:
    """Each record with the state after it, to be read; `settle_conversation` makes one that can be kept."""
    reader = LogReader()
    for record in records:
        reader.apply_record(record)
        yield record, reader.state


class LogReader:
    """Folds a log record by record, in time linear in its length.

    The conversation of its state grows without a copy (growing.py): a state that is kept or encoded is settled first.
    """

    def __init__(
        self,
        state: State | None = None,
        repairs: Iterable[str] = (),
        call_ids: Iterable[str] = (),
        aliases: Mapping[str, Iterable[str]] | None = None,
        reply_number: int = 0,
        *,
        grows: bool = True,
    ) -> None:
        """Begin with an empty log, or after the records that another reader has read.

        Without `grows`, every state has plain tuples, each a copy of the one before.
        """
        self.state = state or State()
        self._grows, self._until_look = grows, 0
        """The records until the next look for tuples that have become long."""
        self.repairs = list(repairs)
        self.call_ids = set(call_ids)
        self.aliases = {name: list(ids) for name, ids in (aliases or {}).items()}
        """Ids of the pending calls, by the id that the log uses for them."""
        self.reply_number = reply_number

    def apply_record(self, record: Record) -> None:
        if self._grows and self._until_look == 0:
            self.state, self._until_look = let_conversation_grow(self.state), GROWING_RECORDS
        self._until_look -= 1
        event: e.Event | None = record.event
        if isinstance(event, e.LogRepaired):
            self.repairs.clear()
            self.continue_numbering()
        elif isinstance(event, e.UnknownEvent):
            for turn in CALL_ID_PATTERN.findall(record.data.decode("utf-8", "replace")):
                self.reply_number = max(self.reply_number, int(turn))
            self._add_repair(
                f"record {record.seq} ({event.kind or 'of no kind'}) cannot be read by this version;"
                " it is kept and skipped"
            )
        elif isinstance(event, e.ModelReplied):
            event = self._rename_calls(record.seq, event)
        elif type(event) in CALL_EVENTS:
            event = self._resolve_call(record.seq, cast("CallEvent", event))
        if event is not None:
            self._bridge_and_apply(record, event)

    def copy(self) -> "LogReader":
        """An independent copy, to continue separately."""
        return LogReader(
            self.state, self.repairs, self.call_ids, self.aliases, self.reply_number, grows=self._grows
        )

    def settle(self) -> None:
        """Give the state plain tuples again."""
        self.state, self._until_look = settle_conversation(self.state), 0

    def continue_numbering(self) -> None:
        """Continue after every reply number ever used, including those in skipped records.

        Stores accept a receipt once per call id, so a call with a reused id could never be answered.
        """
        # A reply that hooks still review has its number and is counted once they accept it.
        is_held = self.state.run.evaluation.hooks.unreviewed is not None
        last = self.reply_number - is_held
        if last > self.state.totals.reply_count:
            self.state = replace(self.state, totals=replace(self.state.totals, reply_count=last))

    def _note_reply_number(self, call_id: str) -> None:
        found = CALL_ID_PATTERN.match(call_id)
        if found is not None:
            self.reply_number = max(self.reply_number, int(found[1]))

    def _bridge_and_apply(self, record: Record, event: e.Event) -> None:
        try:
            for _ in BRIDGE_ROUNDS:
                bridge = BRIDGES.get((self.state.phase, type(event)))
                if bridge is None or (self.state.phase, type(event)) in TRANSITIONS:
                    break
                calls = [item.call.id for item in self.state.calls.batch.pending if item.result is None]
                self.state = _apply_bridge(self.state, bridge, record.at)
                detail = f"; no result of {', '.join(calls)} is recorded" if calls else ""
                self._add_repair(BRIDGE_NOTES[bridge].format(seq=record.seq, calls=detail))
            self.state = apply_event(self.state, event, record.at, record.hash)
        except (MisuseError, LookupError) as error:
            self._add_repair(
                f"record {record.seq} ({_event_tag(event)}) does not fit there and is skipped: {error}"
            )

    def _rename_calls(self, seq: int, event: e.ModelReplied) -> e.ModelReplied:
        """The reply with call ids that are unique in the session."""
        self.aliases = {}
        if not event.reply.calls:
            return event
        parts: list[Part] = []
        for part in event.reply.parts:
            if not isinstance(part, ToolCall):
                parts.append(part)
                continue
            self._note_reply_number(part.id)
            unique_id = _make_unused_id(part.id, self.call_ids)
            self.call_ids.add(unique_id)
            self.aliases.setdefault(part.id, []).append(unique_id)
            if unique_id != part.id:
                self.aliases.setdefault(unique_id, []).append(unique_id)
                self._add_repair(
                    f"record {seq} uses the id {part.id} again; that call is {unique_id} from here on"
                )
            parts.append(part if unique_id == part.id else replace(part, id=unique_id))
        return replace(event, reply=replace(event.reply, parts=tuple(parts)))

    def _resolve_call(self, seq: int, event: CallEvent) -> e.Event | None:
        """The event with the id of the call it refers to; None if that call is unknown or already answered."""
        call_id = event.result.call_id if isinstance(event, e.ToolFinished) else event.call_id
        self._note_reply_number(call_id)
        if self.state.phase not in (Phase.RUNNING_TOOLS, Phase.AWAITING_APPROVAL):
            return event
        places = (
            find_call(self.state.calls.batch.pending, resolved_id)
            for resolved_id in self.aliases.get(call_id, ())
        )
        matches = [
            self.state.calls.batch.pending[place] for place in sorted({at for at in places if at is not None})
        ]
        if not matches:
            self._add_repair(
                f"record {seq} ({_event_tag(event)}) is about {call_id}, which is not a pending call; it is skipped"
            )
            return None
        unanswered = [item for item in matches if item.result is None]
        if not unanswered:
            self._add_repair(
                f"record {seq} ({_event_tag(event)}) comes after the result of {call_id}; the first one counts"
            )
            return None
        resolved_id = _choose_call(event, unanswered).call.id
        if resolved_id == call_id:
            return event
        if isinstance(event, e.ToolFinished):
            return replace(event, result=replace(event.result, call_id=resolved_id))
        return replace(event, call_id=resolved_id)

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
            for item in state.calls.batch.pending:
                if item.result is None:
                    after = apply_event(after, e.ToolFinished(result=_make_missing_result(item)), at)
            return after
        case "go on":
            return apply_event(state, e.Resumed(), at)
        case "ask":
            return apply_event(
                state, e.ModelAsked(step=state.run.budget.spent.steps + 1, attempt=1, digest=""), at
            )


def _make_missing_result(item: PendingCall) -> ToolResult:
    started = item.attempt > 0
    return ToolResult(
        call_id=item.call.id,
        parts=(Text(text=CALL_IN_DOUBT if started else CALL_NOT_STARTED),),
        outcome="unknown" if started else "cancelled",
    )


def _choose_call(event: CallEvent, items: list[PendingCall]) -> PendingCall:
    """The call that an event refers to, among several with one id: started first, finished first."""
    started = [item for item in items if item.running]
    waiting = [item for item in items if not item.running]
    first, second = (waiting, started) if isinstance(event, e.ToolStarted) else (started, waiting)
    return (first or second)[0]


def _make_unused_id(wanted: str, known: set[str]) -> str:
    candidate, count = wanted, 1
    while candidate in known:
        count += 1
        candidate = f"{wanted}_{count}"
    return candidate


def _event_tag(event: e.Event) -> str:
    return str(type(event).__struct_config__.tag)
