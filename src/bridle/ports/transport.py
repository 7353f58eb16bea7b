"""What carries bytes out and back.

A transport must raise `ProviderError` (kinds `unreachable`, `timeout`, `cut`) and
nothing else for whatever goes wrong outside.  Leaving the context must close the
exchange at once, also in the middle of an answer.  It never retries.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from bridle.values.base import Value


class OutgoingRequest(Value):
    """A request with everything on it that the wire needs, secrets included: never recorded, never shown."""

    method: str
    url: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def __repr__(self) -> str:
        return f"Outgoing({self.method} {self.url}, {len(self.body)} bytes)"


class SilentPause(Value, tag="pause"):
    """Nothing is sent for this long."""

    seconds: float


class ConnectionCut(Value, tag="cut"):
    """The connection is gone: what follows is never sent, and the answer has no end."""

    reset: bool = False
    """Whether it is torn down instead of closed, which may take with it what was not read yet."""


class ResponseTimeline(Value):
    """An answer as it happens: bytes, silence, and perhaps a broken connection, in this order.

    A cut at the very beginning means that not even the status arrives.
    """

    status: int
    headers: tuple[tuple[str, str], ...]
    steps: tuple[bytes | SilentPause | ConnectionCut, ...]
    delay_seconds: float = 0.0
    """Silence before the status."""

    @property
    def body(self) -> bytes:
        """What arrives of the answer."""
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
