"""Settings of an agent, as data.

Settings are recorded when a session starts and again whenever they change, so that a log shows by itself
which model was asked, with which tools.
"""

from collections.abc import Mapping
from functools import cached_property
from importlib import import_module
from typing import Literal

import msgspec

from .base import Value
from .cache import ServerStateStrategy
from .calls import Policy
from .hooks import HookPoint, HookSpec
from .memory import InstructionFunction, Memory, RetrievalSettings, TemplateVersion
from .message import Text
from .model import Abilities, Endpoint, Model, Ttl
from .request import Extra, HostedSpec, OutputSpec, Sampling, Thinking, ToolChoice, ToolSpec
from .usage import TERM_FIELDS, RateLimit, list_service_terms


class Compaction(Value, kw_only=True):
    """Compaction options.

    Shares refer to the window: the agent's `context_tokens`, else the model's window.
    """

    at: float = 0.8
    """Compaction starts once the next prompt is estimated to be larger than this share."""
    to: float = 0.5
    """Target size; low enough to make compaction rare, because each one is a cache miss."""
    keep: float = 0.2
    """Share that the newest messages may fill and stay unchanged; the newest turn always does."""
    pictures: int = 3
    """Number of the newest images from tools that stay."""
    model: Model | str | None = None
    """Model that writes the summary; None for the run's own model, which has the conversation cached."""
    native: bool = True
    """Let the provider compact the conversation itself if it can and `model` is not set."""
    summary_words: str = ""
    """Additional instructions for the summary."""
    shorten_prompts: bool = False
    """Shorten earlier user messages before a run ends because the prompt does not fit."""

    @property
    def summarizer(self) -> Model | None:
        return self.model if isinstance(self.model, Model) else None


ATTEMPTS_DEFAULT = 6
REPEATS_DEFAULT = 5
REPROMPTS_DEFAULT = 2
OnAdjusted = Literal["event", "error"]
"""Reaction if a requested option cannot be sent: record an event, or end the run."""
ToolErrors = Literal["report", "raise"]
"""Reaction if a tool raises an exception that it did not declare: report it to the model, or end the run."""
OnTruncation = Literal["event", "error"]
"""Reaction if a prompt was probably truncated: record an event, or end the run."""
TOOLS_AT_ONCE_DEFAULT = 32
HANDOVERS_DEFAULT = 8
REPLY_CALLS_DEFAULT = 1_000
REPLY_BYTES_DEFAULT = 64 * 1024 * 1024
"""Enough for several images, or a thousand times the longest text that a model writes."""
RESULT_CHARACTERS_DEFAULT = 30_000
"""About ten thousand tokens."""


RAW_BYTES_DEFAULT = 1024 * 1024


class KeepRaw(Value, kw_only=True):
    """Keeps the bytes of model calls in the store, without credentials: the replies and, if wanted, the requests."""

    request: bool = False
    """Keep the bodies of requests too; without them a request is rebuilt from the log."""
    bytes_max: int = RAW_BYTES_DEFAULT
    """Maximum bytes kept of one body; the rest is cut."""


CacheTtl = Ttl | Literal["auto"]
"""Minimum lifetime, if the provider offers it; `auto`: according to the pauses in the session."""
CacheBy = Literal["agent", "tenant"]
"""Scope of the cache key, if the provider takes one: per agent, or per agent and tenant."""
PrefixRule = Literal["report", "strict"]
"""Reaction if the prefix changes: record an event, or also end the run before paying for it."""
TOOLS_SHOWN_DEFAULT = 30
TOOL_TOKENS_DEFAULT = 16_000
TOOLS_FOUND_DEFAULT = 8
NAME_DIGEST_BYTES = 4


class ToolCatalogue(Value, kw_only=True):
    """More tools than can be shown: `Settings.hidden_tools` are searchable and callable by name."""

    shown_max: int = TOOLS_SHOWN_DEFAULT
    """Maximum number of tools in the first request."""
    tokens_max: int = TOOL_TOKENS_DEFAULT
    """Maximum size of their definitions, by a conservative estimate."""
    found_max: int = TOOLS_FOUND_DEFAULT
    """Maximum number of results of one search."""


