"""Removal of our key from a reply that repeats it, before the reply is kept or shown."""

from collections.abc import Callable

from msgspec.structs import asdict, replace

from ..values.delta import CallReady, Delta, ReasoningDelta, TextDelta, ToolCallDelta
from ..values.message import Reply
from ..values.parts import Part
from ..values.redaction import Redactor

Streamed = TextDelta | ReasoningDelta | ToolCallDelta
"""Deltas that are pieces of something longer."""


def redact_reply(reply: Reply, redactor: Redactor) -> Reply:
    """The reply without the key; the same object when it holds none."""
    parts = [_redact_part(part, redactor) for part in reply.parts]
    words = {
        "id": redactor.redact_text(reply.id),
        "stop_detail": redactor.redact_text(reply.stop_detail),
        "missed": redactor.redact_text(reply.missed),
    }
    redacted = replace(reply, parts=tuple(parts), **words)
    return reply if redacted == reply else redacted


class StreamRedactor:
    """Shows the deltas of one reply without the key, also where the key is split over several of them.

    The end of a delta that may be the beginning of the key waits for the next one.  Nothing else waits, and
    without a key nothing does.
    """

    def __init__(self, redactor: Redactor, show: Callable[[Delta], None]) -> None:
        self._redactor, self._show = redactor, show
        self._last: Streamed | None = None
        self._before = ""
        """The letter shown last: a short key counts only as a word of its own."""
        self._waiting = ""

    def take(self, delta: Delta) -> None:
        if not self._redactor:
            self._show(delta)
        elif isinstance(delta, Streamed):
            self._take_words(delta)
        else:
            self.flush()
            self._show(self._redact_call(delta) if isinstance(delta, CallReady) else delta)

    def flush(self) -> None:
        """Show what waits: nothing that belongs to it follows."""
        if self._waiting and self._last is not None:
            text, start = self._before + self._waiting, len(self._before)
            self._show(_with_words(self._last, self._redactor.redact_span(text, start, len(text))))
        self._last, self._before, self._waiting = None, "", ""

    def _take_words(self, delta: Streamed) -> None:
        if isinstance(delta, ToolCallDelta):
            delta = replace(delta, name=self._redactor.redact_text(delta.name))
        if self._last is None or _place(self._last) != _place(delta):
            self.flush()
        start, new = len(self._before), _words(delta)
        text = self._before + self._waiting + new
        end = max(start, self._redactor.find_open_end(text))
        self._last, self._waiting = delta, text[end:]
        self._before = text[end - 1 : end]
        if end > start or not new or isinstance(delta, ToolCallDelta):
            self._show(_with_words(delta, self._redactor.redact_span(text, start, end)))

    def _redact_call(self, delta: CallReady) -> CallReady:
        """A call that may start early is the one that the reply will have."""
        call = _redact_part(delta.call, self._redactor)
        return replace(delta, call=call) if call is not delta.call else delta


def _place(delta: Streamed) -> tuple[type, int]:
    """Which part of the reply the words belong to."""
    return type(delta), delta.index if isinstance(delta, ToolCallDelta) else 0


def _words(delta: Streamed) -> str:
    match delta:
        case TextDelta(text=words) | ReasoningDelta(reasoning=words) | ToolCallDelta(arguments=words):
            return words


def _with_words(delta: Streamed, words: str) -> Streamed:
    if words == _words(delta):
        return delta
    field = {TextDelta: "text", ReasoningDelta: "reasoning", ToolCallDelta: "arguments"}[type(delta)]
    return replace(delta, **{field: words})


def _redact_part(part: Part, redactor: Redactor) -> Part:
    changed = {}
    for name, value in asdict(part).items():
        if value and isinstance(value, str) and name != "data":
            redacted = redactor.redact_text(value)
            if redacted != value:
                changed[name] = redacted
    return replace(part, **changed) if changed else part
