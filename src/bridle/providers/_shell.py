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

from ..ports.codec import Kept
from ..values.delta import Delta
from ..values.errors import Failure, FailureKind, MisuseError, ProviderError
from ..values.message import Reply
from ..values.request import Request
from ._failures import one_line, stranger
from ._json import loads
from ._sse import SseReader

BODY_BYTES_MAX = 64 * 1024 * 1024
"""As for one event of a stream: nothing real comes near it."""
ERROR_BYTES_MAX = 1024 * 1024
"""What is read of an error page; the rest would tell nobody more."""
DONE = b"[DONE]"
"""The event many servers end a stream with, on whatever wire; it is no JSON."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_BLANK = b" \t\r\n" + _BYTE_ORDER_MARK

UNREADABLE = (
    ProviderError, ValueError, RecursionError, TypeError, AttributeError, LookupError, ArithmeticError
)  # fmt: skip
"""Errors of reading: a value that has another type than every event like it is the provider's mistake."""

K = TypeVar("K")


class Reader(Protocol):
    """What cuts a stream into events: a name, which may be empty, and the data of each."""

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]: ...

    def close(self) -> list[tuple[bytes, bytes]]: ...


class DecoderShell(ABC):
    wanted: ClassVar[str] = "reply of this provider"
    """What a stranger at this address does not send."""
    ending: ClassVar[str] = "the end"
    """What a stream that was cut off lacks, in the provider's words."""

    def __init__(self, status: int, headers: Mapping[str, str]) -> None:
        self._status, self._headers = status, headers
        self._good = 200 <= status < 300
        self._reader: Reader | None = None
        self._sniffed = not self._good
        self._body: list[bytes] = []
        self._body_size = 0
        self._failure: Failure | None = None

    def feed(self, data: bytes) -> list[Delta]:
        if self._failure is not None:
            raise ProviderError(self._failure)
        try:
            if not self._sniffed:
                data = self._sniff(data)
            if self._reader is None:
                self._hold(data)
                return []
            return self._take(self._reader.feed(data))
        except UNREADABLE as error:
            raise self._failed_by(error) from None

    def close(self) -> Reply:
        if self._failure is not None:
            raise ProviderError(self._failure)
        try:
            return self._closed()
        except UNREADABLE as error:
            raise self._failed_by(error) from None

    @abstractmethod
    def _take(self, events: list[tuple[bytes, bytes]]) -> list[Delta]:
        """Events of a stream, which may be all words: the road that has to be short."""

    @abstractmethod
    def _read(self, name: bytes, data: bytes, deltas: list[Delta]) -> None:
        """One event, of any kind; nothing, once the reply has ended."""

    @property
    @abstractmethod
    def _is_over(self) -> bool:
        """Whether the stream has said all that makes it a reply."""

    @abstractmethod
    def _told(self) -> Reply:
        """The reply a stream has told."""

    @abstractmethod
    def _from_json(self, body: bytes) -> Reply:
        """The reply in a body, which is read by `_whole`."""

    @abstractmethod
    def _refusal(self, body: bytes) -> Failure:
        """What an error status and its body mean."""

    def _reader_of(self, start: bytes) -> Reader | None:
        """What reads a stream that begins with this byte; None when it is no stream.

        Events never begin like JSON or a page does.
        """
        return None if start in b'{[<"' else SseReader()

    def _closed(self) -> Reply:
        body = b"".join(self._body)
        if not self._good:
            raise ProviderError(self._refusal(body))
        if self._reader is None:
            return self._from_json(body)
        self._last_words(self._reader.close())
        if not self._is_over:
            raise self._problem("cut", f"the stream ended before the reply did: no {self.ending} arrived")
        return self._told()

    def _sniff(self, data: bytes) -> bytes:
        data = b"".join((*self._body, data))
        self._body, self._body_size = [], 0
        start = data.lstrip(_BLANK)[:1]
        if not start:
            return data[-len(_BYTE_ORDER_MARK) :]
        self._sniffed = True
        self._reader = self._reader_of(start)
        return data.lstrip(_BLANK)

    def _hold(self, data: bytes) -> None:
        limit = BODY_BYTES_MAX if self._good else ERROR_BYTES_MAX
        if self._body_size + len(data) <= limit:
            self._body.append(data)
            self._body_size += len(data)
        elif self._good:
            raise self._problem("garbled", f"the provider sent a reply of more than {limit} bytes")

    def _whole(self, body: bytes) -> Any:
        """The JSON of a body."""
        try:
            return loads(body)
        except ValueError:
            if not body.strip():
                raise self._problem("cut", "the provider's reply was empty") from None
            if body.lstrip(_BLANK)[:1] in (b"{", b"["):
                raise self._problem("cut", "the reply ended before it was complete") from None
            raise self._stranger(body) from None

    def _last_words(self, events: Iterable[tuple[bytes, bytes]]) -> None:
        """An event without its final blank line counts when it is whole."""
        for name, data in events:
            try:
                if data.strip() != DONE:
                    loads(data)
            except ValueError:
                return
            self._read(name, data, [])

    def _event(self, data: bytes) -> Any:
        """The JSON of an event; one that cannot be read may have been part of what was said."""
        try:
            return loads(data)
        except ValueError as error:
            message = f"the provider sent an event that cannot be read ({error})"
            raise self._problem("garbled", message) from None

    def _stranger(self, body: bytes) -> ProviderError:
        return ProviderError(stranger(self._status, self.wanted, body))

    def _problem(self, kind: FailureKind, message: str) -> ProviderError:
        return ProviderError(Failure(kind=kind, message=one_line(message), status=self._status))

    def _failed_by(self, error: Exception) -> ProviderError:
        if not isinstance(error, ProviderError):
            error = self._problem("garbled", f"the provider sent what cannot be read ({error})")
        self._failure = error.failure
        return error


def json_headers(request: Request) -> tuple[tuple[str, str], ...]:
    """The headers of every request; a key is added by whoever sends it."""
    headers = {"content-type": "application/json"}
    headers.update((name.lower(), value) for name, value in request.model.endpoint.headers)
    return tuple(headers.items())


def kept_here(kept: Kept | None, kind: type[K], fresh: Callable[[], K]) -> K:
    """The memory of encoded messages to use; raises `MisuseError` when it is another family's."""
    if kept is None:
        return fresh()
    if not isinstance(kept, kind):
        raise MisuseError("these messages were not kept by this codec: use what its keep() returns")
    return kept
