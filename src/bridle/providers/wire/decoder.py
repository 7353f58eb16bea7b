"""What every family does around its own words: the shell of a decoder, and the ends of a request.

A reply comes as one JSON body or as a stream, and what its headers claim may be wrong; so the first
byte that says anything decides.  An error status is a failure whatever follows.  Half a reply is never
a reply, and a decoder that failed once fails for ever.  All of that is the same on every wire and is
here; what an event means, when a stream has ended and what a body holds is the family's to say.

Nothing but `ProviderError` leaves a decoder, whatever the bytes are.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Protocol, TypeVar

from msgspec.structs import replace

from bridle.ports.codec import Decoder, EncodedHistory
from bridle.values.errors import Failure, FailureKind, MisuseError, ProviderError
from bridle.values.message import Part, Reply, ToolCall
from bridle.values.request import Request
from bridle.values.result import CallReady, Delta
from bridle.values.usage import Usage

from .failures import to_one_line, unrecognised_reply
from .json import loads
from .sse import SseReader

BODY_BYTES_MAX = 64 * 1024 * 1024
"""As for one event of a stream: nothing real comes near it."""
ERROR_BYTES_MAX = 1024 * 1024
"""What is read of an error page; the rest would tell nobody more."""
DONE_EVENT = b"[DONE]"
"""The event many servers end a stream with, on whatever wire; it is no JSON."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_LEADING_BLANKS = b" \t\r\n" + _BYTE_ORDER_MARK

DECODE_ERRORS = (
    ProviderError, ValueError, RecursionError, TypeError, AttributeError, LookupError, ArithmeticError
)  # fmt: skip
"""Errors of reading: a value that has another type than every event like it is the provider's mistake."""

K = TypeVar("K")


class EventReader(Protocol):
    """Cuts a stream into events, in the form that the family's `_process_events` takes."""

    def feed(self, data: bytes) -> list[Any]: ...

    def close(self) -> list[tuple[bytes, bytes]]: ...


class BaseDecoder(ABC):
    expected_content: ClassVar[str] = "reply of this provider"
    """What a stranger at this address does not send."""
    end_marker: ClassVar[str] = "the end"
    """What a stream that was cut off lacks, in the provider's words."""

    def __init__(self, status: int, headers: Mapping[str, str]) -> None:
        self._status, self._headers = status, headers
        self._good = 200 <= status < 300
        self._reader: EventReader | None = None
        self._sniffed = not self._good
        self._body: list[bytes] = []
        self._body_size = 0
        self._failure: Failure | None = None

    def feed(self, data: bytes) -> list[Delta]:
        if self._failure is not None:
            raise ProviderError(self._failure)
        try:
            if not self._sniffed:
                data = self._detect_format(data)
            if self._reader is None:
                self._buffer_body(data)
                return []
            return self._process_events(self._reader.feed(data))
        except DECODE_ERRORS as error:
            raise self._record_failure(error) from None

    def close(self) -> Reply:
        if self._failure is not None:
            raise ProviderError(self._failure)
        try:
            return self._complete_reply()
        except DECODE_ERRORS as error:
            raise self._record_failure(error) from None

    @abstractmethod
    def _process_events(self, events: list[Any]) -> list[Delta]:
        """Events of a stream, which may be all words: the road that has to be short."""

    @abstractmethod
    def _process_event(self, name: bytes, data: bytes, deltas: list[Delta]) -> None:
        """One event, of any kind; nothing, once the reply has ended."""

    @property
    @abstractmethod
    def _is_complete(self) -> bool:
        """Whether the stream has said all that makes it a reply."""

    @abstractmethod
    def _build_reply(self) -> Reply:
        """The reply a stream has told."""

    @abstractmethod
    def _decode_body(self, body: bytes) -> Reply:
        """The reply in a body, which is read by `_whole`."""

    @abstractmethod
    def _decode_error(self, body: bytes) -> Failure:
        """What an error status and its body mean."""

    def _select_reader(self, start: bytes) -> EventReader | None:
        """What reads a stream that begins with this byte; None when it is no stream.

        Events never begin like JSON or a page does.
        """
        return None if start in b'{[<"' else SseReader()

    def _complete_reply(self) -> Reply:
        body = b"".join(self._body)
        if not self._good:
            raise ProviderError(self._decode_error(body))
        if self._reader is None:
            return self._decode_body(body)
        self._process_trailing_events(self._reader.close())
        if not self._is_complete:
            raise self._make_error(
                "cut", f"the stream ended before the reply did: no {self.end_marker} arrived"
            )
        return self._build_reply()

    def _detect_format(self, data: bytes) -> bytes:
        data = b"".join((*self._body, data))
        self._body, self._body_size = [], 0
        start = data.lstrip(_LEADING_BLANKS)[:1]
        if not start:
            return data[-len(_BYTE_ORDER_MARK) :]
        self._sniffed = True
        self._reader = self._select_reader(start)
        return data.lstrip(_LEADING_BLANKS)

    def _buffer_body(self, data: bytes) -> None:
        limit = BODY_BYTES_MAX if self._good else ERROR_BYTES_MAX
        if self._body_size + len(data) <= limit:
            self._body.append(data)
            self._body_size += len(data)
        elif self._good:
            raise self._make_error("garbled", f"the provider sent a reply of more than {limit} bytes")

    def _parse_body(self, body: bytes) -> Any:
        """The JSON of a body."""
        try:
            return loads(body)
        except ValueError:
            if not body.strip():
                raise self._make_error("cut", "the provider's reply was empty") from None
            if body.lstrip(_LEADING_BLANKS)[:1] in (b"{", b"["):
                raise self._make_error("cut", "the reply ended before it was complete") from None
            raise self._unrecognised_reply(body) from None

    def _process_trailing_events(self, events: Iterable[tuple[bytes, bytes]]) -> None:
        """An event without its final blank line counts when it is whole."""
        for name, data in events:
            try:
                if data.strip() != DONE_EVENT:
                    loads(data)
            except ValueError:
                return
            self._process_event(name, data, [])

    def _parse_event(self, data: bytes) -> Any:
        """The JSON of an event; one that cannot be read may have been part of what was said."""
        try:
            return loads(data)
        except ValueError as error:
            message = f"the provider sent an event that cannot be read ({error})"
            raise self._make_error("garbled", message) from None

    def _unrecognised_reply(self, body: bytes) -> ProviderError:
        return ProviderError(unrecognised_reply(self._status, self.expected_content, body))

    def _make_error(self, kind: FailureKind, message: str) -> ProviderError:
        return ProviderError(Failure(kind=kind, message=to_one_line(message), status=self._status))

    def _record_failure(self, error: Exception) -> ProviderError:
        if not isinstance(error, ProviderError):
            error = self._make_error("garbled", f"the provider sent what cannot be read ({error})")
        self._failure = error.failure
        return error


