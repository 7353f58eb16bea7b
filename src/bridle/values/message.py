"""Messages, their parts, and the transcript.

Parts are independent of providers. Data that only one provider can read (signatures, encrypted reasoning,
unknown fields) is stored beside the plain form: in `Reasoning.signature`, or in `native`, the provider's own
JSON for the part. `native` is set only if our own encoding would not reproduce the same bytes, so that the
log stores nothing twice. Only the codec of the family named in the message's `origin` may read it.

A `Reply` is a provider's answer. It becomes a `Message` when it is applied to a session, which assigns its id
(its position), parent and time. A transcript is immutable and only grows.

A client of a gateway writes parts too. `wire` then names the family of its wire, and `native` holds the members
that only that wire has: any endpoint of the family may read them, because nothing in them was issued by one.

A change of the view makes the sent messages differ from the recorded conversation. It is decided once, recorded
with its reason, and applies from then on; nothing else may make a request differ. The log keeps every original.
"""

from collections.abc import Iterable
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec
from msgspec.structs import replace

from .base import EventBase, Value, ValueMeta
from .errors import MisuseError
from .media import (
    AnyPath,
    check_signature,
    choose_type,
    decode_head,
    encode_bytes,
    explain_misuse,
    is_fetched_url,
    kind_of_type,
    read_file,
    recognize_bytes,
    recognize_name,
)
from .model import Origin
from .text import render_messages, repair_surrogates
from .usage import Usage

MediaKind = Literal["image", "document", "audio", "video"]

Outcome = Literal["ok", "error", "retry", "invalid", "denied", "timeout", "cancelled", "unknown"]
"""Outcome of a call.

`retry`: the tool raised `ModelRetry`. `invalid`: never started, because its name or arguments were wrong.
`unknown`: started, and it cannot be determined whether it took effect.
"""


class Text(Value, kw_only=True, tag="text"):
    text: str
    native: str | None = None
    wire: str = ""
    """Wire family of the client that wrote the part; empty if the message's origin did."""


class _CheckedMeta(ValueMeta):
    """Validates what a caller constructs; values read from a log are never rejected."""

    if not TYPE_CHECKING:

        def __call__(self, **fields: Any) -> Any:
            if why := explain_misuse(fields):
                raise MisuseError(f"Media: {why}")
            if fields.get("name"):
                fields["name"] = repair_surrogates(fields["name"])
            if fields.get("data") and not fields.get("media_type"):
                fields["media_type"] = recognize_bytes(decode_head(fields["data"]))
            return super().__call__(**fields)


class Media(Value, kw_only=True, tag="media", metaclass=_CheckedMeta):
    """An image or file; exactly one of `data` (base64), `url` and `file_id` is set.

    Use `from_path`, `from_bytes` or `from_url`, which detect type and kind. Raises `MisuseError` for media
    that no provider could accept.
    """

    kind: MediaKind
    media_type: str = ""
    data: str = ""
    url: str = ""
    file_id: str = ""
    name: str = ""
    native: str | None = None
    endpoint_id: str = ""
    """Endpoint (`Endpoint.endpoint_id`) that holds the file of `file_id`; it is sent nowhere else."""
    wire: str = ""

    @classmethod
    def from_path(
        cls,
        path: AnyPath,
        *,
        media_type: str = "",
        name: str | None = None,
        kind: MediaKind | None = None,
    ) -> "Media":
        """Media from the file at `path`, read immediately. `name` defaults to the file's name."""
        data, found = read_file(path)
        label = found if name is None else name
        return cls.from_bytes(data, media_type=media_type or choose_type(data, found), name=label, kind=kind)

    @classmethod
    def from_bytes(
        cls, data: bytes, *, media_type: str = "", name: str = "", kind: MediaKind | None = None
    ) -> "Media":
        """Media from bytes; the type is detected unless given."""
        if not isinstance(data, bytes | bytearray | memoryview):
            raise MisuseError(f"Media.from_bytes takes bytes, not {type(data).__name__}")
        if not data:
            raise MisuseError("Media.from_bytes takes bytes, and at least one; the data is empty")
        if not isinstance(media_type, str) or not isinstance(name, str):
            raise MisuseError("Media.from_bytes: media_type and name must be strings")
        type_ = media_type or choose_type(bytes(data), name)
        check_signature(bytes(data[:64]), type_)
        kind_ = kind or cast("MediaKind", kind_of_type(type_))
        return cls(kind=kind_, media_type=type_, data=encode_bytes(data), name=name)

    @classmethod
    def from_url(
        cls, url: str, *, kind: MediaKind | None = None, media_type: str = "", name: str = ""
    ) -> "Media":
        """Media at a URL, for the provider to fetch. Set `kind` if the URL does not show it."""
        if not isinstance(url, str) or not is_fetched_url(url):
            raise MisuseError(f"Media.from_url takes a URL such as https://…, not {url!r}")
        type_ = media_type or recognize_name(url.partition("?")[0].partition("#")[0])
        if kind is None and not type_:
            raise MisuseError(
                "Media.from_url: the URL does not show the kind; set kind='image', 'document', …"
            )
        kind_ = kind or cast("MediaKind", kind_of_type(type_))
        return cls(kind=kind_, media_type=type_, url=url, name=name)

    @classmethod
    def from_wire(cls, **fields: Any) -> "Media":
        """Media as received, without validation: invalid data is handled when the view is built."""
        return cast("Media", msgspec.StructMeta.__call__(cls, **fields))


