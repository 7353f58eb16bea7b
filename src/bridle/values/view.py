"""Events that make the sent messages differ from the recorded conversation.

The log keeps every original. A change is decided once, recorded with its reason, and applies from then on;
nothing else may make a request differ from the conversation.
"""

from decimal import Decimal

from .base import EventBase, Value
from .message import Opaque
from .model import Origin

PartRef = tuple[str, int, int]
"""Message id, part index, and index within a tool result or -1."""


class ViewChange(Value):
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


class ViewChanged(EventBase, tag="view_changed"):
    """The view sent to models changed, once and for a stated reason."""

    changes: tuple[ViewChange, ...]
    why: str
    model_key: str = ""
    """Only model (`Model.model_key`) that it applies to; empty for all models."""


class Compacted(EventBase, tag="compacted"):
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
