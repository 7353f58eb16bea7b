"""What a model is and where it answers, as facts.

Code asks these facts; it never asks for a model's or a vendor's name.  Keys are
not facts about a model: an endpoint only knows the names of the environment
variables that hold them, so no value, event or log can contain a secret.
"""

from functools import cached_property
from typing import Literal

from .base import Value
from .usage import Price

Auth = Literal["bearer", "x-api-key", "x-goog-api-key", "api-key", "none"]
ReasoningPolicy = Literal["signed", "must_echo", "may_echo", "strip"]
"""What an endpoint wants done with earlier reasoning when it is sent back."""
StructuredOutput = Literal["native", "tool"]
EFFORT_ORDER = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""Words for how much a model thinks, from the least to the most."""
ANY_EFFORT = "any"
"""Among a model's efforts: it may take some, and nobody knows which, so the provider is asked."""
Ttl = Literal["5m", "30m", "1h", "12h", "24h"]
"""How long a prompt is kept after it was last used."""
CacheMode = Literal["", "marks", "points", "prefix", "hits"]
"""Where a provider keeps prompts: at marks, at marks and at ends of its choosing, or everywhere; or nowhere.
`hits` is everywhere, and what was missed is told as well."""


class Abilities(Value, dict=True):
    context_tokens: int = 200_000
    """The window: prompt and reply together."""
    input_tokens: int = 0
    """The most tokens a prompt may have, where that is less than the window; 0 when it is not."""
    output_tokens: int = 8_192
    output_limited: bool = False
    """Whether more output tokens are known to be refused; set where the table states them for this model."""
    thinking: tuple[str, ...] = ()
    """Accepted thinking modes; empty when the model does not reason."""
    allowance_mode: str = ""
    """The thinking mode that takes an allowance of tokens, and has to have one; empty when none does."""
    allowance_least: int = 1_024
    """A smaller allowance for thinking is refused."""
    allowance_most: int | None = None
    """A larger one is refused; None when no limit is known."""
    efforts: tuple[str, ...] = ()
    """Accepted efforts; `ANY_EFFORT` stands for all that nobody wrote down."""
    mode_efforts: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Thinking modes that take some of the efforts only, and which, from the least to the most."""
    unshown_modes: tuple[str, ...] = ("disabled", "between_tools")
    """Thinking modes in which nothing can be said of how reasoning is shown."""
    bound_thinking: bool = False
    """Whether earlier thoughts are taken back only behind the very words they were thought after."""
    forced_tools: bool = True
    """Whether `tool_choice` may force a call."""
    choice_in_prefix: tuple[Literal["forced", "none", "parallel"], ...] = ()
    """What of a tool choice is part of the cached prompt: a change of it is a cache miss."""
    unforced_while: tuple[str, ...] = ()
    """Thinking modes in which a call cannot be forced."""
    called_tools_declared: bool = False
    """Whether tools that were called earlier have to be declared, also where none is offered any more."""
    effort_with_tools: bool = True
    """Whether an effort may be asked for beside tools."""
    structured_output: StructuredOutput = "tool"
    sampling: bool = True
    """Whether temperature and its kin are accepted."""
    stop_sequences_max: int | None = None
    """How many stop words a request may have; 0 for none at all, None when no limit is known."""
    stop_bytes_max: int | None = None
    """How long one of them may be; None when no limit is known."""
    image_bytes_max: int = 0
    """The largest picture a request may carry; 0 when no limit is known."""
    images: bool = True
    image_types: tuple[str, ...] = ("image/png", "image/jpeg", "image/gif", "image/webp")
    """Media types a picture may have; empty when no limit is known."""
    documents: bool = True
    document_types: tuple[str, ...] = ("application/pdf", "text/*")
    """The same of documents; a star stands for the rest of a type."""
    videos: bool = True
    audio: bool = True
    """Of a model nobody has facts about, this and the above are true: the provider is asked."""
    cache_marks: int = 0
    """How many explicit cache marks one request may carry; 0 when caching is automatic or absent."""
    automatic_cache: bool = False
    """Whether one switch on the request lets the provider place the last mark itself."""
    system_messages: bool = False
    """Whether operators may speak in the midst of a conversation, where the wire has a role for them."""
    deferred_tools: bool = False
    """Whether tools can be added in the midst of a conversation without moving what is before them."""
    prefill: bool = True
    """Whether a conversation may end in words of the model, which it then continues."""
    cache: CacheMode = ""
    cache_key: bool = False
    """Whether prompts can be kept apart under a key of ours."""
    cache_ttls: tuple[Ttl, ...] = ("5m", "1h")
    """How long a request may ask for its prompt to be kept, from the shortest, which is the usual one."""
    cache_named: bool = False
    """Whether a prompt can be kept by name, for as long as is paid for."""
    cache_explained: bool = False
    """Whether the provider says why it did not find a prompt, when told which answer to compare it with."""
    cache_minimum_tokens: int = 0
    """What is shorter is never kept."""
    cache_step_tokens: int = 0
    """Prompts are kept in multiples of this; 0 when they are kept as they come."""
    cache_seconds: float = 300.0
    """How long a prompt is kept when the request does not say."""
    thoughts_kept: Literal["all", "turn"] = "all"
    """Whether the model sees its thoughts of every turn again, or only of the last one."""
    thinking_default: str = ""
    """The thinking mode of a request that does not say."""
    effort_default: str = ""
    display_default: str = ""
    """What a request that does not say sees of the model's thoughts: `summarized` or `omitted`."""

    compaction: bool = False
    """Whether the provider makes something short of a conversation by itself, and takes it in its place."""
    cuts_prompts: bool = False
    """Whether a prompt that is too long may lose its beginning without a word about it."""

    @cached_property
    def prompt_tokens_max(self) -> int:
        """The most tokens that a prompt may have."""
        return min(self.input_tokens or self.context_tokens, self.context_tokens)

    def takes_effort(self, effort: str) -> bool:
        return effort in self.efforts or ANY_EFFORT in self.efforts

    def nearest_effort(self, effort: str) -> str:
        """The accepted effort closest to this one, the greater of two; empty when there is none.

        Asked to think, a model is not told to think nothing.
        """
        if effort not in EFFORT_ORDER:
            return ""
        wanted = EFFORT_ORDER.index(effort)
        ranks = [EFFORT_ORDER.index(each) for each in self.efforts if each in EFFORT_ORDER[1:]]
        best = min(ranks, key=lambda rank: (abs(rank - wanted), -rank), default=None)
        return "" if best is None else EFFORT_ORDER[best]


