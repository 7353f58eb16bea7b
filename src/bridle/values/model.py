"""Models and endpoints, described as facts.

Code branches on these facts, never on the name of a model or vendor. Keys are not part of them: an endpoint
only names the environment variables that hold its key, so that no value, event or log can contain a secret.
"""

from functools import cached_property
from typing import Literal

from .base import Value
from .usage import HostedCount, Price

Auth = Literal["bearer", "x-api-key", "x-goog-api-key", "api-key", "none"]
ReasoningPolicy = Literal["signed", "must_echo", "may_echo", "strip"]
"""Treatment of earlier reasoning in requests to an endpoint."""
StructuredOutput = Literal["native", "tool"]
EFFORT_ORDER = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""Reasoning efforts, from lowest to highest."""
THINKING_MODES = ("adaptive", "enabled", "disabled", "between_tools", "standard", "pro")
"""Modes of reasoning that models have."""
THINKING_DISPLAYS = ("summarized", "omitted", "updates", "auto", "concise", "detailed")
"""Ways to show reasoning that wires have."""
ANY_EFFORT = "any"
"""In `Abilities.efforts`: the accepted efforts are unknown, so any effort is sent and the provider decides.
"""
Ttl = Literal["5m", "30m", "1h", "12h", "24h"]
"""Lifetime of a cached prompt after its last use."""
CacheMode = Literal["", "marks", "points", "prefix", "hits"]
"""Method by which a provider caches prompts; empty: not at all.

