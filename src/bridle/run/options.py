"""What an agent may be told besides what it is made of: the settings that most agents leave as they are.

Each is a field of `Settings` of the same name, so it is written into the log as it was given, and a new
one is one line here.  A name that is none of them is refused with the nearest one that is.
"""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import TypedDict

from msgspec.structs import replace

from ..values.compaction import Compaction
from ..values.conversation_object import StateStrategy
from ..values.errors import MisuseError
from ..values.memory import Memory
from ..values.request import Thinking
from ..values.settings import CacheBy, CacheTtl, OnAdjusted, OnTruncation, PrefixRule
from .given import check_numbers
from .line import model_of


class Options(TypedDict, total=False):
    """Settings an agent is given by name."""

    name: str
    """What the agent is called in sums over sessions, and in what providers keep its prompts under."""
    max_tokens: int | None
    """The most tokens of one reply."""
    thinking: Thinking | None
    repeats_max: int | None
    """How often one call may bring the same result before the run ends; None for never."""
    attempts_max: int
    """Requests for one reply, to one model."""
    approval_seconds: float | None
    """How long a question to a person stays open; None for as long as it takes."""
    result_characters: int | None
    """Of a longer tool result the model gets an excerpt and a way to read the rest; None for all of it."""
    reply_calls_max: int | None
    """The most tool calls in one reply; one with more ends the run and none of them is run; None for any."""
    reply_bytes_max: int | None
    """The most bytes of one reply on the wire; a longer one is given up and not asked for again."""
    chain: StateStrategy
    """Let a provider that can keep the conversation, so that only what is new is sent: True refers to the
    reply before, `"conversation"` uses a conversation object."""
    cache_ttl: CacheTtl
    """How long prompts are to be kept at least, where a provider lets one say; `auto` goes by the pauses."""
    cache_by: CacheBy
    """Where keys are taken: `agent` lets tenants read what they share, `tenant` keeps them apart."""
    cache_shards: int
    """One for every fifteen calls a minute that a tenant's sessions make together, where keys are taken."""
    cache_by_name: bool
    """Let a provider that sells storage keep tools and instructions by name, where that pays."""
    prefix: PrefixRule
    """`strict` ends a run before a prompt whose beginning has changed is paid for anew."""
    compaction: Compaction | None
    """When a conversation is made shorter, how far and by whom; None for never."""
    context_tokens: int | None
    """The window, where it is not what the model's table says."""
    memory: Memory | None
    """Notes in front of every conversation, kept per tenant and per session; None for an agent without."""
    on_adjusted: OnAdjusted
    """`event` records that a tool choice, an extra or a hosted tool was not sent, because the model or its
    provider does not take it; `error` ends the run."""
    on_truncation: OnTruncation
    """What a prompt is that a server seems not to have read whole: event or error."""


NUMBERS = (
    "cache_shards", "max_tokens", "repeats_max", "attempts_max", "result_characters", "context_tokens",
    "reply_calls_max", "reply_bytes_max",
)  # fmt: skip


def check_options(given: Mapping[str, object], taker: Callable[..., None]) -> None:
    """`taker` is what was called with them: it has parameters of its own, which may have been meant."""
    for name in given:
        if name not in Options.__annotations__:
            others = (other for other in taker.__annotations__ if other not in ("options", "return"))
            near = get_close_matches(name, (*Options.__annotations__, *others), n=1)
            hint = f": did you mean {near[0]!r}?" if near else ""
            raise TypeError(f"an agent has no setting {name!r}{hint}")
    memory = given.get("memory")
    if memory is not None and not isinstance(memory, Memory):
        raise MisuseError(f"memory is a Memory(), or None; not {memory!r}")
    check_numbers(characters_max=memory.characters_max if memory is not None else None)
    check_numbers(**{name: given[name] for name in NUMBERS if name in given})


def with_summariser(given: Options) -> Options:
    """The same with the model that writes summaries looked up, and its shares in order."""
    wish = given.get("compaction")
    if wish is None:
        return given
    if not isinstance(wish, Compaction):
        raise MisuseError(f"compaction is a Compaction(at=…, to=…) or None, not {wish!r}")
    if not 0 < wish.to < wish.at <= 1 or not 0 <= wish.keep < wish.to or wish.pictures < 0:
        raise MisuseError(f"a compaction has 0 <= keep < to < at <= 1 and pictures >= 0; not {wish!r}")
    return {**given, "compaction": replace(wish, model=model_of(wish.model))} if wish.model else given
