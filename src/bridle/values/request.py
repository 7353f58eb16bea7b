"""Model requests, tool specifications and their options, independent of any provider."""

from importlib import import_module
from typing import Literal

from .base import EventBase, Value
from .message import Message, Text
from .model import Model, Ttl
from .usage import RateLimit

ToolEffect = Literal["read", "write", "exclusive", "undeclared"]
"""Effect of running a tool. `undeclared` is treated as the strictest: in order, never early."""
OnUnknown = Literal["retry", "probe", "ask", "report"]
"""Handling of a call that started but has no result.

Run it again, let the tool probe for its outcome, ask a person, or report to the model that it is unknown.
"""
ApprovalMode = Literal["never", "always", "depends"]
"""Need for approval by a person; `depends`: the tool's code decides by the arguments."""

OncePer = Literal["run", "session"] | float
"""Period in which equal arguments are the same action: the run, the session, or a number of seconds."""

TOOL_SECONDS_DEFAULT = 60.0


HANDOVER_PREFIX = "transfer_to_"
"""Start of the name of every tool with `ToolSpec.handover`."""


HOSTED_USES_DEFAULT = 10
"""Uses of a hosted tool in one reply that are expected at most if the caller sets no `max_uses`."""


class HostedSpec(Value, kw_only=True):
    """A tool that a provider runs, as one concept of all providers; its options are in `ToolSpec.native`."""

    concept: str
    """Such as `web_search`; `Abilities.hosted` lists the concepts that a model has."""
    restrictions: tuple[str, ...] = ()
    """Options in use that must be enforced. Without support for one of them, the tool is not offered."""
    max_uses: int = HOSTED_USES_DEFAULT
    """Uses in one reply, for the worst case of its cost."""
    has_max_uses: bool = False
    """True if `max_uses` was stated; else it is the default, which only some providers are told and enforce."""
    alternative: str = ""
    """Tool of the harness to name where the provider has none."""


class WireForm(Value, kw_only=True):
    """Definition of a tool as a client wrote it; sent unchanged to models of the same wire family."""

    wire: str
    json: str
    digest: str
    """Of the name, description and parameters that it stands for; it is not sent after these were changed."""


class ToolSpec(Value, kw_only=True):
    name: str
    description: str = ""
    parameters: str = '{"type":"object","properties":{},"additionalProperties":false}'
    """JSON Schema as text; kept as text for the same reason as `ToolCall.arguments`."""
    effect: ToolEffect = "undeclared"
    on_unknown: OnUnknown = "report"
    approve: ApprovalMode = "never"
    claims_resource: bool = False
    """True if the tool's code can name the resource of a call (`ResourceClaim.resource`)."""
    at_once_max: int | None = None
    """Maximum number of concurrent calls."""
    rate: RateLimit | None = None
    """Calls per period that all runs in the store share; None for no limit."""
    compensation: str = ""
    """Name of the tool that undoes this one; empty if there is none."""
    timeout_seconds: float | None = TOOL_SECONDS_DEFAULT
    once_per: OncePer | None = None
    """If set, a call with equal arguments gets the earlier result."""
    native: str | None = None
    """Provider-side tool, in the provider's own JSON or, with `hosted`, as the options of that concept."""
    hosted: HostedSpec | None = None
    """Set for a provider-side tool that each wire family declares in its own way."""
    is_declared: bool = True
    """False for a tool that answers calls of a hosted tool: the provider knows them without a declaration."""
    native_to: tuple[str, ...] = ()
    """Wire families or endpoints that it belongs to; inferred from its JSON by the agent if empty."""
    native_digest: str = ""
    """Set if strings of `native` are hidden, as in every log; shows whether the definition is still the same."""
    always_visible: bool = False
    """Visible to the model from the start, however many tools there are."""
    handover: str = ""
    """Agent that continues the run after this tool was called; empty for every other tool."""
    external: bool = False
    """True if the caller runs it: the run ends as waiting, and the caller resumes it with the result."""
    is_checked: bool = True
    """False if arguments need only be a JSON object, because the program that runs the tool checks them itself."""
    wire_form: WireForm | None = None
    """The client's own definition, if it holds more than the fields here."""
    aliases: tuple[str, ...] = ()
    """Earlier names: open calls under one of them are calls of this tool after an upgrade."""


def digest_definition(spec: ToolSpec) -> str:
    """Hash of what the model is told about a tool."""
    data = f"{spec.name}\0{spec.description}\0{spec.parameters}".encode("utf-8", "replace")
    digest: str = import_module("hashlib").sha256(data).hexdigest()  # OpenSSL is slow to load
    return digest


def find_wire_form(spec: ToolSpec, family: str) -> str:
    """The client's definition of a tool if it may be sent to models of this family; empty if not."""
    form = spec.wire_form
    is_sent = form is not None and form.wire == family and form.digest == digest_definition(spec)
    return form.json if form is not None and is_sent else ""


