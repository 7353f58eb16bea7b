"""What a provider must be: a translator that never touches the network.

A codec is symmetric.  Our side encodes requests and decodes replies; their side
(used by the simulator and by history import) reads requests and speaks replies.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from ..values.delta import Delta
from ..values.errors import Failure
from ..values.message import Message, Reply
from ..values.model import Model
from ..values.request import OutputSpec, Request
from ..values.usage import Usage
from ..values.value import Value


class HttpRequest(Value):
    path: str
    """Relative to the endpoint's base URL."""
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()
    method: str = "POST"
    digest: str = ""
    """Hash of the body, made while it was joined."""


class HttpReply(Value):
    """A whole answer as the other side would send it; `frames` are its natural pieces, in order."""

    status: int
    headers: tuple[tuple[str, str], ...]
    frames: tuple[bytes, ...]


class Kept(Protocol):
    """Encoded messages of one conversation on one endpoint, so that none is encoded twice.

    Must only be given the messages of one append-only line: a message is known by its id,
    and is encoded the first time it is seen.
    """

    def joined(self, messages: Sequence[Message]) -> tuple[bytes, str]:
        """The wire bytes of all messages, joined with commas, and a digest of those bytes."""
        ...


class Decoder(Protocol):
    """Reads one answer.

    `feed` takes bytes in any slices and never blocks; what it returns is for show.
    `close` must be called once, after the last byte, and returns the reply or raises
    `ProviderError`; half a reply is never a reply.  `partial` is what was said so far.
    Neither may raise anything but `ProviderError`, whatever the bytes are.
    """

    def feed(self, data: bytes) -> Iterable[Delta]: ...

    def close(self) -> Reply: ...

    @property
    def partial(self) -> str: ...

    @property
    def counted(self) -> Usage:
        """What the provider has counted so far, marked incomplete; nothing when it counts only at the end."""
        ...


class Codec(Protocol):
    @property
    def family(self) -> str: ...

    @property
    def listed(self) -> str:
        """The member of a request's body that lists the conversation."""
        ...

    def recognizes(self, item: object) -> bool:
        """Whether an item of a conversation has a form that only this family lists."""
        ...

    def keep(self) -> Kept:
        """A fresh memory of encoded messages, for one conversation."""
        ...

    def encode(self, request: Request, kept: Kept | None = None) -> HttpRequest:
        """Must be deterministic.  The bytes up to the last message must not depend on what comes after."""
        ...

    def remarks(self, request: Request) -> Sequence[str]:
        """What of this request cannot be said on this wire as it was meant, one sentence each."""
        ...

    def reason_unfit(self, output: OutputSpec, model: Model) -> str:
        """Reason why this wire's own form of structured output cannot carry the schema; empty when it can.

        A run then asks for the answer by a tool.  Must not depend on anything but its arguments."""
        ...

    def decoder(self, request: Request, status: int, headers: Mapping[str, str]) -> Decoder:
        """Header names are lower-case.  May be given any status and any content type."""
        ...

    def read(self, request: HttpRequest) -> Request:
        """The request as the provider understands it; raises `ProviderError` when it is not one."""
        ...

    def speak(self, reply: Reply, *, stream: bool) -> HttpReply: ...

    def speak_failure(self, failure: Failure) -> HttpReply: ...
