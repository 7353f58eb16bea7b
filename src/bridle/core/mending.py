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

from ..values import event as e
from ..values.errors import MisuseError
from ..values.parts import Part, Text, ToolCall, ToolResult
from ..values.record import Record
from ..values.settings import Settings
from .calls import NOT_STARTED
from .dispatch import IN_DOUBT
from .loop import TRANSITIONS, apply
from .opencall import OpenCall, find_call
from .state import Phase, State

Bridge = Literal["begin", "end", "fill", "go on", "ask"]
CallEvent = (
    e.ToolStarted | e.ToolProbed | e.ToolFinished | e.ApprovalAsked | e.ApprovalAnswered | e.CallReviewed
)

ASKED = (e.ModelAsked, e.ModelReplied, e.ModelFailed, e.ModelSwitched, e.Nudged, e.ViewChanged, e.Compacted)
AFRESH = (e.Prompted, e.Imported, e.CompensationStarted, e.CompensationFinished)
BRIDGES: dict[tuple[Phase, type], Bridge] = {
    **{(Phase.NEW, kind): "begin" for kind in (*AFRESH, *ASKED, e.Resumed)},
    **{
        (phase, kind): "end"
        for phase in (Phase.ASKING, Phase.JUDGING, Phase.ACTING, Phase.WAITING)
        for kind in AFRESH
    },
    **{(phase, kind): "fill" for phase in (Phase.ACTING, Phase.WAITING) for kind in ASKED},
    **{(Phase.RESTING, kind): "go on" for kind in ASKED},
    (Phase.JUDGING, e.ModelReplied): "ask",
}
"""What must have happened before an event that has no place where it stands."""
WORDS: dict[Bridge, str] = {
    "begin": "the settings before record {seq} are missing; it goes on with none",
    "end": "the run before record {seq} has no end; it counts as cancelled{calls}",
    "fill": "results before record {seq} are missing{calls}",
    "go on": "what began the run before record {seq} is missing",
    "ask": "the question that record {seq} answers is missing",
}
NUMBERED = re.compile(r"\bc(\d{1,9})_\d")
"""The number of the reply that a call's id is made of."""
BRIDGES_MAX = range(2)
"""A beginning, and then what the beginning was for."""
ABANDONED = "the log has no end of this run"


class Folded(NamedTuple):
    state: State
    repairs: tuple[str, ...]
    """What was put right since that was written down last, one sentence each."""


def fold(records: Iterable[Record]) -> Folded:
    reading = Reading()
    for record in records:
        reading.take(record)
    reading.count_on()
    return Folded(reading.state, tuple(reading.repairs))


def states(records: Iterable[Record]) -> Iterator[tuple[Record, State]]:
    """Each record and what everything up to it adds up to."""
    reading = Reading()
    for record in records:
        reading.take(record)
        yield record, reading.state


