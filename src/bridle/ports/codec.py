"""Contract of a wire format: a codec translates between values and bytes and never touches the network.

`Codec` is the client's side; it also reads requests, which history import and the simulator need.
`ServerCodec` is the server's side: it encodes replies and failures.

Optional protocols cover providers that store conversations or prompts.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, runtime_checkable

from bridle.values.base import Value
from bridle.values.errors import Failure
from bridle.values.message import Message, Reply
from bridle.values.model import Model
from bridle.values.request import Extra, OutputSpec, Request
from bridle.values.result import Delta
from bridle.values.usage import Usage


class HttpRequest(Value, kw_only=True):
    path: str
    """Relative to the endpoint's base URL."""
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()
    method: str = "POST"
    digest: str = ""
    """Hash of the body, computed while it was joined."""


class HttpReply(Value, kw_only=True):
    """A complete response as the provider would send it; `frames` are its natural pieces, in order."""

    status: int
    headers: tuple[tuple[str, str], ...]
    frames: tuple[bytes, ...]


class EncodedHistory(Protocol):
    """Cache of encoded messages of one conversation on one endpoint.

    Must be used for one append-only transcript only: a message is identified by its id and encoded the first
    time it is seen.
    """

    def join_messages(self, messages: Sequence[Message]) -> tuple[bytes, str]:
        """Wire bytes of all messages joined with commas, and a digest of those bytes."""
        ...


class Decoder(Protocol):
    """Decodes one response.

    `feed` takes bytes in any slices and never blocks; its deltas are for display. `close` must be called once
    after the last byte; it returns the reply or raises `ProviderError`. An incomplete reply is never a reply;
    `partial_text` is the text so far. Neither may raise anything but `ProviderError`, whatever the bytes are.
    """

    def feed(self, data: bytes) -> Iterable[Delta]: ...

    def close(self) -> Reply: ...

    @property
    def partial_text(self) -> str: ...

    @property
    def partial_usage(self) -> Usage:
        """Usage reported so far, marked incomplete; empty if the provider reports only at the end."""
        ...


class Codec(Protocol):
    @property
    def family(self) -> str: ...

    @property
    def messages_field(self) -> str:
        """Member of the request body that lists the conversation."""
        ...

    @property
    def reserved_fields(self) -> frozenset[str]:
        """Members of the request body that no extra may set: the request has them elsewhere."""
        ...

    def check_extra(self, extra: Extra) -> None:
        """Raise `MisuseError` for an extra of this family that cannot be sent."""
        ...

    def recognizes_item(self, item: object) -> bool:
        """True if only this family lists conversation items of this form."""
        ...

    def new_history(self) -> EncodedHistory:
        """A new, empty cache of encoded messages for one conversation."""
        ...

    def encode(self, request: Request, kept: EncodedHistory | None = None) -> HttpRequest:
        """Encode a request, deterministically; the bytes of a message must not depend on later messages."""
        ...

    def list_losses(self, request: Request, *, with_schemas: bool = True) -> Sequence[str]:
        """Parts of the request that this wire cannot express as intended, one sentence each.

        Constraints of schemas are among them, although the harness checks them itself; `with_schemas=False` omits
        those.
        """
        ...

    def list_unsent_media(self, messages: Iterable[Message], model: Model) -> Sequence[str]:
        """Media of these messages in whose place a text is sent, as the wire has no form for it; one sentence each.

        Must depend on nothing but its arguments.
        """
        ...

    def explain_unsupported_output(self, output: OutputSpec, model: Model) -> str:
        """Reason why the wire's native structured output cannot express the schema; empty if it can.

        The run then requests the answer through a tool. Must depend on nothing but its arguments.
        """
        ...

    def new_decoder(self, request: Request, status: int, headers: Mapping[str, str]) -> Decoder:
        """Decoder for the response to `request`, for any status and content type.

        Header names are lower-case.
        """
        ...

    def decode_request(self, request: HttpRequest) -> Request:
        """The request as the provider understands it; raises `ProviderError` if it is invalid."""
        ...


class ServerCodec(Protocol):
    """The server's side of a wire, for simulators and checks: replies and failures as a provider sends them."""

    def encode_reply(self, reply: Reply, *, stream: bool) -> HttpReply: ...

    def encode_failure(self, failure: Failure) -> HttpReply: ...


@runtime_checkable
class SupportsConversations(Protocol):
    """Optional: a codec whose provider stores conversations as objects."""

    def encode_open_conversation(self, model: Model) -> HttpRequest:
        """Request to create an empty conversation object."""
        ...

    def decode_opened_conversation(self, status: int, headers: Mapping[str, str], body: bytes) -> str:
        """Name of the created object; raises `ProviderError` if the response is a refusal or invalid."""
        ...


class StoredPromptInfo(Value, kw_only=True):
    """A stored prompt as reported by the provider."""

    name: str
    tokens: int


@runtime_checkable
class SupportsStoredPrompts(Protocol):
    """Optional: a codec whose provider stores prompts under a name, for a fee."""

    def encode_store_prompt(self, request: Request, seconds: float, label: str) -> HttpRequest:
        """Request to store the tools and system prompt of `request`, without its messages."""
        ...

    def encode_extend_prompt(self, name: str, seconds: float) -> HttpRequest:
        """Request to set the remaining lifetime."""
        ...

    def encode_drop_prompt(self, name: str) -> HttpRequest: ...

    def decode_stored_prompt(self, status: int, headers: Mapping[str, str], body: bytes) -> StoredPromptInfo:
        """Decode the response to any of these requests; raises `ProviderError` if it is a refusal or invalid."""
        ...
