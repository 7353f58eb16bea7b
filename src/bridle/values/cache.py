"""What happened to the prompts that a provider keeps, as events; `event.py` has all the others.

All are about money and break nothing: a run goes on after each of them.
"""

from decimal import Decimal
from typing import Literal

from .base import EventBase

PromptLayerName = Literal["model", "tools", "system", "memory", "settings", "history"]
"""What a prompt is made of, in the order it is kept."""
PrefixCause = Literal[
    "model_switched", "settings_changed", "tools_shown", "memory_loaded", "view_changed", "compacted",
    "choice_changed", "choice_released", "parameter_refused", "tool_called",
]  # fmt: skip
CacheOutcome = Literal["cold", "hit", "prefix", "ttl", "lookback", "minimum", "provider", "unreported"]
"""What became of what a call could have read from the cache."""


class PrefixMoved(EventBase, tag="prefix_moved"):
    """The next request does not begin as the last one did: from there on, what the provider kept is lost."""

    layer: PromptLayerName
    block: str
    """The first that differs, in words."""
    cause: PrefixCause
    why: str
    uncached_tokens: int = 0
    """The most that has to be read anew for it, by estimate."""


class CacheDegraded(EventBase, tag="cache_degraded"):
    """The cache gives much less than it should; told once, until it is well again."""

    rule: str
    """Which rule found it (core/cache/diagnosis.py)."""
    rate: float
    """What of the tokens that could be read was read, over the latest calls."""
    rate_before: float | None
    """The same over the calls of the session before them; None when there were none."""
    calls: int
    """How many the latest are."""
    outcome: CacheOutcome
    """What most of the missed tokens were missed for, and the latest words about it."""
    why: str = ""
    missed_tokens: int = 0
    usd: Decimal | None = None
    """What they cost more than they would have; None when no price is known."""


class PromptStored(EventBase, tag="prompt_kept"):
    """The provider keeps tools and instructions by name, or goes on keeping them, and is paid for it."""

    name: str
    model_key: str
    """The only model (`Model.seat`) that can read it."""
    prompt_head: str
    """Digest of what is kept."""
    tokens: int
    seconds: float
    """How long from here on."""
    expires_at: float
    created: bool = True
    """Whether it was made, and read as any prompt; else it is only kept for longer."""
    usd: Decimal | None = None


class PromptDropped(EventBase, tag="prompt_dropped"):
    """The provider keeps it no longer; or never did, when it has no name."""

    name: str
    why: str
    model_key: str = ""
    prompt_head: str = ""
    """Who would not keep what: it is not tried again."""


CacheEvent = PrefixMoved | CacheDegraded | PromptStored | PromptDropped


# A conversation that the provider keeps as an object of its own, as events.


ServerStateStrategy = bool | Literal["conversation"]
"""What a provider keeps: nothing (False), replies that are referred to (True), or a conversation object.  The
session's own log is kept with each of them."""


class ConversationOpened(EventBase, tag="conversation_opened"):
    """The provider made an empty conversation object; what is sent from here on is added to it."""

    name: str
    model_key: str
    """The model that it is used with (`Model.seat`)."""


class ConversationDropped(EventBase, tag="conversation_dropped"):
    """The object is used no more, or could not be made when it has no name: everything is sent again."""

    name: str
    model_key: str
    why: str


ConversationEvent = ConversationOpened | ConversationDropped
