"""Messages encoded once: the memory behind a byte-stable wire.

A message never changes, so its bytes are made the first time it is seen and only joined from then
on; the digest of the joined bytes runs along.  Asking again therefore costs the new messages and
one copy, however long the conversation is.

A family brings a `Writer`, which turns one message into its turns on the wire, and which may remember
what it wrote (ids, for one).  A turn is opened, filled and closed; where a wire wants its speakers to
alternate, a turn that `merges` continues the one before it when both are opened alike.  The last turn
stays open in here and is closed in the copy that is handed out.  Where a wire demands that something
follows (an answer to every call), a turn says what it is `owed`; it is written when the next turn does
not pay, and at the end of the copy.

The line of messages may only grow.  Given anything else (a shortened or changed line, another
endpoint) the memory starts anew rather than send bytes that do not belong to what it was given:
slower, and right.
"""

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

from bridle.values.message import Message, Text, ToolResult
from bridle.values.model import Endpoint, Model

CONTINUE_TEXT = "Continue where you stopped."
"""Said for the user where a conversation may not end with what the model said."""
HIDDEN_BEGINNING_TEXT = "The beginning of this conversation is not shown."
"""Said for the user where a conversation may not begin with what the model said."""
LOST_RESULT_TEXT = "No result: this call was interrupted, or what came of it was lost."
DIGEST_BYTES = 16
"""Enough to tell requests apart; a digest is kept with every call in the log."""


class WireTurn(NamedTuple):
    """A wire message, or a piece of one: `opening + items + closing`."""

    opening: bytes
    items: bytes
    closing: bytes
    breakpoint_at: int = -1
    """Where in `items` a cache mark may be put; -1 when nothing here can carry one."""
    merges_with_previous: bool = False
    separator: bytes = b","
    """What stands between the items of a turn and those of one that merged with it."""
    required_next: bytes = b""
    """What has to follow on this wire (answers to calls, say), should the line go on without it."""
    answers_required: bool = False
    """Whether this turn is, or repeats, what the turn before it owed."""
    required_at_end: bytes = b""
    """What has to follow when nothing else does; unlike what is owed, any other turn does as well."""
    kept_at_end: bytes = b""
    """The `at_end` that a further turn of the same role answered: it stays between the two of them."""


MessageEncoder = Callable[[Message], Sequence[WireTurn]]
NO_MARKS: Mapping[int, bytes] = {}


class EncodedMessages:
    """The `Kept` of every family that sends a list of messages."""

    def __init__(self, writer: Callable[[Endpoint | None], MessageEncoder]) -> None:
        self._writer = writer
        self._endpoint: Endpoint | None = None
        self._head: tuple[object, bytes, bytes] | None = None
        self._restart()

    def join_messages(self, messages: Sequence[Message]) -> tuple[bytes, str]:
        self._extend(tuple(messages))
        return b"".join((self._buffer, *self._closing_bytes())), self._current_digest().hex()

    def has_content(self, messages: Sequence[Message]) -> bool:
        """Whether these messages come to anything at all on the wire."""
        self._extend(tuple(messages))
        return bool(self._buffer)

    def set_endpoint(self, endpoint: Endpoint) -> None:
        """Where these messages go; another endpoint may want them written otherwise."""
        if endpoint is not self._endpoint and endpoint != self._endpoint:
            self._endpoint = endpoint
            self._restart()

    def set_head(self, made_of: object, make: Callable[[], bytes]) -> bytes:
        """The bytes in front of the messages, made again only when what they are made of has changed."""
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
        """Head, messages, tail and ending as one, and a digest of all but the ending.

        The ending says how the answer is to be delivered.  It is no part of what was asked: a streamed
        and a whole run of the same conversation must leave the same log.

        `marks` are bytes to put into the message of that number.  They are put into the copy only: a
        mark moves from request to request, and the kept bytes must not.
        """
        self._extend(tuple(messages))
        _, head, head_digest = self._head or (None, b"", b"")
        placed = sorted(
            (self._mark_at[index], mark) for index, mark in marks.items() if self._mark_at[index] >= 0
        )
        digest = blake2b(head_digest, digest_size=DIGEST_BYTES)
        digest.update(self._current_digest())
        digest.update(b"".join(b"%d%b;" % place for place in placed))
        digest.update(tail)
        with memoryview(self._buffer) as view:
            pieces: list[bytes | memoryview] = [head]
            start = 0
            for at, mark in placed:
                pieces += (view[start:at], mark)
                start = at
            pieces += (view[start:], *self._closing_bytes(), tail, ending)
            whole = b"".join(pieces)
            for piece in pieces:
                if isinstance(piece, memoryview):
                    piece.release()
        return whole, digest.hexdigest()

    def _restart(self) -> None:
        self._write = self._writer(self._endpoint)
        self._seen: tuple[Message, ...] = ()
        self._buffer = bytearray()
        self._last = WireTurn(b"", b"", b"")
        self._mark_at: list[int] = []
        self._hash = blake2b(digest_size=DIGEST_BYTES)

    def _extend(self, messages: tuple[Message, ...]) -> None:
        # Comparing tuples looks at identity first, so a line of the very same messages costs next to nothing.
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
            self._hash.update(bytes(self._buffer[start:]))

    def _append_message(self, message: Message) -> None:
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
                owed = b"" if turn.answers_required else last.required_next
                owed = last.kept_at_end if again and not last.required_next else owed
                self._buffer += last.closing + owed + (b"," if self._buffer else b"") + turn.opening
            if turn.breakpoint_at >= 0:
                mark_at = len(self._buffer) + turn.breakpoint_at
            self._buffer += turn.items
            self._last = turn
        self._mark_at.append(mark_at)

    def _current_digest(self) -> bytes:
        whole = self._hash.copy()
        whole.update(b"".join(self._closing_bytes()))
        return whole.digest()

    def _closing_bytes(self) -> tuple[bytes, bytes]:
        return self._last.closing, self._last.required_next or self._last.required_at_end


class EncodedMessagesPerModel(EncodedMessages):
    """Kept messages of a family that writes them otherwise for another model of the same endpoint."""

    def __init__(self, writer: Callable[[Endpoint | None, str], MessageEncoder]) -> None:
        self._model_id = ""
        super().__init__(lambda endpoint: writer(endpoint, self._model_id))

    def set_model(self, model: Model) -> None:
        if model.id != self._model_id:
            self._model_id = model.id
            self._restart()
        self.set_endpoint(model.endpoint)


def make_lost_result(call_id: str) -> ToolResult:
    """The result that is sent for a call whose own result was never recorded."""
    return ToolResult(call_id=call_id, parts=(Text(text=LOST_RESULT_TEXT),), outcome="unknown")