class MappedDecoder:
    """A decoder whose parts, and deltas if wanted, are changed on the way out."""

    def __init__(
        self,
        decoder: Decoder,
        change_part: Callable[[Part], Part],
        change_delta: Callable[[Delta], Delta] | None = None,
    ) -> None:
        self._decoder, self._change_part, self._change_delta = decoder, change_part, change_delta

    @property
    def partial_text(self) -> str:
        return self._decoder.partial_text

    @property
    def partial_usage(self) -> Usage:
        return self._decoder.partial_usage

    def feed(self, data: bytes) -> Iterable[Delta]:
        deltas = self._decoder.feed(data)
        return deltas if self._change_delta is None else [self._change_delta(delta) for delta in deltas]

    def close(self) -> Reply:
        reply = self._decoder.close()
        return replace(reply, parts=tuple(map(self._change_part, reply.parts)))


def request_headers(request: Request) -> tuple[tuple[str, str], ...]:
    """The headers of every request; a key is added by whoever sends it."""
    headers = {"content-type": "application/json"}
    headers.update((name.lower(), value) for name, value in request.model.endpoint.headers)
    return tuple(headers.items())


def require_own_history(kept: EncodedHistory | None, kind: type[K], fresh: Callable[[], K]) -> K:
    """The memory of encoded messages to use; raises `MisuseError` when it is another family's."""
    if kept is None:
        return fresh()
    if not isinstance(kept, kind):
        raise MisuseError("these messages were not kept by this codec: use what its keep() returns")
    return kept


# Which calls of a streamed reply are complete while the reply goes on.
#
# A call is complete when its block ends.  There is one exception: a reply that runs out of room
# may end its last block before the first word of the arguments, and that looks like a call
# without any.  Such a call is held back until something comes after it.


class CompletedCalls:
    __slots__ = ("_count", "_held")

    def __init__(self) -> None:
        self._count = 0
        self._held: list[Delta] = []

    def start_call(self) -> int:
        """A call begins: which of the reply's calls it is."""
        self._count += 1
        return self._count - 1

    def end_call(self, index: int, call: ToolCall, *, sure: bool) -> list[Delta]:
        """Its block ended; `sure` when its arguments were really said."""
        self._held.append(CallReady(index=index, call=call))
        return self.release_held() if sure else []

    def release_held(self) -> list[Delta]:
        """Something comes after the calls so far."""
        if not self._held:
            return self._held
        held, self._held = self._held, []
        return held


def leave_open(parts: list[Part], *, cut: bool) -> list[Part]:
    """The parts of a reply that came whole; a call without arguments where the reply was cut off stays open.

    Open arguments are no JSON, so such a call never runs.
    """
    last = parts[-1] if parts else None
    if not cut or not isinstance(last, ToolCall) or last.arguments.strip() != "{}":
        return parts
    return [*parts[:-1], replace(last, arguments="")]
