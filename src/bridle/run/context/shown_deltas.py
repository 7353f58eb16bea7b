"""Deltas on their way to viewers: ids of calls, the removal of the key, the buffers of viewers.

The deltas of one piece of a response are shown together: they are searched for the key as one text, and a viewer is
woken once for them.
"""

import asyncio
import weakref
from collections.abc import Callable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Protocol

from msgspec.structs import asdict, astuple, replace

from bridle.core.calls.dispatch import make_call_id
from bridle.values.events import Event
from bridle.values.message import Part, Reply
from bridle.values.record import Record
from bridle.values.redaction import Redactor
from bridle.values.result import (
    DELTA_TYPES,
    CallReady,
    Delta,
    DeltasSkipped,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
)

StreamItem = Event | Delta | DeltasSkipped
CALL_DELTAS = (ToolCallDelta, CallReady)
CALL_DELTA_TYPES = frozenset(CALL_DELTAS)
Streamed = TextDelta | ReasoningDelta | ToolCallDelta
STREAMED_DELTAS = (TextDelta, ReasoningDelta, ToolCallDelta)
"""Deltas that continue each other."""
TEXT_FIELDS: dict[type, str] = {TextDelta: "text", ReasoningDelta: "reasoning", ToolCallDelta: "arguments"}
READ_TEXT = {kind: attrgetter(field) for kind, field in TEXT_FIELDS.items()}
SEARCHED_DELTAS_MAX = 8
"""More deltas that may hold a part of the key are searched in halves."""


class ShownTo(Protocol):
    """The watchers of a run."""

    def notify(self, happening: Delta) -> None: ...

    def notify_all(self, deltas: Sequence[Delta]) -> None: ...


class DeltaCallIds:
    """Shows deltas with the ids that their calls will have in the reply, so that a viewer can match them."""

    def __init__(self, turn: int, watchers: ShownTo, start_early: Callable[[CallReady], None]) -> None:
        self._turn, self._watchers, self._start_early = turn, watchers, start_early
        self._number_of: dict[int, int] = {}
        """Call numbers, and ids, by the index of the part in the reply."""
        self._id_of: dict[int, str] = {}
        self._ready: set[int] = set()

    def identify(self, delta: Delta) -> Delta:
        if type(delta) is ToolCallDelta:
            call_id = self._id_of.get(delta.index) or self._choose_id(delta.index)
            return replace(delta, call_id=call_id)
        if type(delta) is CallReady:
            self._ready.add(delta.index)
            return replace(delta, call=replace(delta.call, id=make_call_id(self._turn, delta.index)))
        return delta

    def _choose_id(self, index: int) -> str:
        """Calls arrive in order; a call without arguments may arrive without a delta."""
        known = self._ready.union(self._number_of.values())
        self._number_of[index] = number = max(known, default=-1) + 1
        self._id_of[index] = call_id = make_call_id(self._turn, number)
        return call_id

    def show(self, delta: Delta) -> None:
        """Show a delta with the id of its call."""
        if not isinstance(delta, CALL_DELTAS):
            self._watchers.notify(delta)
            return
        delta = self.identify(delta)
        self._watchers.notify(delta)
        if isinstance(delta, CallReady):
            self._start_early(delta)

    def show_all(self, deltas: list[Delta]) -> None:
        """Show the deltas that arrived together."""
        kinds = set(map(type, deltas))
        if not kinds.isdisjoint(CALL_DELTA_TYPES):
            deltas = [self.identify(delta) if type(delta) in CALL_DELTA_TYPES else delta for delta in deltas]
        self._watchers.notify_all(deltas)
        if CallReady in kinds:
            for delta in deltas:
                if type(delta) is CallReady:
                    self._start_early(delta)


def redact_reply(reply: Reply, redactor: Redactor) -> Reply:
    """The reply without the key; the same object if it contains none."""
    texts = [reply.id, reply.stop_detail, reply.cache_miss_reason]
    for part in reply.parts:
        texts += map(str, astuple(part))
    whole = "\n".join(texts)
    if redactor.redact_text(whole) == whole:
        return reply
    parts = tuple(_redact_part(part, redactor) for part in reply.parts)
    id_, detail = redactor.redact_text(reply.id), redactor.redact_text(reply.stop_detail)
    reason = redactor.redact_text(reply.cache_miss_reason)
    kept = (reply.parts, reply.id, reply.stop_detail, reply.cache_miss_reason)
    if (parts, id_, detail, reason) == kept:
        return reply
    return replace(reply, parts=parts, id=id_, stop_detail=detail, cache_miss_reason=reason)