class Reading:
    """A log as it is read, record by record."""

    def __init__(self) -> None:
        self.state = State()
        self.repairs: list[str] = []
        self._known: set[str] = set()
        self._aliases: dict[str, list[str]] = {}
        """Ids of the calls that are open now, by the id the log calls them by."""
        self._turn = 0

    def take(self, record: Record) -> None:
        event: e.Event | None = record.event
        if isinstance(event, e.Repaired):
            self.repairs.clear()
            self.count_on()
        elif isinstance(event, e.Unknown):
            for turn in NUMBERED.findall(record.data.decode("utf-8", "replace")):
                self._turn = max(self._turn, int(turn))
            self._note(
                f"record {record.seq} ({event.kind or 'of no kind'}) cannot be read by this version;"
                " it is kept and passed over"
            )
        elif isinstance(event, e.ModelReplied):
            event = self._renamed(record.seq, event)
        elif isinstance(event, CallEvent):
            event = self._addressed(record.seq, event)
        if event is not None:
            self._apply(record, event)

    def branched(self) -> "Reading":
        """The same reading, to go on with apart from this one."""
        other = Reading()
        other.state, other.repairs, other._turn = self.state, list(self.repairs), self._turn
        other._known = set(self._known)
        other._aliases = {name: list(own) for name, own in self._aliases.items()}
        return other

    def count_on(self) -> None:
        """Go on numbering behind every number that was ever given, also in what was passed over: stores
        keep a receipt once, and a call by a number that is taken could never be answered."""
        if self._turn > self.state.replies:
            self.state = replace(self.state, replies=self._turn)

    def _seen(self, call_id: str) -> None:
        found = NUMBERED.match(call_id)
        if found is not None:
            self._turn = max(self._turn, int(found[1]))

    def _apply(self, record: Record, event: e.Event) -> None:
        try:
            for _ in BRIDGES_MAX:
                bridge = BRIDGES.get((self.state.phase, type(event)))
                if bridge is None or (self.state.phase, type(event)) in TRANSITIONS:
                    break
                calls = [item.call.id for item in self.state.calls if item.result is None]
                self.state = _bridged(self.state, bridge, record.at)
                told = f"; no result of {', '.join(calls)} is known" if calls else ""
                self._note(WORDS[bridge].format(seq=record.seq, calls=told))
            self.state = apply(self.state, event, record.at, record.hash)
        except (MisuseError, LookupError) as error:
            self._note(
                f"record {record.seq} ({_kind(event)}) makes no sense there and is passed over: {error}"
            )

    def _renamed(self, seq: int, event: e.ModelReplied) -> e.ModelReplied:
        """The reply with ids that no call before has, and none of its own twice."""
        self._aliases = {}
        if not event.reply.calls:
            return event
        parts: list[Part] = []
        for part in event.reply.parts:
            if not isinstance(part, ToolCall):
                parts.append(part)
                continue
            self._seen(part.id)
            own = _unused(part.id, self._known)
            self._known.add(own)
            self._aliases.setdefault(part.id, []).append(own)
            if own != part.id:
                self._aliases.setdefault(own, []).append(own)
                self._note(f"record {seq} uses the id {part.id} again; that call is {own} from here on")
            parts.append(replace(part, id=own))
        return replace(event, reply=replace(event.reply, parts=tuple(parts)))

    def _addressed(self, seq: int, event: CallEvent) -> e.Event | None:
        """The event about the very call it means; None when it is about none, or too late."""
        named = event.result.call_id if isinstance(event, e.ToolFinished) else event.call_id
        self._seen(named)
        if self.state.phase not in (Phase.ACTING, Phase.WAITING):
            return event
        places = (find_call(self.state.calls, own) for own in self._aliases.get(named, ()))
        meant = [self.state.calls[place] for place in sorted({at for at in places if at is not None})]
        if not meant:
            self._note(
                f"record {seq} ({_kind(event)}) is about {named}, which nobody called; it is passed over"
            )
            return None
        unanswered = [item for item in meant if item.result is None]
        if not unanswered:
            self._note(
                f"record {seq} ({_kind(event)}) comes after the result of {named}; the first one counts"
            )
            return None
        own = _suited(event, unanswered).call.id
        if own == named:
            return event
        if isinstance(event, e.ToolFinished):
            return replace(event, result=replace(event.result, call_id=own))
        return replace(event, call_id=own)

    def _note(self, words: str) -> None:
        self.repairs.append(words)


def _bridged(state: State, bridge: Bridge, at: float) -> State:
    match bridge:
        case "begin":
            return apply(state, e.Configured(settings=Settings()), at)
        case "end":
            return apply(state, e.RunEnded(stop="cancelled", reason=ABANDONED), at)
        case "fill":
            after = apply(state, e.Resumed(), at) if state.phase is Phase.WAITING else state
            for item in state.calls:
                if item.result is None:
                    after = apply(after, e.ToolFinished(result=_missing(item)), at)
            return after
        case "go on":
            return apply(state, e.Resumed(), at)
        case "ask":
            return apply(state, e.ModelAsked(step=state.run.spent.steps + 1, attempt=1, digest=""), at)


def _missing(item: OpenCall) -> ToolResult:
    started = item.attempt > 0
    return ToolResult(
        call_id=item.call.id,
        parts=(Text(text=IN_DOUBT if started else NOT_STARTED),),
        outcome="unknown" if started else "cancelled",
    )


def _suited(event: CallEvent, items: list[OpenCall]) -> OpenCall:
    """Of several calls by one id, the one an event can be about: started first, finished first."""
    started = [item for item in items if item.running]
    waiting = [item for item in items if not item.running]
    first, second = (waiting, started) if isinstance(event, e.ToolStarted) else (started, waiting)
    return (first or second)[0]


def _unused(wanted: str, known: set[str]) -> str:
    own, count = wanted, 1
    while own in known:
        count += 1
        own = f"{wanted}_{count}"
    return own


def _kind(event: e.Event) -> str:
    return str(type(event).__struct_config__.tag)
