"""One question to one model, in no provider's words."""

from typing import Literal

from .base import Value
from .message import Message, Text
from .model import Model, Ttl

ToolEffect = Literal["read", "write", "exclusive", "undeclared"]
"""What running a tool does to the world.  `undeclared` is read as the most careful: in order, never early."""
OnUnknown = Literal["retry", "probe", "ask", "report"]
"""What to do with a call that was started and never finished: run it again, let the tool look for what
became of it, ask a person, or tell the model that nobody knows."""
ApprovalMode = Literal["never", "always", "depends"]
"""Whether a person must agree before a tool runs; `depends` on the arguments, as the tool's own code says."""

OncePer = Literal["run", "session"] | float
"""For how long equal arguments are the same action: the run, the session, or so many seconds."""

TOOL_SECONDS_DEFAULT = 60.0


class ToolSpec(Value):
    name: str
    description: str = ""
    parameters: str = '{"type":"object","properties":{},"additionalProperties":false}'
    """JSON Schema as text, for the same reason as `ToolCall.arguments`."""
    effect: ToolEffect = "undeclared"
    on_unknown: OnUnknown = "report"
    approve: ApprovalMode = "never"
    claims_resource: bool = False
    """Whether its own code can say what a call works on (`Claim.resource`)."""
    at_once_max: int | None = None
    """How many calls of it may run at the same time."""
    compensation: str = ""
    """What undoes it, by name; empty when nothing does."""
    timeout_seconds: float | None = TOOL_SECONDS_DEFAULT
    once_per: OncePer | None = None
    """Set when equal arguments are the same action: a repeated call gets the earlier result."""
    native: str | None = None
    """A tool the provider runs itself, in the provider's own JSON."""
    native_to: tuple[str, ...] = ()
    """The wire families or endpoints it belongs to; an agent fills in what its JSON tells."""
    always_visible: bool = False
    """Shown to the model from the beginning, however many tools there are."""


class ToolChoice(Value):
    mode: Literal["auto", "any", "none", "tool"] = "auto"
    name: str = ""
    parallel: bool = True
    every_step: bool = False
    """A named tool is forced at the first step of a run, unless this says that it is forced at every one."""


class OutputSpec(Value):
    """The shape a final answer must have."""

    name: str
    parameters: str
    """JSON Schema as text."""
    description: str = ""
    mode: Literal["native", "tool"] = "native"
    unsupported_models: tuple[tuple[str, str], ...] = ()
    """Models, by seat, whose native form cannot carry the schema, each with the reason."""

    def explain_unsupported(self, model: Model) -> str:
        """Reason why this model is asked by tool although it has a native form; empty when there is none."""
        return dict(self.unsupported_models).get(model.model_key, "")

    def mode_for(self, model: Model) -> Literal["native", "tool"]:
        return "tool" if self.explain_unsupported(model) else model.abilities.structured_output


class Thinking(Value):
    """How the model should reason: a mode of its own abilities, an effort, or a token allowance."""

    mode: str = ""
    effort: str = ""
    budget_tokens: int | None = None
    display: str = ""


class Sampling(Value):
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop_sequences: tuple[str, ...] = ()


class Breakpoint(Value):
    """A place up to which the provider is asked to keep the prompt.

    `end` lets the provider follow the end of the conversation by itself, so that
    no earlier byte changes when the conversation grows.
    """

    position: Literal["tools", "system", "message", "end"]
    message: int = -1
    block: int = -1
    """Which of the system's texts; the last one unless another is said."""
    ttl: Ttl = "5m"


class Extra(Value):
    """A field only one family understands, as JSON text."""

    name: str
    json: str
    owners: tuple[str, ...] = ()
    """The wire families or endpoints it belongs to; an agent fills in what its name tells."""


class Request(Value):
    model: Model
    system: tuple[Text, ...] = ()
    tools: tuple[ToolSpec, ...] = ()
    deferred_tools: tuple[ToolSpec, ...] = ()
    """Tools that are no part of the prompt until a result names them (`ToolResult.shows`): only where the
    model's endpoint can do that (`Abilities.deferred_tools`)."""
    messages: tuple[Message, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    max_tokens: int | None = None
    output: OutputSpec | None = None
    thinking: Thinking | None = None
    sampling: Sampling = Sampling()
    breakpoints: tuple[Breakpoint, ...] = ()
    cache_key: str = ""
    """What the provider keeps the prompt under, apart from those of others; empty where it takes no key."""
    stored_prompt: str = ""
    """The name under which the provider keeps the tools and the system prompt, which are then not sent."""
    compare_reply_id: str = ""
    """The provider's id of a reply whose prompt this one should begin with, to be told why it does not."""
    stream: bool = True
    keeps_server_state: bool = False
    """Whether the provider is asked to keep the conversation, so that only what is new need be sent."""
    conversation: str = ""
    """The provider's conversation object to add this to; it holds everything up to `chained_to`."""
    server_state_until: str = ""
    """The provider's id of the reply up to which it has everything; empty to send it all."""
    asks_native_summary: bool = False
    """Asks for no answer, but for something short that stands for the whole conversation from then on, made
    by the provider and in a form it takes back: only where it can do that (`Abilities.compaction`)."""
    summary_instructions: str = ""
    """How that is to be done, in words of ours; for providers that listen to such words."""
    extras: tuple[Extra, ...] = ()