class ToolChoice(Value, kw_only=True):
    mode: Literal["auto", "any", "none", "tool"] = "auto"
    name: str = ""
    parallel: bool = True
    every_step: bool = False
    """Force a call (`any`, `tool`) at every step; otherwise until the model has made one in the run."""


class OutputSpec(Value, kw_only=True):
    """Required shape of the final answer."""

    name: str
    parameters: str
    """JSON Schema as text."""
    description: str = ""
    mode: Literal["native", "tool"] = "native"
    unsupported_models: tuple[tuple[str, str], ...] = ()
    """Models (by `model_key`) whose native form cannot express the schema, each with the reason."""
    functions: tuple[str, ...] = ()
    """Tools whose return value is the answer; `name` is empty if no type is accepted beside them."""
    is_wrapped: bool = False
    """The answer is the field `value` of an object, and the client that brought the schema gets the field alone."""

    @property
    def call_names(self) -> tuple[str, ...]:
        """Names of the calls that give an answer; empty if the answer is a text."""
        if self.mode != "tool":
            return ()
        return (self.name, *self.functions) if self.name else self.functions

    def explain_unsupported(self, model: Model) -> str:
        """Reason why this model is asked through a tool despite a native form; empty if there is none."""
        return dict(self.unsupported_models).get(model.model_key, "")

    def mode_for(self, model: Model) -> Literal["native", "tool"]:
        by_call = self.functions or self.explain_unsupported(model)
        return "tool" if by_call else model.abilities.structured_output


class Thinking(Value, kw_only=True):
    """Reasoning options: a mode from the model's abilities, an effort, or a token allowance."""

    mode: str = ""
    effort: str = ""
    budget_tokens: int | None = None
    display: str = ""


class Sampling(Value, kw_only=True):
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop_sequences: tuple[str, ...] = ()


class StepOptions(Value, kw_only=True):
    """Options of one step of a run, if functions of the agent choose some of them."""

    step: int
    tool_choice: ToolChoice | None = None
    """None if no function chooses it."""
    thinking: Thinking | None = None
    sampling: Sampling = Sampling()


class OptionsChosen(EventBase, kw_only=True, tag="options_chosen"):
    """Functions of the agent chose options of a step; they are not called again for it."""

    options: StepOptions


class Breakpoint(Value, kw_only=True):
    """Position up to which the provider is asked to cache the prompt.

    `end` lets the provider follow the end of the conversation, so that no earlier byte changes as it grows.
    """

    position: Literal["tools", "system", "message", "end"]
    message: int = -1
    block: int = -1
    """Index of the system text; by default the last."""
    ttl: Ttl = "5m"


class Extra(Value, kw_only=True):
    """A field that only one family understands, as JSON text."""

    name: str
    json: str
    owners: tuple[str, ...] = ()
    """Wire families or endpoints that it belongs to; inferred from its name by the agent if empty."""
    digest: str = ""
    """Set if strings of `json` are hidden, as in every log: a hash of the original."""
    unlisted: bool = False
    """True to send a field that no list of the provider's fields has, such as one that is newer than this version."""


class Request(Value, kw_only=True):
    model: Model
    system: tuple[Text, ...] = ()
    tools: tuple[ToolSpec, ...] = ()
    deferred_tools: tuple[ToolSpec, ...] = ()
    """Tools that enter the prompt only when a result names them (`ToolResult.reveals_tools`).

    Only for models that support it (`Abilities.deferred_tools`).
    """
    messages: tuple[Message, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    max_tokens: int | None = None
    output: OutputSpec | None = None
    thinking: Thinking | None = None
    sampling: Sampling = Sampling()
    breakpoints: tuple[Breakpoint, ...] = ()
    cache_key: str = ""
    """Separates this prompt's cache from others; empty if the provider takes no key."""
    stored_prompt: str = ""
    """Name of the prompt stored at the provider; tools and system prompt are then not sent."""
    compare_reply_id: str = ""
    """The provider's id of a reply to explain cache misses against."""
    stream: bool = True
    keeps_server_state: bool = False
    """True if the provider is asked to store the conversation, so that later requests send only what is new.
    """
    conversation: str = ""
    """The provider's conversation object to add to; it contains everything up to `server_state_until`."""
    server_state_until: str = ""
    """The provider's id of the reply up to which it has everything; empty to send all messages."""
    asks_native_summary: bool = False
    """Request a summary in the provider's own form instead of an answer.

    Only for models that support it (`Abilities.compaction`).
    """
    summary_instructions: str = ""
    """Instructions for the summary, for providers that accept them."""
    extras: tuple[Extra, ...] = ()
