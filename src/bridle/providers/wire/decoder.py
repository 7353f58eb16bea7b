"""Base class of all decoders, and helpers for sending a request.

A reply arrives as one JSON body or as a stream, and its headers may be wrong about that; so the first
non-blank byte decides. An error status is a failure whatever follows. An incomplete reply is never returned,
and a decoder that failed once keeps failing. All of that is the same on every wire and implemented here; the
families define what an event means, when a stream has ended and what a body holds.

Decoders raise only `ProviderError`, whatever the bytes are.

A streamed call is complete when its block ends, with one exception: a reply that reaches the output limit may
end its last block before the first character of the arguments, which looks like a call without arguments.
`CompletedCalls` holds such a call back until something follows it.
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
"""The same limit as for one event of a stream; real bodies are far smaller."""
ERROR_BYTES_MAX = 1024 * 1024
"""Bytes read of an error page; more would not explain more."""
DONE_EVENT = b"[DONE]"
"""Event with which many servers end a stream, on any wire; it is not JSON."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_LEADING_BLANKS = b" \t\r\n" + _BYTE_ORDER_MARK

DECODE_ERRORS = (
    ProviderError, ValueError, RecursionError, TypeError, AttributeError, LookupError, ArithmeticError
)  # fmt: skip
"""Exceptions of decoding: a value of an unexpected type is the provider's mistake."""

K = TypeVar("K")


class EventReader(Protocol):
    """Splits a stream into events, in the form that the family's `_process_events` takes."""

    def feed(self, data: bytes) -> list[Any]: ...

    def close(self) -> list[tuple[bytes, bytes]]: ...


class BaseDecoder(ABC):
    expected_content: ClassVar[str] = "reply of this provider"
    """Description of the expected content, for errors about another server at this address."""
    end_marker: ClassVar[str] = "the end"
    """The provider's name of the event that a truncated stream lacks."""

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

    @staticmethod
    @abstractmethod
    def decode_failure(status: int, headers: Mapping[str, str], body: bytes) -> Failure:
        """Classify a response with an error status."""

    @abstractmethod
    def _process_events(self, events: list[Any]) -> list[Delta]:
        """Process the events of a stream. This is the hot path: usually all of them are text."""

    @abstractmethod
    def _process_event(self, name: bytes, data: bytes, deltas: list[Delta]) -> None:
        """Process one event of any kind; events after the end of the reply are ignored."""

    @property
    @abstractmethod
    def _is_complete(self) -> bool:
        """True if the stream has delivered everything that makes it a reply."""

    @abstractmethod
    def _build_reply(self) -> Reply:
        """Build the reply from the events of a stream."""

    @abstractmethod
    def _decode_body(self, body: bytes) -> Reply:
        """Decode the reply in a body, which `_parse_body` parses."""

    def _select_reader(self, start: bytes) -> EventReader | None:
        """Return the reader for a stream that begins with this byte; None for JSON or HTML."""
        return None if start in b'{[<"' else SseReader()

    def _complete_reply(self) -> Reply:
        body = b"".join(self._body)
        if not self._good:
            raise ProviderError(self.decode_failure(self._status, self._headers, body))
        if self._reader is None:
            return self._decode_body(body)
        self._process_trailing_events(self._reader.close())
        # defect: half-stream
        if not self._is_complete:
            raise self._make_error(
                "cut", f"the stream ended before the reply did: no {self.end_marker} arrived"
            )
        return self._build_reply()

    def _detect_format(self, data: bytes) -> bytes:
        if self._body:
            data = b"".join((*self._body, data))
            self._body, self._body_size = [], 0
        found = data if data[:1] == b"{" else data.lstrip(_LEADING_BLANKS)
        if not found:
            return data[-len(_BYTE_ORDER_MARK) :]
        self._sniffed = True
        self._reader = self._select_reader(found[:1])
        return found

    def _buffer_body(self, data: bytes) -> None:
        limit = BODY_BYTES_MAX if self._good else ERROR_BYTES_MAX
        size = self._body_size + len(data)
        if size <= limit:
            self._body.append(data)
            self._body_size = size
        elif self._good:
            raise self._make_error("garbled", f"the provider sent a reply of more than {limit} bytes")

    def _parse_body(self, body: bytes) -> Any:
        try:
            return loads(body)
        except ValueError:
            if not body.strip():
                raise self._make_error("cut", "the provider's reply was empty") from None
            if body.lstrip(_LEADING_BLANKS)[:1] in (b"{", b"["):
                raise self._make_error("cut", "the reply ended before it was complete") from None
            raise self._unrecognised_reply(body) from None

    def _process_trailing_events(self, events: Iterable[tuple[bytes, bytes]]) -> None:
        """Process an event without its final blank line if it is complete."""
        for name, data in events:
            try:
                if data.strip() != DONE_EVENT:
                    loads(data)
            except ValueError:
                return
            self._process_event(name, data, [])

    def _parse_event(self, data: bytes) -> Any:
        """Parse an event as JSON; raise for an invalid one, because it may have been part of the reply."""
        try:
            return loads(data)
        except ValueError as error:
            message = f"the provider sent an event that cannot be read ({error})"
            # guard: garbled-reply
            raise self._make_error("garbled", message) from None

    def _unrecognised_reply(self, body: bytes) -> ProviderError:
        return ProviderError(unrecognised_reply(self._status, self.expected_content, body))

    def _make_error(self, kind: FailureKind, message: str) -> ProviderError:
        return ProviderError(Failure(kind=kind, message=to_one_line(message), status=self._status))

    def _record_failure(self, error: Exception) -> ProviderError:
        # guard: decoder-error-wrapped
        if not isinstance(error, ProviderError):
            error = self._make_error("garbled", f"the provider sent what cannot be read ({error})")
        self._failure = error.failure
        return error


class MappedDecoder:
    """Wraps a decoder and changes the parts, and optionally the deltas, that it returns."""

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
    """Return the headers of every request; the sender adds the key."""
    headers = {"content-type": "application/json"}
    headers.update((name.lower(), value) for name, value in request.model.endpoint.headers)
    return tuple(headers.items())


def require_own_history(kept: EncodedHistory | None, kind: type[K], fresh: Callable[[], K]) -> K:
    """Return the encoded history to use; raise `MisuseError` if it belongs to another family."""
    if kept is None:
        return fresh()
    if not isinstance(kept, kind):
        raise MisuseError(
            "this history belongs to another codec; make one with new_history() of the codec that encodes"
        )
    return kept


class CompletedCalls:
    __slots__ = ("_count", "_held")

    def __init__(self) -> None:
        self._count = 0
        self._held: list[Delta] = []

    def start_call(self) -> int:
        """Register the start of a call and return its index among the calls of the reply."""
        self._count += 1
        return self._count - 1

    def end_call(self, index: int, call: ToolCall, *, sure: bool) -> list[Delta]:
        """Register the end of a call; `sure`: its arguments were really sent."""
        self._held.append(CallReady(index=index, call=call))
        return self.release_held() if sure else []

    def release_held(self) -> list[Delta]:
        """Return the calls held back, because something follows them."""
        if not self._held:
            return self._held
        held, self._held = self._held, []
        return held


def leave_open(parts: list[Part], *, cut: bool) -> list[Part]:
    """Return the parts of a complete reply; in a truncated one, a last call without arguments stays open.

    Open arguments are not JSON, so such a call never runs.
    """
    last = parts[-1] if parts else None
    if not cut or not isinstance(last, ToolCall) or last.arguments.strip() != "{}":
        return parts
    return [*parts[:-1], replace(last, arguments="")]
