"""The pieces a message is made of.

Parts belong to no provider.  What only one provider can read (signatures,
encrypted reasoning, unknown fields) travels beside the plain view: in
`Reasoning.signature`, or in `native`, the provider's own JSON for this part.

`native` is kept only where our own encoding of the part would not give the same
bytes back; most parts have none, and the log holds nothing twice.  Only the
codec of the family named in the message's `origin` may read it.
"""

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec
from msgspec.structs import replace

from .base import Value, ValueMeta
from .errors import MisuseError
from .media import (
    AnyPath,
    choose_type,
    decode_head,
    encode_bytes,
    explain_misuse,
    kind_of_type,
    read_file,
    recognize_bytes,
    recognize_name,
)
from .model import Origin
from .text import repair_surrogates
from .usage import Usage

MediaKind = Literal["image", "document", "audio", "video"]

Outcome = Literal["ok", "error", "invalid", "denied", "timeout", "cancelled", "unknown"]
"""How a call ended.  `invalid`: never started, its name or arguments were wrong.
`unknown`: it was started, and whether it took effect cannot be told from here."""


class Text(Value, tag="text"):
    text: str
    native: str | None = None


class _CheckedMeta(ValueMeta):
    """Checks what a caller makes; what is read from a log is never refused."""

    if not TYPE_CHECKING:

        def __call__(self, **fields: Any) -> Any:
            if why := explain_misuse(fields):
                raise MisuseError(f"Media: {why}")
            if fields.get("name"):
                fields["name"] = repair_surrogates(fields["name"])
            if fields.get("data") and not fields.get("media_type"):
                fields["media_type"] = recognize_bytes(decode_head(fields["data"]))
            return super().__call__(**fields)


FETCHED_SCHEMES = ("https://", "http://", "gs://", "s3://")
"""Addresses that some provider fetches."""


class Media(Value, tag="media", metaclass=_CheckedMeta):
    """A picture or a file: exactly one of `data` (base64), `url` and `file_id` is set.

    Make one with `from_path`, `from_bytes` or `from_url`; they find out the type and the kind.
    Raises `MisuseError` for what no provider could take.
    """

    kind: MediaKind
    media_type: str = ""
    data: str = ""
    url: str = ""
    file_id: str = ""
    name: str = ""
    native: str | None = None
    endpoint_id: str = ""
    """The endpoint (`Endpoint.home`) that holds the file of this `file_id`; it is sent nowhere else."""

    @classmethod
    def from_path(
        cls,
        path: AnyPath,
        *,
        media_type: str = "",
        name: str | None = None,
        kind: MediaKind | None = None,
    ) -> "Media":
        """The file at this path, read now.  It is named like the file unless `name` says otherwise."""
        data, found = read_file(path)
        called = found if name is None else name
        return cls.from_bytes(data, media_type=media_type or choose_type(data, found), name=called, kind=kind)

    @classmethod
    def from_bytes(
        cls, data: bytes, *, media_type: str = "", name: str = "", kind: MediaKind | None = None
    ) -> "Media":
        """These bytes; their type is recognized unless it is given."""
        if not isinstance(data, bytes | bytearray | memoryview) or not data:
            given = "none" if isinstance(data, bytes) else type(data).__name__
            raise MisuseError(f"Media.from_bytes takes bytes, not {given}")
        type_ = media_type or choose_type(bytes(data), name)
        made = kind or cast("MediaKind", kind_of_type(type_))
        return cls(kind=made, media_type=type_, data=encode_bytes(data), name=name)

    @classmethod
    def from_url(
        cls, url: str, *, kind: MediaKind | None = None, media_type: str = "", name: str = ""
    ) -> "Media":
        """What is at this address, for the provider to fetch.  Give `kind` where the address shows none."""
        if not isinstance(url, str) or not url.startswith(FETCHED_SCHEMES):
            raise MisuseError(f"Media.from_url takes an address such as https://…, not {url!r}")
        type_ = media_type or recognize_name(url.partition("?")[0].partition("#")[0])
        if kind is None and not type_:
            raise MisuseError("Media.from_url: the address shows no kind; give kind='image', 'document', …")
        made = kind or cast("MediaKind", kind_of_type(type_))
        return cls(kind=made, media_type=type_, url=url, name=name)

    @classmethod
    def from_wire(cls, **fields: Any) -> "Media":
        """What came over a wire, as it came: odd data is a matter of the view, not of the reader."""
        return cast("Media", msgspec.StructMeta.__call__(cls, **fields))


