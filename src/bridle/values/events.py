"""All events of a session, one struct per fact.

Events are stored permanently, and a session is the sum of its events. Therefore:

  - An event names something that *has happened*, in the past tense.
  - Order, time and hash are on the envelope (`Record`), added by the driver.
  - New fields have defaults; an existing field is never renamed or given a new meaning.
  - Results of code outside the core (a price, a callable's choice) are recorded, so that a fold needs nothing else.

Events of a concept with its own file (approvals, compensation, view, cache) are defined there.
"""

from decimal import Decimal
from typing import Literal

from .base import EventBase, Value
from .budget import BudgetReserved as BudgetReserved
from .budget import BudgetSettled as BudgetSettled
from .budget import BudgetSnapshot
from .budget import SubrunCharged as SubrunCharged
from .budget import SubrunStarted as SubrunStarted
from .budget import SubrunWaiting as SubrunWaiting
from .cache import CacheDegraded as CacheDegraded
from .cache import CacheEvent, ConversationEvent
from .cache import ConversationDropped as ConversationDropped
from .cache import ConversationOpened as ConversationOpened
from .cache import PrefixMoved as PrefixMoved
from .calls import ApprovalAnswer as ApprovalAnswer
from .calls import ApprovalAnswered as ApprovalAnswered
from .calls import ApprovalAsked as ApprovalAsked
from .calls import ApprovalQuestion as ApprovalQuestion
from .calls import CallReviewed as CallReviewed
from .calls import CallUpgrade as CallUpgrade
from .calls import CompensationFinished as CompensationFinished
from .calls import CompensationStarted as CompensationStarted
from .calls import ContentRedacted as ContentRedacted
from .calls import ControlRefused as ControlRefused
from .calls import ControlRequested as ControlRequested
from .calls import ResourceClaim, RunConclusion, StoredResult, ToolError
from .calls import ServerAnswered as ServerAnswered
from .calls import ServerAsked as ServerAsked
from .calls import ToolInterrupted as ToolInterrupted
from .calls import ToolsChanged as ToolsChanged
from .calls import ToolsRevealed as ToolsRevealed
from .errors import Failure, FailureKind
from .evals import TrialScored as TrialScored
from .hooks import HookDecided as HookDecided
from .memory import ContextRetrieved as ContextRetrieved
from .memory import InstructionWritten as InstructionWritten
from .memory import MemoryLoaded as MemoryLoaded
from .memory import NoteRemoved as NoteRemoved
from .memory import NoteWritten as NoteWritten
from .memory import TemplateVersion
from .message import CallOutcome, Message, PromptPart, Reply, ToolResult
from .message import Compacted as Compacted
from .message import PartRef as PartRef
from .message import ViewChange as ViewChange
from .message import ViewChanged as ViewChanged
from .model import Model
from .request import Breakpoint, ToolChoice
from .request import OptionsChosen as OptionsChosen
from .settings import Settings
from .usage import Budget, BudgetParts, Reservation, Usage


class Latency(Value, kw_only=True):
    """Seconds from sending a request to each point of its response; None for a point not reached."""

    first_byte_seconds: float | None = None
    """Until the status line."""
    first_token_seconds: float | None = None
    """Until the first text, reasoning or call; for a reply that was not streamed, until its end."""
    total_seconds: float = 0.0
    """Until the end of the response, or until it was abandoned."""


class Forked(EventBase, kw_only=True, tag="forked"):
    """The first own event of a fork; the records before it are shared with the parent.

    Calls pending at the fork point belong to the parent: the fork answers them without running them.
    """

    session: str
    """Makes this log distinct from every other fork at the same point."""
    parent: str
    at: int
    """Number of shared records."""
    cross_tenant: str = ""
    """Tenant acting, if the session belongs to another tenant and the caller confirmed it."""


class LogRepaired(EventBase, kw_only=True, tag="log_repaired"):
    """Defects of the log that were repaired while reading it; recorded once."""

    items: tuple[str, ...]
    """The repairs, one sentence each, with record numbers."""
    records_lost: bool = False
    """Records are missing: it is unknown what they did."""


