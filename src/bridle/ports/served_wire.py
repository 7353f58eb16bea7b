"""Contract of a wire that this program serves: what a provider has besides the form of one request and one reply."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

from bridle.values.base import Value
from bridle.values.errors import Failure, FailureKind
from bridle.values.message import Message, Part, Reasoning, Reply, Text, ToolCall
from bridle.values.request import Extra, Request, ToolSpec
from bridle.values.result import ReasoningDelta, TextDelta

from .codec import HttpReply, HttpRequest
from .tool import Json

WireAction = Literal["answer", "count", "list", "show"]
"""Reply to a conversation, count its tokens, list the models, show one of them."""


class ClientTool(Value, kw_only=True):
    """A callable tool of a client, with what its calls carry beyond a name and arguments."""

    spec: ToolSpec
    call_native: str | None = None
    """The `ToolCall.native` of a call to this tool; None for a plain function."""
    qualified_name: str = ""
    """Name with its namespace, for a tool whose own name occurs in several namespaces."""
    definition: str = ""
    """The tool as the client wrote it, if `spec` does not hold all of it."""
    unread: tuple[str, ...] = ()
    """Members of the definition that neither `spec` nor `definition` holds."""


class ReplyStream(Protocol):
    """Encodes a reply while it is written; what its methods return, joined, is the body of the response."""

    @property
    def identity(self) -> str: ...

    @property
    def content_type(self) -> str: ...

    @property
    def parts(self) -> Sequence[Text | Reasoning | ToolCall]:
        """The parts written so far."""
        ...

    def open(self) -> bytes: ...

    def keep_alive(self) -> bytes:
        """Bytes without content, for a time in which there is none, so that the connection is used."""
        ...

    def write(self, delta: TextDelta | ReasoningDelta) -> bytes: ...

    def write_call(self, call: ToolCall) -> bytes:
        """Write a call, or the next piece of the one written last; `arguments` is the piece.

        Empty if this wire carries calls whole: then `close` writes them, and `parts` has none.
        """
        ...

    def name_parts(self, parts: Sequence[Part]) -> tuple[Part, ...]:
        """The parts with the ids that this wire gives them."""
        ...

    def close(self, reply: Reply) -> bytes:
        """The rest of the response; the parts of `reply` are those written and then its other calls."""
        ...

    def fail(self, failure: Failure) -> bytes:
        """The end of a response that fails after its beginning was sent."""
        ...


class EncodeReply(Protocol):
    def __call__(self, reply: Reply, *, stream: bool) -> HttpReply: ...


class WireRoute(NamedTuple):
    method: str
    path: str
    """Below the mount; names in braces are parameters."""
    action: WireAction


def list_nothing(message: Message) -> Iterable[str]:
    """No names: a wire that takes every member back."""
    return ()


def keep_request(request: Request) -> Request:
    """The same request: a wire without forms of the answer besides those that a request models."""
    return request


def read_no_headers(request: HttpRequest) -> tuple[Extra, ...]:
    """No extras: a wire whose requests are in their bodies."""
    return ()


class ServedWire(NamedTuple):
    """The server's side of one wire."""

    family: str
    mount: str
    """Start of its paths, which it may share with another wire of the same vendor."""
    routes: tuple[WireRoute, ...]
    make_stream: Callable[[str, Request, Mapping[str, str], Mapping[str, object]], ReplyStream]
    """Stream of the reply with this id to this request, which had these parameters in its URL.

    The last argument has members of every response: the time, and the fields that are repeated.
    """
    encode_reply: EncodeReply
    encode_failure: Callable[[Failure], HttpReply]
    take_tools: Callable[[Request], tuple[Request, tuple[ClientTool, ...]]]
    """The tools of a client's request, and the request without messages that only declare tools.

    Tools that the client runs are functions. One that the provider would run has `spec.native`.
    """
    id_prefix: str
    """Start of the ids of replies."""
    describe_model: Callable[[str], Json]
    list_models: Callable[[Sequence[str]], Json]
    read_counted: Callable[[HttpRequest], HttpRequest]
    """The request whose tokens are asked for, from the one that asks."""
    describe_count: Callable[[int], Json]
    overflow_words: str
    """The vendor's words for a conversation that exceeds the window: clients compact when they read them."""
    cache_mark: str = "cache_control"
    """Member of a part that marks the end of a cached prompt."""
    created_field: str = ""
    """Member of a reply with the time at which it was begun, in seconds; empty if there is none."""
    repeated_fields: tuple[str, ...] = ()
    """Fields of a request that a reply repeats."""
    streamed_failures: frozenset[FailureKind] = frozenset()
    """Failures that the vendor sends as the end of a stream, also if nothing was sent before."""
    list_unsent: Callable[[Message], Iterable[str]] = list_nothing
    """Names of members of a message that are not sent back to the wire they came from."""
    read_output: Callable[[Request], Request] = keep_request
    """The request with the JSON Schema of the answer that its extras have, for a model of any wire."""
    read_headers: Callable[[HttpRequest], tuple[Extra, ...]] = read_no_headers
    """Fields of a request that are headers on this wire. Raises `ValueError` for a wrong value."""
