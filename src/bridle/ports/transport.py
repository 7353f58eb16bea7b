"""What carries bytes out and back.

A transport must raise `ProviderError` (kinds `unreachable`, `timeout`, `cut`) and
nothing else for whatever goes wrong outside.  Leaving the context must close the
exchange at once, also in the middle of an answer.  It never retries.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from ..values.value import Value


class Outgoing(Value):
    """A request with everything on it that the wire needs, secrets included: never recorded, never shown."""

    method: str
    url: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def __repr__(self) -> str:
        return f"Outgoing({self.method} {self.url}, {len(self.body)} bytes)"


class Answer(Protocol):
    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Names in lower case."""
        ...

    def chunks(self) -> AsyncIterator[bytes]: ...


class Transport(Protocol):
    def open(self, outgoing: Outgoing) -> AbstractAsyncContextManager[Answer]: ...