class UnknownEvent(EventBase, kw_only=True, tag="unknown"):
    """An event that this version cannot read, written by a newer one; its bytes are on its record."""

    kind: str = ""
    """Tag of the event."""


RunStop = Literal[
    "done", "budget", "steps", "seconds", "no_progress", "refused", "cancelled", "failed", "waiting",
    "context", "paused",
]  # fmt: skip

OutputVerdict = Literal["accepted", "retry", "failed"]
"""Decision of a validator; `failed`: it raised something other than `ModelRetry`, or took too long."""
ResultSource = Literal["run", "probe", "person", "receipt", "hook", "caller"]
WaitSource = Literal["", "backoff", "retry-after", "breaker", "repair", "rate-limit"]
"""Basis of the wait: our backoff table, the provider, the circuit breaker, a rate limit, or none (the request was
changed)."""


class Configured(EventBase, kw_only=True, tag="configured"):
    """Settings in force from here on."""

    settings: Settings
    session: str = ""
    """Set on the first event; makes this log distinct from every other."""
    omitted_extras: tuple[str, ...] = ()
    """Extras that were sent so far and not given again; a log does not hold their values."""
    omitted_tools: tuple[str, ...] = ()
    """Hosted tools that were offered so far and not given again; a log does not hold their definitions."""
    handed_over_to: str = ""
    """Agent that continues the run with these settings, if the one before it handed the run over."""
    is_return: bool = False
    """True if the first agent goes on, after another one has settled the calls that it left in doubt."""
    upgraded_calls: tuple[CallUpgrade, ...] = ()
    """Open calls that these settings declare in another way, and what became of them."""


class Prompted(EventBase, kw_only=True, tag="prompted"):
    """A user prompt; starts a run."""

    parts: tuple[PromptPart, ...]  # empty to continue an imported conversation that ends with results
    budget: Budget = Budget()
    caller: str = ""
    """Identity on whose behalf the run acts; a policy can match it."""
    tenant: str = ""
    cross_tenant: str = ""
    """The tenant again, if the session belongs to another tenant and the caller confirmed it."""
    settled_by: tuple[str, ...] = ()
    """Agents that had the run before: the last one settles its calls in doubt, then the first one goes on."""
    parent_session: str = ""  # session whose tool started this run
    parent_call_id: str = ""
    """Call of that session inside which this run started."""
    templates: tuple[TemplateVersion, ...] = ()
    """Templates that texts of the prompt were made from."""
    traceparent: str = ""
    """The caller's position in a trace, as a W3C header; the run and its resumed parts join that trace."""
    engine: bool = False  # an engine performs the run, in parts
    budget_parts: BudgetParts | None = None
    """Limits that agent and run set for session, tenant and caller, if the run sets any; `budget` has both merged."""
    client_waits: bool = False
    """The run is for a client that waits for it, and that a restarted server does not have: it is not resumed."""


class Imported(EventBase, kw_only=True, tag="imported"):
    """A conversation from elsewhere became the beginning of this one."""

    messages: tuple[Message, ...]
    repairs: tuple[str, ...] = ()
    """Repairs and dropped content, one sentence each."""
    instructions: str = ""
    """Its system prompt, used while the agent has no instructions of its own."""


class Resumed(EventBase, kw_only=True, tag="resumed"):
    """A new driver took over the session; everything the old one had in progress is in doubt."""

    budget: Budget | None = None
    cross_tenant: str = ""  # as in `Forked`
    took_over: bool = False  # from a process that was alive and did not answer
    engine: bool = False  # by a worker or a client of an engine, which performs the run in parts
    continues_reply: bool = False  # the whole reply before a cancel; the model is not called for it again
    budget_parts: BudgetParts | None = None  # as in `Prompted`; None if they stay as they were


class RequestAdjusted(EventBase, kw_only=True, tag="request_adjusted"):
    """Something requested is not sent or not followed, because the model or its provider does not support it."""

    adjustments: tuple[str, ...]
    """One sentence per option."""