class ToolCall(Value, kw_only=True, tag="tool_call"):
    """The model's request to run a tool."""

    id: str
    """Our id: short, unique in its session, valid on every wire."""
    name: str
    arguments: str
    """JSON text exactly as received; re-encoding it would change the cached prefix."""
    wire_id: str = ""
    """The provider's id, sent back to that provider only; may be empty or repeated."""
    native: str | None = None


class Opaque(Value, kw_only=True, tag="opaque"):
    """A provider-specific item that is passed through without interpretation."""

    kind: str
    native: str
    text: str = ""
    """The same content as text, if it has any; sent to models that do not accept the item."""
    answers: bool = False
    """True if the item is an answer in itself, such as an image; the reply needs no text."""
    wire: str = ""


class ToolResult(Value, kw_only=True, tag="tool_result"):
    """Result of a call, as parts for the model."""

    call_id: str
    parts: tuple["Text | Media | Opaque", ...] = ()
    outcome: Outcome = "ok"
    native: str | None = None
    reveals_tools: tuple[str, ...] = ()
    """Names of tools that become available to the model with this result."""
    wire: str = ""

    @property
    def is_error(self) -> bool:
        return self.outcome != "ok"

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, Text))


class Reasoning(Value, kw_only=True, tag="reasoning"):
    """The model's reasoning as far as it is visible, and its signature."""

    text: str = ""
    signature: str = ""
    """Opaque; for redacted reasoning, the entire content."""
    redacted: bool = False
    native: str | None = None


Part = Text | Media | ToolCall | ToolResult | Reasoning | Opaque
PromptPart = Text | Media | Opaque
"""Part of a user's message. Items of one wire (`Opaque`) come only from clients of that wire."""


def is_written_for(part: Part, family: str) -> bool:
    """True if a client of this wire family wrote the part, so that its `native` may be sent on that wire."""
    return isinstance(part, Text | Media | ToolResult | Opaque) and part.wire == family


Role = Literal["user", "assistant", "tool", "system"]
Provenance = Literal["", "person", "model", "tool", "harness", "summary", "import"]
"""Origin of a message; informational, never sent.

`harness`: a notice of ours in the user role. `summary`: stands for turns that are no longer sent. `import`:
part of a conversation from elsewhere. Empty: unknown.
"""


class Stop(StrEnum):
    """Reason why a model stopped. The loop considers the content first and this second."""

    DONE = "done"
    TOOLS = "tools"
    LENGTH = "length"
    PAUSED = "paused"
    REFUSED = "refused"
    CONTEXT = "context"
    FILTERED = "filtered"
    MALFORMED = "malformed"
    OTHER = "other"


class Reply(Value, kw_only=True):
    """One complete answer of a model."""

    parts: tuple[Part, ...]
    stop: Stop
    origin: Origin
    usage: Usage = Usage()
    id: str = ""
    """The provider's id of this answer."""
    stop_detail: str = ""
    """The provider's own stop reason, with its explanation if it gave one."""
    cache_miss_reason: str = ""
    """The provider's explanation of a cache miss, if it was requested."""
    dropped_parts: tuple[str, ...] = ()
    """Parts of the answer that were dropped, each with the reason."""
    input_changes: tuple[str, ...] = ()
    """What the provider withheld from the model or changed in the request, one sentence each."""

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple([part for part in self.parts if type(part) is ToolCall])

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, Text))


class Message(Value, kw_only=True):
    role: Role
    parts: tuple[Part, ...]
    id: str = ""
    parent: str = ""
    at: float = 0.0
    origin: Origin | None = None
    usage: Usage | None = None
    stop: Stop | None = None
    reply_id: str = ""
    """The provider's id of this answer, for providers that store answers."""
    provenance: Provenance = ""
    added_parts: tuple[int, ...] = ()
    """Indices of parts that the harness added to a user's message (retrieved chunks, facts)."""

    @property
    def text(self) -> str:
        """The author's text, without the parts that the harness added."""
        parts = (part for at, part in enumerate(self.parts) if at not in self.added_parts)
        return "".join(part.text for part in parts if isinstance(part, Text))

    def _repr_html_(self) -> str:
        return render_messages([msgspec.to_builtins(self)])

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple([part for part in self.parts if type(part) is ToolCall])

    @property
    def results(self) -> tuple[ToolResult, ...]:
        return tuple([part for part in self.parts if type(part) is ToolResult])


