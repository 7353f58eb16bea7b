"""Caches encoded messages, which makes the wire byte-stable.

A message never changes, so it is encoded when first seen and only joined afterwards; the digest of the joined
bytes is updated along with it. Encoding the next request therefore costs the new messages and one copy,
however long the conversation is.

A family provides a `MessageEncoder`, which turns one message into turns on the wire and may keep state (ids,
for example). A turn is opened, filled and closed. Where a wire requires alternating roles, a turn with
`merges_with_previous` continues the one before it if both have the same opening. The last turn stays open in
the buffer and is closed in the copy that is returned. Where a wire requires something to follow (an answer to
every call), a turn has it in `required_next`; it is written if the next turn does not provide it, and at the
end of the copy.

The list of messages may only grow. For anything else (a shortened or changed list, another endpoint) the
cache is rebuilt rather than send bytes that do not match the request.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from bridle.values.message import Message, Text, ToolResult
from bridle.values.model import Endpoint, Model
from bridle.values.request import Request

from .json import dumps

CONTINUE_TEXT = "Continue where you stopped."
"""User text added where a conversation may not end with the model's message."""
HIDDEN_BEGINNING_TEXT = "The beginning of this conversation is not shown."
"""User text added where a conversation may not begin with the model's message."""
LOST_RESULT_TEXT = "No result: this call was interrupted, or what came of it was lost."
ID_PLACEHOLDER = "(id)"
DIGEST_BYTES = 16
"""Enough to tell requests apart; the log has a digest for every call."""


RequiredBytes = bytes | Callable[[], bytes]
"""Bytes that are rarely written: a function makes them when they are."""


class WireTurn(Struct, frozen=True, gc=False):
    """A wire message, or a piece of one: `opening + items + closing`."""

    opening: bytes
    items: bytes
    closing: bytes
    breakpoint_at: int = -1
    """Offset in `items` where a cache breakpoint may be inserted; -1 if there is none."""
    merges_with_previous: bool = False
    separator: bytes = b","
    """Separator between the items of a turn and those of a turn merged with it."""
    required_next: RequiredBytes = b""
    """Bytes that this wire requires next (answers to calls, for example) if no turn provides them."""
    answers_required: bool = False
    """True if this turn provides, or repeats, what the turn before it required."""
    required_at_end: bytes = b""
    """Bytes required if nothing follows; unlike `required_next`, any other turn makes them unnecessary."""
    kept_at_end: bytes = b""
    """The `required_at_end` that stays between this turn and a further one of the same role."""


F = TypeVar("F")
MessageEncoder = Callable[[Message], Sequence[WireTurn]]
NO_MARKS: Mapping[int, bytes] = {}