class ToolCall(Value, tag="tool_call"):
    """The model asks for a tool to be run."""

    id: str
    """Ours: short, unique in its session, legal on every wire."""
    name: str
    arguments: str
    """JSON text exactly as it arrived: writing it anew would move the cached prefix."""
    wire_id: str = ""
    """The provider's id, echoed to that provider only; it may be empty or repeated."""
    native: str | None = None


class Opaque(Value, tag="opaque"):
    """A provider's item we carry but do not interpret."""

    kind: str
    native: str
    text: str = ""
    """The same in words, where it has any: said instead to everybody who does not take the item."""
    answers: bool = False
    """Whether it is an answer by itself, such as a picture: a reply may consist of it, without a word."""


class ToolResult(Value, tag="tool_result"):
    """What came of a call, in words the model can read."""

    call_id: str
    parts: tuple["Text | Media | Opaque", ...] = ()
    outcome: Outcome = "ok"
    native: str | None = None
    reveals_tools: tuple[str, ...] = ()
    """Tools the model has from here on, by name; it had not seen them before."""

    @property
    def is_error(self) -> bool:
        return self.outcome != "ok"

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, Text))


class Reasoning(Value, tag="reasoning"):
    """What the model thought, as far as it was shown, and the proof that it did."""

    text: str = ""
    signature: str = ""
    """Opaque; for redacted reasoning this is the whole content."""
    redacted: bool = False
    native: str | None = None


Part = Text | Media | ToolCall | ToolResult | Reasoning | Opaque


# Messages and the transcript: everything said so far, in order.
#
# A `Reply` is what a provider answered.  It becomes a `Message` when it is applied
# to a session, which is also where it gets its id (its place in the line), its
# parent and its time.  Nothing here can be changed; a transcript only grows.


Role = Literal["user", "assistant", "tool", "system"]
Provenance = Literal["", "person", "model", "tool", "harness", "summary", "import"]
"""Who a message comes from.  `harness` is a notice of ours in the user's role, `summary` stands for turns
that are no longer sent, `import` is part of a conversation held elsewhere; empty where it is unknown.  It is
for readers of a log: no wire carries it."""


class Stop(StrEnum):
    """Why a model stopped talking.  The loop looks at the content first and at this second."""

    DONE = "done"
    TOOLS = "tools"
    LENGTH = "length"
    PAUSED = "paused"
    REFUSED = "refused"
    CONTEXT = "context"
    FILTERED = "filtered"
    MALFORMED = "malformed"
    OTHER = "other"


class Reply(Value):
    """One complete answer of a model."""

    parts: tuple[Part, ...]
    stop: Stop
    origin: Origin
    usage: Usage = Usage()
    id: str = ""
    """The provider's id of this answer."""
    stop_detail: str = ""
    """The provider's own word for the stop, and its explanation if it gave one."""
    cache_miss_reason: str = ""
    """The provider's own word for why it did not find the prompt it had kept, when it was asked."""
    dropped_parts: tuple[str, ...] = ()
    """Pieces of the answer that are not kept, each with the reason."""

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple([part for part in self.parts if isinstance(part, ToolCall)])

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, Text))


class Message(Value):
    role: Role
    parts: tuple[Part, ...]
    id: str = ""
    parent: str = ""
    at: float = 0.0
    origin: Origin | None = None
    usage: Usage | None = None
    stop: Stop | None = None
    reply_id: str = ""
    """The provider's id of this answer, when it is one: what a provider that keeps answers knows it by."""
    provenance: Provenance = ""
    added_parts: tuple[int, ...] = ()
    """Parts that the harness put beside a person's words (what was looked up, facts), by their place."""

    @property
    def text(self) -> str:
        """The words of whoever the message comes from, without what was put beside them."""
        parts = (part for at, part in enumerate(self.parts) if at not in self.added_parts)
        return "".join(part.text for part in parts if isinstance(part, Text))

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple([part for part in self.parts if isinstance(part, ToolCall)])

    @property
    def results(self) -> tuple[ToolResult, ...]:
        return tuple([part for part in self.parts if isinstance(part, ToolResult)])


class Transcript(Value):
    messages: tuple[Message, ...] = ()

    def append(self, message: Message) -> "Transcript":
        """The transcript with one message more, which gets the next id and its parent here."""
        count = len(self.messages)
        placed = replace(message, id=f"m{count + 1}", parent=f"m{count}" if count else "")
        return Transcript(messages=(*self.messages, placed))


Prompt = str | Text | Media | tuple["str | Text | Media", ...] | list["str | Text | Media"]
"""What a person may say: words, a picture or file, or several of them."""