class ModelAsked(EventBase, kw_only=True, tag="model_asked"):
    step: int
    attempt: int
    digest: str
    """Hash of the encoded request; lets a replay prove that it sends the same request."""
    tool_choice: ToolChoice = ToolChoice()
    max_tokens: int | None = None
    notes: tuple[str, ...] = ()
    """Changes made because this model would reject the original."""
    after_failure: FailureKind | None = None
    """Failure that this attempt follows."""
    wait_seconds: float = 0.0
    wait_source: WaitSource = ""
    reservation: Reservation | None = None  # of a shared budget
    breakpoints: tuple[Breakpoint, ...] = ()
    """Positions up to which the provider was asked to cache the prompt, and for how long."""
    stored_prompt: str = ""
    conversation: str = ""
    """The provider's conversation object that the request and its reply are added to."""
    summarizes_until: str = ""
    """Last message covered by the requested summary; empty for an ordinary request."""
    model_key: str = ""
    """Model that was called, if it is not the model of the settings."""
    asks_native_summary: bool = False
    """The summary is requested in the provider's own form, which only it can read back."""


class ModelReplied(CallOutcome, kw_only=True, tag="model_replied"):
    reply: Reply
    usd: Decimal | None = None
    output_error: str = ""
    """Reason why the output type rejects this answer although its schema accepts it."""
    resource_claims: tuple[ResourceClaim, ...] = ()
    """Statements of the tools' own code about the calls."""
    truncation_hint: str = ""
    """Reason to believe that the model did not read the whole prompt."""
    usage_doubt: str = ""
    """Reason why the provider's token count is implausible; our estimate is used for the window instead."""
    summarizes_until: str = ""
    """As on `ModelAsked`; such a reply is not part of the conversation."""
    latency: Latency | None = None


class ModelFailed(CallOutcome, kw_only=True, tag="model_failed"):
    failure: Failure
    partial_text: str = ""
    """Text received before the reply broke off."""
    usage: Usage | None = None
    """Tokens reported before the reply broke off; None if there is nothing to pay for."""
    usd: Decimal | None = None
    rejected_parts: tuple[PartRef, ...] = ()
    """Parts that the provider rejected, according to its message; they can be omitted."""
    discarded_tools: tuple[str, ...] = ()
    """Tools started early for a reply that never completed; their results are discarded."""
    random_draw: float = 1.0
    """Random number from 0 to 1, drawn at the failure; determines the backoff."""
    latency: Latency | None = None
    """None if nothing was sent."""


class ModelSwitched(EventBase, kw_only=True, tag="model_switched"):
    """The run continues with another model of its chain, because this one failed."""

    model: Model
    why: str


class ToolStarted(EventBase, kw_only=True, tag="tool_started"):
    """The intent to run a call, durable before the tool runs."""

    call_id: str
    name: str
    key: str
    """Idempotency key; equal for all attempts at this call."""
    attempt: int = 1
    rule: str = ""
    """Rule or approval that allowed the call, if one was involved."""
    arguments: str = ""
    """Arguments that it runs with, as JSON text: the model's, or a person's replacement."""
    wait_seconds: float = 0.0
    """Time that the call waited before it started."""
    wait_source: WaitSource = ""
    epoch: int = 0
    """Epoch of the session under which it started."""

    @property
    def unique_key(self) -> str | None:
        return f"intent:{self.call_id}#{self.attempt}"


class ToolProbed(EventBase, kw_only=True, tag="tool_probed"):
    """The tool's probe found that a call in doubt never took effect."""

    call_id: str
    attempt: int
    name: str = ""
    arguments: str = ""
    """As in `ToolStarted`."""

    @property
    def unique_key(self) -> str | None:
        return f"probe:{self.call_id}#{self.attempt}"