class RunOverride(Value, kw_only=True):
    """A setting that was given for one run, in place of the agent's own."""

    option: str
    """Name of the option, such as `model` or `tools` (run/context/run_options.py lists them)."""
    code: tuple[str, ...] = ()
    """Names of the tools or functions in it. A log holds no code: to resume, they are needed again."""


class Settings(Value, kw_only=True, gc=True, dict=True):
    model: Model = Model(id="", endpoint=Endpoint(name="", family=""), abilities=Abilities())
    """Current model; one of `models` if there is a chain."""
    models: tuple[Model, ...] = ()
    """Model chain in order of preference; empty if there is only one model."""
    skipped_models: tuple[tuple[str, str], ...] = ()
    """Models of the chain (by `model_key`) that cannot be called here, each with the reason: no key, no URL.
    """
    name: str = ""
    """Name of the agent in reports across sessions; derived from its settings if empty."""
    version: str = ""
    """Version of the agent's code, chosen by its author; empty for none."""
    continues: tuple[str, ...] = ()
    """Other versions whose unfinished runs this one continues."""
    instructions: str = ""
    rate_limits: tuple[RateLimit, ...] = ()
    instruction_functions: tuple[InstructionFunction, ...] = ()
    """Functions that write further instructions, in order."""
    templates: tuple[TemplateVersion, ...] = ()
    """Templates that `instructions` was made from."""
    tools: tuple[ToolSpec, ...] = ()
    """Tools visible to the model from the start."""
    hidden_tools: tuple[ToolSpec, ...] = ()
    """Tools that may be revealed later (`ToolsRevealed`); until then the model cannot see them."""
    catalogue: ToolCatalogue | None = None
    """Set if the model may search `hidden_tools`."""
    tool_choice: ToolChoice = ToolChoice()
    max_tokens: int | None = None
    output: OutputSpec | None = None
    validators: tuple[str, ...] = ()
    """Names of the functions that check an answer, in order."""
    thinking: Thinking | None = None
    sampling: Sampling = Sampling()
    step_functions: tuple[str, ...] = ()
    """Options that functions of the agent choose for every step: `tool_choice`, `thinking`, `sampling`."""
    attempts_max: int = ATTEMPTS_DEFAULT
    """Maximum number of requests for one reply to one model."""
    repeats_max: int | None = REPEATS_DEFAULT
    """Identical results of an identical call after which the run ends; None for no limit."""
    reprompts_max: int = REPROMPTS_DEFAULT
    """Maximum number of times in a row that a model is asked to continue a truncated reply or to repeat a bad one."""
    policy: Policy = Policy()
    approval_seconds: float | None = None
    """Time until an approval question expires; None for never."""
    tools_at_once_max: int = TOOLS_AT_ONCE_DEFAULT
    reply_calls_max: int | None = REPLY_CALLS_DEFAULT
    """Maximum number of tool calls in one reply; a larger reply ends the run and none of them runs."""
    reply_bytes_max: int | None = REPLY_BYTES_DEFAULT
    """Maximum size of one reply on the wire; a larger one is abandoned."""
    keep_raw: KeepRaw | None = None
    """Set if the bytes of model calls are kept."""
    result_characters: int | None = RESULT_CHARACTERS_DEFAULT
    """Maximum size of one tool result as sent; None for no limit."""
    chain: ServerStateStrategy = False
    """Let the provider store the conversation if it can, and send only what is new."""
    cache_ttl: CacheTtl = "auto"
    cache_by: CacheBy = "agent"
    cache_shards: int = 1
    """Number of cache keys that a tenant's sessions are spread over, for high request rates."""
    cache_by_name: bool = False
    """Store tools and instructions at a provider that charges for storage, if it saves money."""
    prefix: PrefixRule = "report"
    compaction: Compaction | None = Compaction()
    """When and how far to compact; None for never."""
    context_tokens: int | None = None
    """The window, if it is not the model's own."""
    extras: tuple[Extra, ...] = ()
    on_truncation: OnTruncation = "event"
    on_adjusted: OnAdjusted = "event"
    tool_errors: ToolErrors = "report"
    memory: Memory | None = None
    """Set if notes precede the conversation."""
    retrieval: RetrievalSettings | None = None
    """Set if context is retrieved for every prompt."""
    hooks: tuple[HookSpec, ...] = ()
    """Registered hooks, in the order in which they decide."""

    handovers_max: int | None = HANDOVERS_DEFAULT
    """Hand-overs of a run after which this agent does not hand it over again; None for no limit."""
    overrides: tuple[RunOverride, ...] = ()
    """Settings that apply to the current run only."""

    @cached_property
    def hook_points(self) -> frozenset[HookPoint]:
        """Points at which a hook is registered."""
        return frozenset(point for hook in self.hooks for point in hook.points)

    @cached_property
    def session_functions(self) -> tuple[InstructionFunction, ...]:
        """Functions whose instructions are part of the system prompt."""
        return tuple(function for function in self.instruction_functions if function.scope == "session")

    @cached_property
    def output_functions(self) -> tuple[str, ...]:
        """Names of the tools whose return value is the answer."""
        return self.output.functions if self.output is not None else ()

    @property
    def prompt_head(self) -> tuple[object, ...]:
        """Settings that form the prompt before the conversation."""
        head = self.instructions, self.session_functions
        return *head, self.tools, self.output, self.memory is None

    @cached_property
    def output_tokens_requested(self) -> int | None:
        """Maximum output tokens as requested and supported; None if not set."""
        requested, abilities = self.max_tokens, self.model.abilities
        too_many = requested is not None and requested > abilities.output_tokens and abilities.output_limited
        return abilities.output_tokens if too_many else requested

    @cached_property
    def requested_terms(self) -> tuple[str, ...]:
        """Service terms that extras request of the current model; they have prices of their own."""
        asked = (extra for extra in self.extras if extra.name in TERM_FIELDS)
        sent = (extra for extra in asked if self.model.endpoint.is_owned_by(extra.owners))
        return list_service_terms({extra.name: msgspec.json.decode(extra.json) for extra in sent})

    @cached_property
    def window_tokens(self) -> int:
        return self.context_tokens or self.model.abilities.prompt_tokens_max

    @cached_property
    def all_tools(self) -> tuple[ToolSpec, ...]:
        return (*self.tools, *self.hidden_tools)

    @cached_property
    def hosted_tools(self) -> tuple[HostedSpec, ...]:
        """Hosted tools that are declared by concept."""
        return tuple(spec.hosted for spec in self.tools if spec.hosted is not None)

    @cached_property
    def has_conditional_tools(self) -> bool:
        """True if a tool is not offered to every model: a provider runs it, or it is not declared."""
        return any(spec.native is not None or not spec.is_declared for spec in self.all_tools)

    @cached_property
    def has_fixed_tools(self) -> bool:
        """True if every request has exactly the visible tools, unless hidden ones were revealed."""
        return self.output is None and self.catalogue is None and not self.has_conditional_tools

    @cached_property
    def instruction_texts(self) -> tuple[Text, ...]:
        """The instructions as they begin the system prompt."""
        return (Text(text=self.instructions),) if self.instructions else ()

    @cached_property
    def limited_tools(self) -> frozenset[str]:
        """Names of the tools with a rate limit."""
        own = (spec.name for spec in self.all_tools if spec.rate is not None)
        return frozenset((*own, *(limit.tool for limit in self.rate_limits if limit.tool)))

    @cached_property
    def derived_name(self) -> str:
        """Name of an agent without one: a digest of its instructions and the names of its tools."""
        data = "\x00".join((self.instructions, *self.tool_names)).encode("utf-8", "surrogatepass")
        digest: str = import_module("hashlib").blake2b(data, digest_size=NAME_DIGEST_BYTES).hexdigest()
        return f"agent-{digest}"

    @cached_property
    def tool_names(self) -> tuple[str, ...]:
        return tuple(spec.name for spec in self.all_tools)

    @cached_property
    def tools_by_name(self) -> Mapping[str, ToolSpec]:
        return {spec.name: spec for spec in self.all_tools}

    @cached_property
    def callable_tools(self) -> Mapping[str, ToolSpec]:
        """Visible tools that calls of the model run, without an output tool; hosted tools are excluded."""
        return {spec.name: spec for spec in self.tools if spec.native is None}

    def find_tool(self, name: str) -> ToolSpec | None:
        """The tool of that name, visible or hidden."""
        return self.tools_by_name.get(name)
