"""Events about prompts and conversations that a provider stores.

They concern cost only: a run continues after each of them. All other events are in events.py.
"""

from decimal import Decimal
from typing import Literal

from .base import EventBase

PromptLayerName = Literal["model", "tools", "system", "memory", "settings", "history"]
"""Layers of a prompt, in the order in which the cache matches them."""
PrefixCause = Literal[
    "model_switched", "settings_changed", "tools_revealed", "memory_loaded", "view_changed", "compacted",
    "choice_changed", "choice_released", "parameter_refused", "tool_called",
]  # fmt: skip
CacheOutcome = Literal["cold", "hit", "prefix", "ttl", "lookback", "minimum", "provider", "unreported"]
"""Outcome of one call's cache lookup."""


class PrefixMoved(EventBase, kw_only=True, tag="prefix_moved"):
    """The cached prefix of the next request differs from the last one: the rest of it is a cache miss."""

    layer: PromptLayerName
    block: str
    """First block that differs, as text."""
    cause: PrefixCause
    why: str
    uncached_tokens: int = 0
    """Upper bound on the tokens to be processed again, estimated."""


class CacheDegraded(EventBase, kw_only=True, tag="cache_degraded"):
    """The cache hit rate is much lower than it should be; reported once until it recovers."""

    rule: str
    """Name of the rule that detected it (core/cache/diagnosis.py)."""
    rate: float
    """Share of the cacheable tokens that were read from the cache, over the latest calls."""
    rate_before: float | None
    """This share over the earlier calls of the session; None if there were none."""
    calls: int
    """Number of latest calls."""
    outcome: CacheOutcome
    """Outcome that accounts for most of the missed tokens; `why` is its latest explanation."""
    why: str = ""
    missed_tokens: int = 0
    usd: Decimal | None = None
    """Extra cost of the misses; None if no price is known."""


class PromptStored(EventBase, kw_only=True, tag="prompt_stored"):
    """The provider stores tools and instructions under a name, or extended their lifetime, for a fee."""

    name: str
    model_key: str
    """Only model (`Model.model_key`) that can read it."""
    prompt_head: str
    """Digest of the stored content."""
    tokens: int
    seconds: float
    """Lifetime from this event on."""
    expires_at: float
    created: bool = True
    """True if the prompt was created (and billed as input); False if only its lifetime was extended."""
    usd: Decimal | None = None


class PromptDropped(EventBase, kw_only=True, tag="prompt_dropped"):
    """The provider no longer stores the prompt; without a name, it refused to create it."""

    name: str
    why: str
    model_key: str = ""
    prompt_head: str = ""
    """With `model_key`, the combination that was refused and is not tried again."""


CacheEvent = PrefixMoved | CacheDegraded | PromptStored | PromptDropped


ServerStateStrategy = bool | Literal["conversation"]
"""State stored at the provider: nothing (False), replies to refer to (True), or a conversation object.

The session's own log is complete in every case.
"""


class ConversationOpened(EventBase, kw_only=True, tag="conversation_opened"):
    """The provider created an empty conversation object; later requests are added to it."""

    name: str
    model_key: str
    """Model (`Model.model_key`) that it is used with."""


class ConversationDropped(EventBase, kw_only=True, tag="conversation_dropped"):
    """The conversation object is no longer used (without a name: not created); everything is sent again."""

    name: str
    model_key: str
    why: str


ConversationEvent = ConversationOpened | ConversationDropped