class ToolFinished(EventBase, kw_only=True, tag="tool_finished"):
    """The receipt of a call; a call with a receipt never runs again."""

    result: ToolResult
    rule: str = ""
    """Rule or rejection that denied the call, if one did."""
    source: ResultSource = "run"
    """Origin of the result, if the call was not run here; `receipt`: an equal call already ran."""
    same_as_call: str = ""  # id of that call
    stored_result: StoredResult | None = None
    """Complete result, if `result` is an excerpt."""
    name: str = ""  # tool that was called
    arguments: str = ""
    """As in `ToolStarted`; the model's if the call did not run."""
    output: str | None = None
    """JSON of the return value, if the tool is an output function that accepted the call."""
    raised: ToolError | None = None
    conclusion: RunConclusion | None = None
    """The end of the run, if the tool raised `EndRun`."""

    @property
    def call_id(self) -> str:
        return self.result.call_id

    @property
    def unique_key(self) -> str | None:
        return f"receipt:{self.result.call_id}"

    @property
    def required_blobs(self) -> tuple[str, ...]:
        return (self.stored_result.hash,) if self.stored_result else ()


class Reprompted(EventBase, kw_only=True, tag="reprompted"):
    """The harness asked the model to continue or to try again."""

    why: str
    message: str


class Steered(EventBase, kw_only=True, tag="steered"):
    """A person sent a message to a running run; it waits for the next safe point (`SteeringTaken`)."""

    message: str
    by: str = ""
    request: str = ""  # as in `ApprovalAnswered`


class SteeringTaken(EventBase, kw_only=True, tag="steering_taken"):
    """Messages of `Steered` events joined the conversation, oldest first."""

    count: int
    """Number of messages; later ones keep waiting."""


class PauseRequested(EventBase, kw_only=True, tag="pause_requested"):
    """A person asked a run to stop after its current step; `resume` continues it."""

    reason: str
    by: str = ""
    request: str = ""  # as in `ApprovalAnswered`


class OutputChecked(EventBase, kw_only=True, tag="output_checked"):
    """A validator decided about an answer; it does not run again for that answer."""

    validator: str
    verdict: OutputVerdict
    answer_id: str
    """Call of the output tool that gave the answer; for an answer in text, `r` and the number of its reply."""
    reason: str = ""
    """Message of `ModelRetry`, or of the exception that the validator raised."""
    changed: str | None = None
    """The answer as the validator returned it, if it changed the answer: JSON text, or plain text."""

    @property
    def unique_key(self) -> str | None:
        return f"check:{self.answer_id}:{self.validator}"


class RunEnded(EventBase, kw_only=True, tag="run_ended"):
    """A run ended. Also answers all pending calls but those in doubt, so that later requests are valid."""

    stop: RunStop
    reason: str = ""
    partial_text: str = ""
    """Text received of a reply that was cut off."""
    usage: Usage | None = None
    """Tokens reported for that reply; None if there is nothing to pay for."""
    usd: Decimal | None = None
    discarded_tools: tuple[str, ...] = ()
    """Tools started early for that reply."""
    latency: Latency | None = None  # of a model call that the end of the run interrupted
    by: str = ""  # person who cancelled the run
    request: str = ""  # as in `ApprovalAnswered`
    in_doubt: tuple[str, ...] = ()  # calls without a result; `on_unknown` settles them later


Event = (
    Configured
    | Forked
    | Imported
    | Prompted
    | MemoryLoaded
    | ContextRetrieved
    | InstructionWritten
    | NoteWritten
    | NoteRemoved
    | ViewChanged
    | Compacted
    | ToolsRevealed
    | CacheEvent
    | ConversationEvent
    | Resumed
    | OptionsChosen
    | RequestAdjusted
    | ModelAsked
    | ModelReplied
    | ModelFailed
    | ModelSwitched
    | ToolStarted
    | ToolProbed
    | ToolInterrupted
    | ToolFinished
    | ToolsChanged
    | SubrunStarted
    | SubrunCharged
    | SubrunWaiting
    | ServerAsked
    | ServerAnswered
    | ApprovalAsked
    | ApprovalAnswered
    | CallReviewed
    | HookDecided
    | CompensationStarted
    | CompensationFinished
    | Reprompted
    | OutputChecked
    | Steered
    | SteeringTaken
    | PauseRequested
    | RunEnded
    | BudgetReserved
    | BudgetSettled
    | BudgetSnapshot
    | LogRepaired
    | ContentRedacted
    | ControlRequested
    | ControlRefused
    | TrialScored
    | UnknownEvent
)
