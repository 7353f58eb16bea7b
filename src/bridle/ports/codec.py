"""Contract of a wire format: a codec translates between values and bytes and never touches the network.

`Codec` is the client's side; it also reads requests, which history import and the simulator need.
`ServerCodec` is the server's side: it encodes replies and failures.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, runtime_checkable

from bridle.values.base import Value
from bridle.values.errors import Failure
from bridle.values.message import Message, Reply
from bridle.values.model import Model
from bridle.values.request import OutputSpec, Request
from bridle.values.result import Delta
from bridle.values.usage import Usage


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


class EncodedHistory(Protocol):
    """Encoded messages of one conversation on one endpoint, so that none is encoded twice.

    Must only be given the messages of one append-only line: a message is known by its id,
    and is encoded the first time it is seen.
    """

    def join_messages(self, messages: Sequence[Message]) -> tuple[bytes, str]:
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
    def partial_text(self) -> str: ...

    @property
    def partial_usage(self) -> Usage:
        """What the provider has counted so far, marked incomplete; nothing when it counts only at the end."""
        ...


class Codec(Protocol):
    @property
    def family(self) -> str: ...

    @property
    def messages_field(self) -> str:
        """The member of a request's body that lists the conversation."""
        ...

    def recognizes_item(self, item: object) -> bool:
        """Whether an item of a conversation has a form that only this family lists."""
        ...

    def new_history(self) -> EncodedHistory:
        """A fresh memory of encoded messages, for one conversation."""
        ...

    def encode(self, request: Request, kept: EncodedHistory | None = None) -> HttpRequest:
        """Must be deterministic.  The bytes up to the last message must not depend on what comes after."""
        ...

    def list_losses(self, request: Request) -> Sequence[str]:
        """What of this request cannot be said on this wire as it was meant, one sentence each."""
        ...

    def explain_unsupported_output(self, output: OutputSpec, model: Model) -> str:
        """Reason why this wire's own form of structured output cannot carry the schema; empty when it can.

        A run then asks for the answer by a tool.  Must not depend on anything but its arguments."""
        ...

    def new_decoder(self, request: Request, status: int, headers: Mapping[str, str]) -> Decoder:
        """Header names are lower-case.  May be given any status and any content type."""
        ...

    def decode_request(self, request: HttpRequest) -> Request:
        """The request as the provider understands it; raises `ProviderError` when it is not one."""
        ...


class ServerCodec(Protocol):
    """The server's side of a wire, for simulators and checks: replies and failures as a provider sends them."""

    def encode_reply(self, reply: Reply, *, stream: bool) -> HttpReply: ...

    def encode_failure(self, failure: Failure) -> HttpReply: ...


# Contract of a codec whose provider keeps a conversation as an object of its own; a codec may meet it.


@runtime_checkable
class SupportsConversations(Protocol):
    def encode_open_conversation(self, model: Model) -> HttpRequest:
        """Request for a new, empty conversation object."""
        ...

    def decode_opened_conversation(self, status: int, headers: Mapping[str, str], body: bytes) -> str:
        """Name of the object that was made; raises `ProviderError` when it was refused or is no answer."""
        ...


# What a codec may be besides: one whose provider keeps prompts by name, for as long as is paid for.


class StoredPromptInfo(Value):
    """What the provider says it keeps."""

    name: str
    tokens: int


@runtime_checkable
class SupportsStoredPrompts(Protocol):
    def encode_store_prompt(self, request: Request, seconds: float, label: str) -> HttpRequest:
        """Keep the tools and the system prompt of this request, and nothing of its messages."""
        ...

    def encode_extend_prompt(self, name: str, seconds: float) -> HttpRequest:
        """Keep it for so long from now on."""
        ...

    def encode_drop_prompt(self, name: str) -> HttpRequest: ...

    def decode_stored_prompt(self, status: int, headers: Mapping[str, str], body: bytes) -> StoredPromptInfo:
        """What came back, of any of them; raises `ProviderError` when it was refused or is no answer."""
        ...
