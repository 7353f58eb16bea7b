"""Messages and the transcript: everything said so far, in order.

A `Reply` is what a provider answered.  It becomes a `Message` when it is applied
to a session, which is also where it gets its id (its place in the line), its
parent and its time.  Nothing here can be changed; a transcript only grows.
"""

from enum import StrEnum
from typing import Literal

from msgspec.structs import replace

from .model import Origin
from .parts import Media, Part, Text, ToolCall, ToolResult
from .usage import Usage
from .value import Value

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
    missed: str = ""
    """The provider's own word for why it did not find the prompt it had kept, when it was asked."""
    dropped: tuple[str, ...] = ()
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
    added: tuple[int, ...] = ()
    """Parts that the harness put beside a person's words (what was looked up, facts), by their place."""

    @property
    def text(self) -> str:
        """The words of whoever the message comes from, without what was put beside them."""
        parts = (part for at, part in enumerate(self.parts) if at not in self.added)
        return "".join(part.text for part in parts if isinstance(part, Text))

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple([part for part in self.parts if isinstance(part, ToolCall)])

    @property
    def results(self) -> tuple[ToolResult, ...]:
        return tuple([part for part in self.parts if isinstance(part, ToolResult)])


class Transcript(Value):
    messages: tuple[Message, ...] = ()

    def adding(self, message: Message) -> "Transcript":
        """The transcript with one message more, which gets the next id and its parent here."""
        count = len(self.messages)
        placed = replace(message, id=f"m{count + 1}", parent=f"m{count}" if count else "")
        return Transcript(messages=(*self.messages, placed))


Prompt = str | Text | Media | tuple["str | Text | Media", ...] | list["str | Text | Media"]
"""What a person may say: words, a picture or file, or several of them."""