`marks`: at explicit breakpoints. `points`: at breakpoints and at positions it chooses. `prefix`: at any
prefix. `hits`: as `prefix`, and it also reports missed tokens.
"""


class Abilities(Value, kw_only=True, gc=True, dict=True):
    context_tokens: int = 200_000
    """Size of the window: prompt and reply together."""
    input_tokens: int = 0
    """Maximum prompt size, if smaller than the window; otherwise 0."""
    output_tokens: int = 8_192
    output_limited: bool = False
    """True if the model is known to reject more output tokens (stated in the model table)."""
    thinking: tuple[str, ...] = ()
    """Accepted thinking modes; empty if the model does not reason."""
    allowance_mode: str = ""
    """Thinking mode that requires a token allowance; empty if there is none."""
    allowance_least: int = 1_024
    """Smallest accepted allowance for thinking."""
    allowance_most: int | None = None
    """Largest accepted allowance; None if no limit is known."""
    efforts: tuple[str, ...] = ()
    """Accepted efforts; `ANY_EFFORT` if they are unknown."""
    mode_efforts: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Thinking modes that accept only some efforts, with those efforts from lowest to highest."""
    unshown_modes: tuple[str, ...] = ("disabled", "between_tools")
    """Thinking modes in which the display of reasoning cannot be configured."""
    bound_thinking: bool = False
    """True if earlier reasoning is accepted only if the text before it is unchanged."""
    forced_tools: bool = True
    """True if `tool_choice` may force a call."""
    choice_in_prefix: tuple[Literal["forced", "none", "parallel"], ...] = ()
    """Aspects of a tool choice that are part of the cached prompt: changing them is a cache miss."""
    unforced_while: tuple[str, ...] = ()
    """Thinking modes in which a call cannot be forced."""
    called_tools_declared: bool = False
    """True if tools called earlier must be declared even if no longer offered."""
    effort_with_tools: bool = True
    """True if an effort may be combined with tools."""
    structured_output: StructuredOutput = "tool"
    sampling: bool = True
    """True if temperature and related parameters are accepted."""
    stop_sequences_max: int | None = None
    """Maximum number of stop sequences; 0 for none, None if no limit is known."""
    stop_bytes_max: int | None = None
    """Maximum length of a stop sequence; None if no limit is known."""
    image_bytes_max: int = 0
    """Size of the largest accepted image; 0 if no limit is known."""
    images: bool = True
    image_types: tuple[str, ...] = ("image/png", "image/jpeg", "image/gif", "image/webp")
    """Accepted media types of images; empty if no limit is known."""
    documents: bool = True
    document_types: tuple[str, ...] = ("application/pdf", "text/*")
    """Accepted media types of documents; `*` is a wildcard for the subtype."""
    videos: bool = True
    audio: bool = True
    """This and the abilities above default to True: for an unknown model, the provider decides."""
    cache_marks: int = 0
    """Maximum number of explicit cache breakpoints per request; 0 if caching is automatic or absent."""
    automatic_cache: bool = False
    """True if a request option lets the provider place the last breakpoint itself."""
    system_messages: bool = False
    """True if system messages are accepted in the middle of a conversation."""
    deferred_tools: bool = False
    """True if tools can be added mid-conversation without changing the prefix before them."""
    prefill: bool = True
    """True if a conversation may end with assistant text, which the model then continues."""
    cache: CacheMode = ""
    cache_key: bool = False
    """True if requests may carry a cache key of ours."""
    cache_ttls: tuple[Ttl, ...] = ("5m", "1h")
    """Lifetimes that a request may ask for, shortest (the default) first."""
    cache_named: bool = False
    """True if a prompt can be stored under a name for a fee."""
    cache_explained: bool = False
    """True if the provider explains a cache miss relative to a given earlier reply."""
    cache_minimum_tokens: int = 0
    """Shorter prompts are never cached."""
    cache_step_tokens: int = 0
    """Prompts are cached in multiples of this; 0 if at any length."""
    cache_seconds: float = 300.0
    """Lifetime of a cached prompt if the request does not set one."""
    thoughts_kept: Literal["all", "turn"] = "all"
    """Earlier reasoning that the model sees again: of all turns, or of the last turn only."""
    thinking_default: str = ""
    """Thinking mode used if the request sets none."""
    effort_default: str = ""
    display_default: str = ""
    """Visibility of reasoning if the request sets none: `summarized` or `omitted`."""

    hosted: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Hosted tools that can be declared by concept, each with the options that the provider accepts."""
    hosted_counts: tuple[tuple[str, HostedCount], ...] = ()
    """Counts by which uses of a hosted tool are charged in addition to its own, such as the pages of a search."""
    hosted_refused: tuple[str, ...] = ()
    """Concepts that this model lacks although its endpoint has them."""
    compaction: bool = False
    """True if the provider can compact a conversation itself and accepts the result in its place."""
    cuts_prompts: bool = False
    """True if the beginning of an overlong prompt may be dropped silently."""

    @cached_property
    def prompt_tokens_max(self) -> int:
        """Maximum number of prompt tokens."""
        return min(self.input_tokens or self.context_tokens, self.context_tokens)

    def takes_effort(self, effort: str) -> bool:
        return effort in self.efforts or ANY_EFFORT in self.efforts

    def nearest_effort(self, effort: str) -> str:
        """The accepted effort closest to `effort`, the higher of two; empty if there is none.

        Never returns `none` for a model that was asked to think.
        """
        if effort not in EFFORT_ORDER:
            return ""
        wanted_rank = EFFORT_ORDER.index(effort)
        ranks = [EFFORT_ORDER.index(each) for each in self.efforts if each in EFFORT_ORDER[1:]]
        best = min(ranks, key=lambda rank: (abs(rank - wanted_rank), -rank), default=None)
        return "" if best is None else EFFORT_ORDER[best]


class Endpoint(Value, kw_only=True, gc=True, dict=True):
    name: str
    family: str
    base_url: str = ""
    auth: Auth = "bearer"
    key_env: tuple[str, ...] = ()
    """Environment variables that may hold the key, in order; empty if no key is needed."""
    base_url_env: tuple[str, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    reasoning: ReasoningPolicy = "may_echo"
    app: str = ""
    """`module:function` of an in-process application; set instead of `base_url`."""
    simulated: bool = False
    custom_address: str = ""
    """The URL, if it is not the vendor's usual one."""
    signing: str = ""
    """`service/region` for signing requests if there is no key; credentials come from `signing_env`."""
    signing_env: tuple[str, ...] = ()
    """Variables with the access key id, the secret and, optionally, the session token."""
    is_program: bool = False
    """True if a program of the run itself answers, not a provider: its replies are no model calls, so they are free and
    count in no budget, rate or trace."""
    dialect: str = ""
    """Deviations of this endpoint's wire from its family, as JSON that only the family's codec reads."""

    @cached_property
    def endpoint_id(self) -> str:
        """Identity of the endpoint; data encrypted at one address is not sent to another."""
        return f"{self.name}@{self.custom_address}" if self.custom_address else self.name

    def is_owned_by(self, owners: tuple[str, ...]) -> bool:
        """True if something that belongs to these wire families or endpoints may be sent here; to none, to all."""
        return not owners or self.family in owners or self.name in owners


class Model(Value, kw_only=True, gc=True, dict=True):
    id: str
    endpoint: Endpoint
    abilities: Abilities = Abilities()
    price: Price | None = None

    @cached_property
    def name(self) -> str:
        return f"{self.endpoint.name}:{self.id}"

    @cached_property
    def model_key(self) -> str:
        """Identity of a model at an endpoint; facts learned about one apply to no other.

        A simulated endpoint supports every wire, so its key includes the wire family.
        """
        wire = f"{self.endpoint.family}/" if self.endpoint.simulated else ""
        return f"{self.endpoint.endpoint_id}:{wire}{self.id}"


class Origin(Value, kw_only=True):
    """The wire family, endpoint and model that produced a message."""

    family: str
    endpoint: str
    model: str


def make_origin(model: Model, answered_by: str = "") -> Origin:
    """Origin of a message from this model; `answered_by` is the model id in the reply, if it has one."""
    endpoint = model.endpoint
    return Origin(family=endpoint.family, endpoint=endpoint.endpoint_id, model=answered_by or model.id)
