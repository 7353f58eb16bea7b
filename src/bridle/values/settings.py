"""When a conversation is made shorter, and how far: an agent's wish, as data."""

from functools import cached_property
from typing import Literal

from .base import Value
from .cache import ServerStateStrategy
from .calls import Policy
from .memory import Memory, RetrievalSettings
from .model import Abilities, Endpoint, Model, Ttl
from .request import Extra, OutputSpec, Sampling, Thinking, ToolChoice, ToolSpec


class Compaction(Value):
    """All shares are shares of the window: what the agent says it is, else what the model has."""

    at: float = 0.8
    """The gate: nothing is done while the next prompt is estimated to be smaller."""
    to: float = 0.5
    """How far down, so that it happens rarely: each time the provider reads the conversation anew."""
    keep: float = 0.2
    """What the newest messages may fill and stay untouched; the newest turn always does."""
    pictures: int = 3
    """How many of the newest pictures from tools stay."""
    model: Model | str | None = None
    """Who writes the summary of old turns; None for whoever the run is with, who has read them already."""
    native: bool = True
    """Whether the provider makes old turns short itself where it can, and nobody else is named for it."""
    summary_words: str = ""
    """What the summary has to take care of, besides what is asked for anyway."""

    @property
    def summarizer(self) -> Model | None:
        return self.model if isinstance(self.model, Model) else None


# Everything a run is made of besides what was said: the agent, as data.
#
# Settings are recorded when a session starts and again whenever they change, so
# that a log tells on its own what was asked of whom and with which tools.


ATTEMPTS_DEFAULT = 6
REPEATS_DEFAULT = 5
OnAdjusted = Literal["event", "error"]
"""What it is when something that was asked for is not sent: an event in the log, or the end of the run."""
OnTruncation = Literal["event", "error"]
"""What a prompt that was probably not read to its beginning is: something to know, or the end of the run."""
TOOLS_AT_ONCE_DEFAULT = 32
REPLY_CALLS_DEFAULT = 1_000
REPLY_BYTES_DEFAULT = 64 * 1024 * 1024
"""Several pictures, or a thousand times the longest text a model writes."""
RESULT_CHARACTERS_DEFAULT = 30_000
"""Some ten thousand tokens: much for one answer, little beside a context."""


CacheTtl = Ttl | Literal["auto"]
"""At least so long, where the provider offers it; `auto`: as long as the pauses of the session ask for."""
CacheBy = Literal["agent", "tenant"]
"""Whose prompts are kept apart, where a provider takes a key: agents' only, or those of tenants as well."""
PrefixRule = Literal["report", "strict"]
"""What a prefix that moved is: an event in the log, or also the end of the run before it is paid for."""
TOOLS_SHOWN_DEFAULT = 30
TOOL_TOKENS_DEFAULT = 16_000
TOOLS_FOUND_DEFAULT = 8


class ToolCatalogue(Value):
    """There are more tools than can be shown: `Settings.hidden` is searched, and may be called by name."""

    shown_max: int = TOOLS_SHOWN_DEFAULT
    """How many tools the first request may show."""
    tokens_max: int = TOOL_TOKENS_DEFAULT
    """What their definitions may take of it, by an estimate on the dear side."""
    found_max: int = TOOLS_FOUND_DEFAULT
    """How many one search brings."""


class Settings(Value, dict=True):
    model: Model = Model(id="", endpoint=Endpoint(name="", family=""), abilities=Abilities())
    """Who is asked; of a chain, the one whose turn it is."""
    models: tuple[Model, ...] = ()
    """The chain, in order of preference; empty when there is one model and no other."""
    skipped_models: tuple[tuple[str, str], ...] = ()
    """Models of the chain that cannot be asked here, by seat, each with the reason: no key, no address."""
    name: str = ""
    """What the agent is called where sessions are added up; empty for a name made of what it is for."""
    instructions: str = ""
    tools: tuple[ToolSpec, ...] = ()
    """What is shown to the model from the beginning."""
    hidden_tools: tuple[ToolSpec, ...] = ()
    """What may be shown to it later, by `ToolsShown`; until then it is not there for the model."""
    catalogue: ToolCatalogue | None = None
    """Set when `hidden` holds tools that the model may look for."""
    tool_choice: ToolChoice = ToolChoice()
    max_tokens: int | None = None
    output: OutputSpec | None = None
    thinking: Thinking | None = None
    sampling: Sampling = Sampling()
    attempts_max: int = ATTEMPTS_DEFAULT
    """Requests for one reply, to one model."""
    repeats_max: int | None = REPEATS_DEFAULT
    """How often one call may bring one and the same result before the run ends; None for never."""
    policy: Policy = Policy()
    approval_seconds: float | None = None
    """How long a question to a person stays open; None for as long as it takes."""
    tools_at_once_max: int = TOOLS_AT_ONCE_DEFAULT
    reply_calls_max: int | None = REPLY_CALLS_DEFAULT
    """The most tool calls in one reply; a reply with more ends the run and none of them is run."""
    reply_bytes_max: int | None = REPLY_BYTES_DEFAULT
    """The most bytes of one reply on the wire; a longer one is given up."""
    result_characters: int | None = RESULT_CHARACTERS_DEFAULT
    """The most words of one tool result that are sent; None for all of them, however many."""
    chain: ServerStateStrategy = False
    """Let the provider keep the conversation where it can, and send only what is new."""
    cache_ttl: CacheTtl = "auto"
    cache_by: CacheBy = "agent"
    cache_shards: int = 1
    """In how many lots the sessions of a tenant are kept apart, where one lot has too many calls a minute."""
    cache_by_name: bool = False
    """Let a provider that sells storage keep tools and instructions by name, where that pays."""
    prefix: PrefixRule = "report"
    compaction: Compaction | None = Compaction()
    """When and how far conversations are made shorter; None for never."""
    context_tokens: int | None = None
    """The window, where it is not the model's own."""
    extras: tuple[Extra, ...] = ()
    on_truncation: OnTruncation = "event"
    on_adjusted: OnAdjusted = "event"
    memory: Memory | None = None
    """Set when notes stand in front of the conversation."""
    retrieval: RetrievalSettings | None = None
    """Set when something is looked up for every prompt."""

    @cached_property
    def window_tokens(self) -> int:
        return self.context_tokens or self.model.abilities.prompt_tokens_max

    @cached_property
    def all_tools(self) -> tuple[ToolSpec, ...]:
        return (*self.tools, *self.hidden_tools)

    @cached_property
    def tool_names(self) -> tuple[str, ...]:
        return tuple(spec.name for spec in self.all_tools)
