"""Contract of a transport, which sends a request and streams the response.

A transport must raise `ProviderError` (kinds `unreachable`, `timeout`, `cut`) and nothing else for external
failures. Leaving the context must close the exchange immediately, even in the middle of a response. It never
retries.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from bridle.values.base import Value


class OutgoingRequest(Value, kw_only=True):
    """A complete request including secrets: never recorded, never shown."""

    method: str
    url: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    secrets: frozenset[str] = frozenset()
    """Credentials in the body; those in headers and the URL are found by name."""
    private_texts: frozenset[str] = frozenset()
    """Strings of the body that are not to be recorded; some may be ordinary words."""

    def __repr__(self) -> str:
        return f"Outgoing({self.method} {self.url}, {len(self.body)} bytes)"


class SilentPause(Value, kw_only=True, tag="pause"):
    """A pause of this length in which the server sends nothing."""

    seconds: float


class ConnectionCut(Value, kw_only=True, tag="cut"):
    """The connection breaks: nothing after it is sent, and the response has no end."""

    reset: bool = False
    """True if the connection is reset, which may discard bytes not yet read; False if it is closed."""


class ResponseTimeline(Value, kw_only=True):
    """A response over time: bytes, silence, and possibly a broken connection, in this order.

    If a cut comes first, not even the status arrives.
    """

    status: int
    headers: tuple[tuple[str, str], ...]
    steps: tuple[bytes | SilentPause | ConnectionCut, ...]
    delay_seconds: float = 0.0
    """Silence before the status."""

    @property
    def body(self) -> bytes:
        """Bytes that arrive."""
        end = next(
            (at for at, beat in enumerate(self.steps) if isinstance(beat, ConnectionCut)), len(self.steps)
        )
        return b"".join(beat for beat in self.steps[:end] if isinstance(beat, bytes))


class TransportResponse(Protocol):
    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Names in lower case."""
        ...

    def chunks(self) -> AsyncIterator[bytes]: ...


class Transport(Protocol):
    def open(self, outgoing: OutgoingRequest) -> AbstractAsyncContextManager[TransportResponse]: ...
