"""The pieces a message is made of.

Parts belong to no provider.  What only one provider can read (signatures,
encrypted reasoning, unknown fields) travels beside the plain view: in
`Reasoning.signature`, or in `native`, the provider's own JSON for this part.

`native` is kept only where our own encoding of the part would not give the same
bytes back; most parts have none, and the log holds nothing twice.  Only the
codec of the family named in the message's `origin` may read it.
"""

from typing import Literal

from .value import Value

MediaKind = Literal["image", "document", "audio", "video"]

Outcome = Literal["ok", "error", "invalid", "denied", "timeout", "cancelled", "unknown"]
"""How a call ended.  `invalid`: never started, its name or arguments were wrong.
`unknown`: it was started, and whether it took effect cannot be told from here."""


class Text(Value, tag="text"):
    text: str
    native: str | None = None


class Media(Value, tag="media"):
    """A picture or a file: exactly one of `data` (base64), `url` and `file_id` is set."""

    kind: MediaKind
    media_type: str = ""
    data: str = ""
    url: str = ""
    file_id: str = ""
    name: str = ""
    native: str | None = None
    home: str = ""
    """The endpoint (`Endpoint.home`) that holds the file of this `file_id`; it is sent nowhere else."""


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


class ToolResult(Value, tag="tool_result"):
    """What came of a call, in words the model can read."""

    call_id: str
    parts: tuple["Text | Media | Opaque", ...] = ()
    outcome: Outcome = "ok"
    native: str | None = None
    shows: tuple[str, ...] = ()
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