class Endpoint(Value, dict=True):
    name: str
    family: str
    base_url: str = ""
    auth: Auth = "bearer"
    key_env: tuple[str, ...] = ()
    """Environment variables that may hold the key, in order; empty when none is needed."""
    base_url_env: tuple[str, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    reasoning: ReasoningPolicy = "may_echo"
    app: str = ""
    """`module:function` of an in-process application; set instead of `base_url`."""
    simulated: bool = False
    custom_address: str = ""
    """The address, where it is not the one everybody means by the name."""
    signing: str = ""
    """`service/region` that requests are signed for when there is no key, and by whom: `signing_env`."""
    signing_env: tuple[str, ...] = ()
    """Variables with the id, the secret and perhaps the token of the account that signs."""
    dialect: str = ""
    """How this endpoint's wire differs from its family's, as JSON that only the family's codec reads."""

    @cached_property
    def endpoint_id(self) -> str:
        """Who this really is: what was sealed at one address is nobody's business at another."""
        return f"{self.name}@{self.custom_address}" if self.custom_address else self.name


class Model(Value, dict=True):
    id: str
    endpoint: Endpoint
    abilities: Abilities = Abilities()
    price: Price | None = None

    @cached_property
    def name(self) -> str:
        return f"{self.endpoint.name}:{self.id}"

    @cached_property
    def model_key(self) -> str:
        """Which model at which address: what was found out about one holds for no other.

        A simulated endpoint speaks every wire, and the same model on another wire is another one."""
        wire = f"{self.endpoint.family}/" if self.endpoint.simulated else ""
        return f"{self.endpoint.endpoint_id}:{wire}{self.id}"


class Origin(Value):
    """Who said something: the wire family, the endpoint and the model that answered."""

    family: str
    endpoint: str
    model: str