class StreamRedactor:
    """Shows the deltas of one reply without the key, even if the key is split over several deltas.

    The end of a delta that may be the start of the key is delayed until the next delta; nothing else is.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor, self._has_secrets = redactor, bool(redactor)
        self._last: Streamed | None = None
        self._before = ""
        """The last character shown: a short key is redacted only as a whole word."""
        self._waiting = ""
        self._clear_name = ""
        """A tool's name without the key; every delta of a call has the name."""

    def take(self, deltas: list[Delta]) -> list[Delta]:
        """The deltas to show after these have arrived."""
        if not self._has_secrets:
            return deltas
        shown: list[Delta] = []
        for kind, group in groupby(deltas, type):
            take = self._take_texts if kind in READ_TEXT else self._take_others
            shown += take(list(group))
        return shown

    def _take_texts(self, deltas: list[Delta]) -> list[Delta]:
        """Take deltas of one type that have a text."""
        if self._are_clear(deltas):
            return deltas
        if deltas[SEARCHED_DELTAS_MAX:]:
            middle = len(deltas) // 2
            return self._take_texts(deltas[:middle]) + self._take_texts(deltas[middle:])
        return self._take_others(deltas)

    def _take_others(self, deltas: list[Delta]) -> list[Delta]:
        shown: list[Delta] = []
        for delta in deltas:
            self._take_delta(delta, shown)
        return shown

    def _are_clear(self, deltas: list[Delta]) -> bool:
        """Return True, and note the texts as shown, if they have no part of the key."""
        if self._waiting:
            return False
        whole, last = "".join(map(READ_TEXT[type(deltas[0])], deltas)), deltas[-1]
        if not isinstance(last, STREAMED_DELTAS) or not read_delta_text(last):
            return False  # the text before the next delta would be that of another part
        if not self._redactor.is_clear(whole):
            return False
        if type(last) is ToolCallDelta and any(map(self._names_secret, deltas)):
            return False
        self._last, self._before = last, whole[-1]
        return True

    def _take_delta(self, delta: Delta, shown: list[Delta]) -> None:
        if isinstance(delta, STREAMED_DELTAS):
            text = read_delta_text(delta)
            if self._waiting or not text or self._names_secret(delta) or self._redactor.is_suspect(text):
                self._take_text(delta, shown)
            else:
                self._last, self._before = delta, text[-1]
                shown.append(delta)
        else:
            shown += self.flush()
            shown.append(self._redact_call(delta) if isinstance(delta, CallReady) else delta)

    def _names_secret(self, delta: Delta) -> bool:
        if not isinstance(delta, ToolCallDelta) or delta.name == self._clear_name:
            return False
        if self._redactor.redact_text(delta.name) != delta.name:
            return True
        self._clear_name = delta.name
        return False

    def flush(self) -> list[Delta]:
        """The delayed text; no continuation follows."""
        shown: list[Delta] = []
        if self._waiting and self._last is not None:
            text, start = self._before + self._waiting, len(self._before)
            shown.append(set_delta_text(self._last, self._redactor.redact_span(text, start, len(text))))
        self._last, self._before, self._waiting = None, "", ""
        return shown

    def _take_text(self, delta: Streamed, shown: list[Delta]) -> None:
        if isinstance(delta, ToolCallDelta):
            delta = replace(delta, name=self._redactor.redact_text(delta.name))
        # guard: stream-parts-separate
        if self._last is None or find_part_key(self._last) != find_part_key(delta):
            shown += self.flush()
        start, new = len(self._before), read_delta_text(delta)
        text = self._before + self._waiting + new
        end = self._redactor.find_open_end(text, start)
        self._last, self._waiting = delta, text[end:]
        self._before = text[end - 1 : end]
        if end > start or not new or isinstance(delta, ToolCallDelta):
            shown.append(set_delta_text(delta, self._redactor.redact_span(text, start, end)))

    def _redact_call(self, delta: CallReady) -> CallReady:
        """Redact like the reply does: an early call must equal the call in the reply."""
        call = _redact_part(delta.call, self._redactor)
        return replace(delta, call=call) if call is not delta.call else delta