class Transcript(Value, kw_only=True):
    messages: tuple[Message, ...] = ()

    def _repr_html_(self) -> str:
        return render_messages(msgspec.to_builtins(self.messages))

    def append(self, message: Message) -> "Transcript":
        """Transcript with one more message, which gets the next id and its parent."""
        messages = self.messages
        parent = messages[-1].id if messages else ""
        placed = replace(message, id=f"m{len(messages) + 1}", parent=parent)
        # One copy; unpacking makes two, and long conversations feel it.
        return Transcript(messages=messages + (placed,))  # noqa: RUF005

    def extend(self, messages: Iterable[Message]) -> "Transcript":
        """Transcript with more messages, as `append` of each makes it, with one copy."""
        count = len(self.messages)
        placed = [
            replace(message, id=f"m{at + 1}", parent=f"m{at}" if at else "")
            for at, message in enumerate(messages, count)
        ]
        return Transcript(messages=self.messages + tuple(placed))


Prompt = str | Text | Media | tuple["str | PromptPart", ...] | list["str | PromptPart"]
"""User input: text, an image or file, or several of them."""


PartRef = tuple[str, int, int]
"""Message id, part index, and index within a tool result or -1."""


class ViewChange(Value, kw_only=True):
    """Replacement of one part by text, or its removal if `text` is empty.

    Applies to what is sent; the log keeps the original.
    """

    message: str
    part: int
    """Index of the part in the original message, whatever was changed since."""
    inner: int = -1
    """Index within a tool result; -1 for the part itself."""
    text: str = ""
    strip_native: bool = False
    """Keep the part, without the data that only its provider can read."""
    arguments: str = ""
    """New arguments of a tool call, as JSON text; the call stays."""


class RawCall(Value, kw_only=True):
    """Bytes of a model call as blobs of the store, without credentials; kept by `Agent(keep_raw=…)`."""

    reply: str = ""
    """Hash of the reply's bytes; empty if nothing was received or the bytes are withheld."""
    reply_bytes: int = 0
    """Bytes received; the blob has fewer if the limit cut it."""
    request: str = ""
    """Hash of the request's body, if requests are kept too."""
    status: int = 0
    headers: tuple[tuple[str, str], ...] = ()
    """Headers of the reply that are known to be harmless."""
    streamed: bool = False
    """True if the reply was requested as a stream."""
    withheld: str = ""
    """Reason why the bytes of the reply are not kept."""


class CallOutcome(EventBase, kw_only=True):
    """Outcome of a model call, with its bytes if they are kept."""

    raw: RawCall | None = None

    @property
    def required_blobs(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.raw.reply, self.raw.request))) if self.raw else ()


class ViewChanged(EventBase, kw_only=True, tag="view_changed"):
    """The view sent to models changed, once and for a stated reason."""

    changes: tuple[ViewChange, ...]
    why: str
    model_key: str = ""
    """Only model (`Model.model_key`) that it applies to; empty for all models."""


class Compacted(EventBase, kw_only=True, tag="compacted"):
    """The conversation was compacted: old parts were shortened, old turns possibly summarized.

    Everything up to the message `summarized_until` then becomes one user message: the users' messages
    verbatim, and the summary. The event contains the complete wording, so that no later version of the
    program can change a prompt that was already sent.
    """

    strategies: tuple[str, ...]
    """Strategies used, in the order they were tried."""
    why: str
    changes: tuple[ViewChange, ...] = ()
    summarized_until: str = ""
    """Last message that the summary covers; empty if no turn was summarized."""
    prompt_ids: tuple[str, ...] = ()
    """Covered messages that are kept verbatim because users wrote them."""
    lead: str = ""
    label: str = ""
    """Text before the whole, and before each of those messages."""
    summary: str = ""
    native_parts: tuple[Opaque, ...] = ()
    """The provider's own summary of the same turns; sent instead of the text, only to that provider."""
    native_origin: Origin | None = None
    """Provider of `native_parts`."""
    before_tokens: int = 0
    after_tokens: int = 0
    """Estimated size of the next prompt before and after."""
    uncached_tokens: int = 0
    """Tokens after the first change, which the provider has to process again."""
    usd: Decimal | None = None
    """Maximum cost of processing them again; None if no price is known."""

    @property
    def model_key(self) -> str:
        """Empty: compaction applies to every model."""
        return ""
