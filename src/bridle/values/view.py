"""How what is sent came to differ from what was said: the events that change the view.

The log keeps every original.  A change is decided once, recorded with its reason, and holds from there
on; nothing else may make a request differ from the conversation.
"""

from decimal import Decimal

from .base import EventBase, Value
from .message import Opaque
from .model import Origin

PartRef = tuple[str, int, int]
"""A message, which of its parts, and which part of a tool result or -1."""


class ViewChange(Value):
    """One part of what is sent, replaced by words, or left out when there are none.

    The log keeps the original; only the view that goes to models changes.
    """

    message: str
    part: int
    """Which part of the message as it was said, whatever was changed in it since."""
    inner: int = -1
    """Which part of a tool result; -1 for the part itself."""
    text: str = ""
    strip_native: bool = False
    """The part stays, without what only its provider can read."""


class ViewChanged(EventBase, tag="view_changed"):
    """What goes to models from here on differs from what was said; decided once, and for a stated reason."""

    changes: tuple[ViewChange, ...]
    why: str
    model_key: str = ""
    """The only model (`Model.seat`) it is changed for; empty when it is for all of them."""


class Compacted(EventBase, tag="compacted"):
    """What is sent became shorter: old parts shrank, and perhaps old turns gave way to a summary.

    Everything up to the message `through` is then one message of the user: what people said, word for
    word, and the summary.  Words that stand there are all in here, so that no later version of the
    program can move a prompt that was already sent.
    """

    strategies: tuple[str, ...]
    """The strategies that were needed, in the order they were tried."""
    why: str
    changes: tuple[ViewChange, ...] = ()
    summarized_until: str = ""
    """The last message that the summary stands for; empty when no turn gave way."""
    prompt_ids: tuple[str, ...] = ()
    """The messages among them that stand on word for word, because people said them."""
    lead: str = ""
    label: str = ""
    """What stands before all of it, and before each of those messages."""
    summary: str = ""
    native_parts: tuple[Opaque, ...] = ()
    """What a provider made of the same turns; sent in place of the words, but to nobody else."""
    native_origin: Origin | None = None
    """That provider."""
    before_tokens: int = 0
    after_tokens: int = 0
    """What the next prompt would have had and has now, by estimate."""
    uncached_tokens: int = 0
    """What of it the provider has to read anew, because it stands behind the first change."""
    usd: Decimal | None = None
    """What reading that anew costs at most; None when no price is known."""

    @property
    def model_key(self) -> str:
        """It holds for every model."""
        return ""