def find_part_key(delta: Streamed) -> tuple[type, int]:
    """Identifies the part of the reply that the text belongs to."""
    return type(delta), delta.index if isinstance(delta, ToolCallDelta) else 0


def read_delta_text(delta: Streamed) -> str:
    text: str = READ_TEXT[type(delta)](delta)
    return text


def set_delta_text(delta: Streamed, text: str) -> Streamed:
    """The delta with another text; the same object if it has this one."""
    if text == read_delta_text(delta):
        return delta
    return replace(delta, **{TEXT_FIELDS[type(delta)]: text})


def _redact_part(part: Part, redactor: Redactor) -> Part:
    changed = {}
    for name, value in asdict(part).items():
        if value and isinstance(value, str) and name != "data":
            redacted = redactor.redact_text(value)
            if redacted != value:
                changed[name] = redacted
    return replace(part, **changed) if changed else part


class ViewerBuffer:
    """Items one viewer has not taken yet.  Belongs to one event loop."""

    __slots__ = ("__weakref__", "_count", "_deltas_max", "_skipped", "_taken", "_waiter", "items")

    def __init__(self, deltas_max: int | None) -> None:
        self.items: list[StreamItem] = []
        self._taken = 0
        """Number of the first items that `take` has returned. They are removed together, in linear time."""
        self._deltas_max, self._count, self._skipped = deltas_max, 0, 0
        self._waiter: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return len(self.items) - self._taken

    def put(self, item: Event | Delta) -> None:
        if self._deltas_max is not None and not self._has_room(item, self._deltas_max):
            self._skipped += 1
        else:
            if self._skipped:
                self._close_gap()
            self.items.append(item)
        waiter = self._waiter
        if waiter is not None:
            self._waiter = None
            if not waiter.done():
                waiter.set_result(None)

    def put_all(self, deltas: Sequence[Delta]) -> None:
        if self._deltas_max is None:
            self.items.extend(deltas)
            self.wake()
        else:
            for delta in deltas:
                self.put(delta)

    def take(self) -> StreamItem:
        """Remove and return the oldest item."""
        item = self.items[self._taken]
        self._taken += 1
        if self._taken * 2 >= len(self.items):
            del self.items[: self._taken]
            self._taken = 0
        if self._deltas_max is not None:
            if isinstance(item, DELTA_TYPES):
                self._count -= 1
            if self._skipped and not len(self):
                self._close_gap()
        return item

    def wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def wait_for_more(self) -> "asyncio.Future[None]":
        """Wait for an item or for `wake`.  Only one task may wait at a time."""
        self._waiter = waiter = asyncio.get_running_loop().create_future()
        return waiter

    def _has_room(self, item: Event | Delta, deltas_max: int) -> bool:
        if not isinstance(item, DELTA_TYPES):
            return True
        if self._count >= deltas_max or (self._skipped and self._count > deltas_max // 2):
            return False
        self._count += 1
        return True

    def _close_gap(self) -> None:
        self.items.append(DeltasSkipped(count=self._skipped))
        self._skipped = 0


class ViewerBuffers:
    """A watcher that copies everything to the current viewers."""

    def __init__(self) -> None:
        self._buffers: tuple[weakref.ref[ViewerBuffer], ...] = ()

    def add_viewer(self, deltas_max: int | None) -> ViewerBuffer:
        """Add a viewer, which sees everything from now on."""
        buffer = ViewerBuffer(deltas_max)
        self._buffers = (*self._buffers, weakref.ref(buffer, self._remove_buffer))
        return buffer

    def on_event(self, session: str, happening: Record | Delta) -> None:
        item = happening.event if isinstance(happening, Record) else happening
        for reference in self._buffers:
            buffer = reference()
            if buffer is not None:
                buffer.put(item)

    def on_deltas(self, deltas: Sequence[Delta]) -> None:
        for reference in self._buffers:
            buffer = reference()
            if buffer is not None:
                buffer.put_all(deltas)

    def wake(self) -> None:
        for reference in self._buffers:
            buffer = reference()
            if buffer is not None:
                buffer.wake()

    def _remove_buffer(self, reference: "weakref.ref[ViewerBuffer]") -> None:
        self._buffers = tuple(each for each in self._buffers if each is not reference)