class EncodedMessages:
    """Encoded history of every family that sends a list of messages."""

    def __init__(self, writer: Callable[[Endpoint | None], MessageEncoder]) -> None:
        self._writer = writer
        self._endpoint: Endpoint | None = None
        self._head: tuple[object, bytes, bytes] | None = None
        self._frame: tuple[Request, Any] | None = None
        self._without_system: tuple[Message, ...] = ()
        self._restart()

    def has_system_message(self, messages: tuple[Message, ...]) -> bool:
        """True if a system message is among them; only those that are new are searched."""
        known = self._without_system
        fresh = messages[len(known) :] if messages[: len(known)] == known else messages
        found = "system" in [message.role for message in fresh]
        self._without_system = () if found else messages
        return found

    def find_frame(self, request: Request, make: Callable[[Request], F]) -> F:
        """Return what `make` derives from a request without its messages, made again only if an option changed.

        `make` gets no messages, no breakpoints in them and no id of a reply: these change with every request.
        """
        marks = request.breakpoints
        if marks:
            marks = tuple([mark for mark in marks if mark.position != "message"])
        options = replace(request, messages=(), breakpoints=marks, compare_reply_id="", server_state_until="")
        if self._frame is None or self._frame[0] != options:
            self._frame = options, make(options)
        frame: F = self._frame[1]
        return frame

    def join_messages(self, messages: Sequence[Message]) -> tuple[bytes, str]:
        self._extend(tuple(messages))
        closing = self._closing_bytes()
        return bytes(self._buffer) + closing, self._current_digest(closing).hex()

    def has_content(self, messages: Sequence[Message]) -> bool:
        """Return True if these messages produce anything on the wire."""
        self._extend(tuple(messages))
        return bool(self._buffer)

    def set_endpoint(self, endpoint: Endpoint) -> None:
        """Set the endpoint the messages are sent to; another one may need another encoding."""
        if endpoint is not self._endpoint and endpoint != self._endpoint:
            self._endpoint = endpoint
            self._restart()

    def set_head(self, made_of: object, make: Callable[[], bytes]) -> bytes:
        """Set the bytes before the messages, encoded again only if their source changed."""
        if self._head is None or self._head[0] != made_of:
            data = make()
            self._head = (made_of, data, blake2b(data, digest_size=DIGEST_BYTES).digest())
        return self._head[1]

    def build_body(
        self,
        messages: Sequence[Message],
        tail: bytes,
        marks: Mapping[int, bytes] = NO_MARKS,
        *,
        ending: bytes = b"",
    ) -> tuple[bytes, str]:
        """Join head, messages, tail and ending, and return them with a digest of all but the ending.

        The ending says how the reply is to be delivered and is not part of the request's content: a streamed
        and a non-streamed run of the same conversation must produce the same log.

        `marks` maps message indexes to bytes to insert. They are inserted into the copy only: breakpoints
        move from request to request, and the cached bytes must not change.
        """
        self._extend(tuple(messages))
        _, head, head_digest = self._head or (None, b"", b"")
        closing = self._closing_bytes()
        placed: list[tuple[int, bytes]] = []
        if marks:
            found = ((self._mark_at[index], mark) for index, mark in marks.items())
            placed = sorted(place for place in found if place[0] >= 0)
        places = b"".join([b"%d%b;" % place for place in placed]) if placed else b""
        digest = blake2b(
            head_digest + self._current_digest(closing) + places + tail, digest_size=DIGEST_BYTES
        )
        if not placed:
            return b"".join((head, self._buffer, closing, tail, ending)), digest.hexdigest()
        with memoryview(self._buffer) as view:
            views: list[memoryview] = []
            pieces: list[bytes | memoryview] = [head]
            start = 0
            for at, mark in placed:
                views.append(view[start:at])
                pieces += (views[-1], mark)
                start = at
            views.append(view[start:])
            pieces += (views[-1], closing, tail, ending)
            whole = b"".join(pieces)
            for each in views:
                each.release()
        return whole, digest.hexdigest()

    def _restart(self) -> None:
        self._write = self._writer(self._endpoint)
        self._seen: tuple[Message, ...] = ()
        self._buffer = bytearray()
        self._last = WireTurn(b"", b"", b"")
        self._starts: list[int] = []
        """Offsets of the messages in the buffer."""
        self._mark_at: list[int] = []
        self._hash = blake2b(digest_size=DIGEST_BYTES)

    def _extend(self, messages: tuple[Message, ...]) -> None:
        if messages is self._seen:
            return
        # Tuple comparison checks identity first, so comparing the same message objects is cheap.
        if messages[: len(self._seen)] != self._seen:
            self._restart()
        known, start = len(self._seen), len(self._buffer)
        try:
            for message in messages[known:]:
                self._append_message(message)
        except BaseException:
            self._restart()
            raise
        self._seen = messages
        if len(self._buffer) > start:
            self._hash.update(self._buffer[start:])

    def _append_message(self, message: Message) -> None:
        self._starts.append(len(self._buffer))
        mark_at = -1
        for turn in self._write(message):
            last = self._last
            again = turn.opening == last.opening
            if (
                again
                and turn.merges_with_previous
                and last.merges_with_previous
                and not last.required_next
                and not last.kept_at_end
            ):
                self._buffer += turn.separator
            else:
                owed = b"" if turn.answers_required else _make_required(last.required_next)
                owed = last.kept_at_end if again and not last.required_next else owed
                self._buffer += last.closing + owed + (b"," if self._buffer else b"") + turn.opening
            if turn.breakpoint_at >= 0:
                mark_at = len(self._buffer) + turn.breakpoint_at
            self._buffer += turn.items
            self._last = turn
        self._mark_at.append(mark_at)

    def _current_digest(self, closing: bytes) -> bytes:
        whole = self._hash.copy()
        whole.update(closing)
        return whole.digest()

    def _closing_bytes(self) -> bytes:
        last = self._last
        return last.closing + (_make_required(last.required_next) or last.required_at_end)


def _make_required(required: RequiredBytes) -> bytes:
    return required if isinstance(required, bytes) else required()


class EncodedMessagesPerModel(EncodedMessages):
    """Encoded history of a family whose encoding depends on the model, not only on the endpoint."""

    def __init__(self, writer: Callable[[Endpoint | None, str], MessageEncoder]) -> None:
        self._model_id = ""
        super().__init__(lambda endpoint: writer(endpoint, self._model_id))

    def set_model(self, model: Model) -> None:
        if model.id != self._model_id:
            self._model_id = model.id
            self._restart()
        self.set_endpoint(model.endpoint)


class ComparedTail:
    """The fields after the messages. The id of the reply to compare with is all that changes in every request."""

    def __init__(self, encode: Callable[[str], bytes]) -> None:
        """`encode` takes the id, which may be empty."""
        self._plain = encode("")
        self._before, id_, self._after = encode(ID_PLACEHOLDER).partition(dumps(ID_PLACEHOLDER))
        self._has_id = bool(id_)

    def encode(self, reply_id: str) -> bytes:
        return self._before + dumps(reply_id) + self._after if reply_id and self._has_id else self._plain


class LostResults:
    """Encodes results of calls whose own were never recorded: always the same bytes, except for the id."""

    def __init__(self, encode: Callable[[ToolResult, str], bytes]) -> None:
        """`encode` takes a result and the id that is sent with it."""
        encoded = encode(make_lost_result(""), ID_PLACEHOLDER)
        self._before, self._after = encoded.split(dumps(ID_PLACEHOLDER))

    def encode(self, sent_ids: Iterable[str]) -> bytes:
        return b",".join([b"%b%b%b" % (self._before, dumps(sent_id), self._after) for sent_id in sent_ids])


def make_lost_result(call_id: str) -> ToolResult:
    """The result that is sent for a call whose own result was never recorded."""
    return ToolResult(call_id=call_id, parts=(Text(text=LOST_RESULT_TEXT),), outcome="unknown")
