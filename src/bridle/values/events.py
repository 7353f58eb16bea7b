"""Time that one model call took, from sending the request; recorded with what came of the call."""

from decimal import Decimal
from typing import Literal

from .base import EventBase, Value
from .budget import BudgetReserved, BudgetSettled, BudgetSnapshot, SubrunCharged, SubrunStarted
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
from .calls import CompensationFinished as CompensationFinished
from .calls import CompensationStarted as CompensationStarted
from .calls import ResourceClaim, StoredResult
from .errors import Failure, FailureKind
from .lineage import Forked as Forked
from .memory import ContextRetrieved, MemoryLoaded, NoteRemoved, NoteWritten
from .message import Media, Message, Reply, Text, ToolResult
from .model import Model
from .request import Breakpoint, ToolChoice
from .settings import Settings
from .usage import Budget, Reservation, Usage
from .view import Compacted as Compacted
from .view import PartRef as PartRef
from .view import ViewChange as ViewChange
from .view import ViewChanged as ViewChanged


class Latency(Value):
    """Seconds from sending a request to each point of its answer; None for a point that was never reached."""

    first_byte_seconds: float | None = None
    """To the status line of the answer."""
    first_token_seconds: float | None = None
    """To the first word, thought or call; of a reply that was not streamed, to its end."""
    total_seconds: float = 0.0
    """To the end of the answer, or to the moment it was given up."""


# What cannot be read in a log, as events: it is said once, and never guessed at.


class LogRepaired(EventBase, tag="repaired"):
    """The log could not be read as it is; what was put right in reading it, written down once."""

    items: tuple[str, ...]
    """What, one sentence each, with the numbers of the records."""
    records_lost: bool = False
    """Records are gone: nobody knows what was done in them."""


class UnknownEvent(EventBase, tag="unknown"):
    """What this version cannot read, because a newer one wrote it.  Its bytes are on its record."""

    kind: str = ""
    """What it calls itself."""


# Everything that can happen in a session, one struct per fact.
#
# Events are kept for ever and a session is nothing but its events.  Hence:
#
#   - An event names something that *has happened*, in the past tense.
#   - Order, time and proof are on the envelope (`Record`), put there by the driver.
#   - New fields get defaults; an old field is never renamed or given a new meaning.
#   - What was decided by code outside the core (a price, a choice made by a
#     callable) is recorded with the event, so that folding needs no outside world.
#
# `once` names what must not be in a log twice, whatever retries above the store do.  The events of a concept
# that has a file of its own (approvals, undoing, the view, the cache) stand there.


RunStop = Literal[
    "done", "budget", "steps", "seconds", "no_progress", "refused", "cancelled", "failed", "waiting",
    "context",
]  # fmt: skip

ResultSource = Literal["run", "probe", "person", "receipt"]
WaitSource = Literal["", "backoff", "retry-after", "breaker", "repair"]
"""Who said how long to wait: our own table, the provider, the endpoint's rest, or nobody, because what is
sent is no longer the same."""


class Configured(EventBase, tag="configured"):
    """What the session is made of from here on."""

    settings: Settings
    session: str = ""
    """Set on the first event: makes this line of records unlike any other, for ever."""


class Prompted(EventBase, tag="prompted"):
    """A person said something: a run begins."""

    parts: tuple[Text | Media, ...]
    budget: Budget = Budget()
    caller: str = ""
    """On whose behalf; what a policy may go by."""
    tenant: str = ""
    cross_tenant: str = ""
    """The tenant again, when the session is another's and the caller said that this is meant."""
    parent_session: str = ""
    """The session in a tool of which this run is."""


class Imported(EventBase, tag="imported"):
    """A conversation held elsewhere became the beginning of this one."""

    messages: tuple[Message, ...]
    repairs: tuple[str, ...] = ()
    """What had to be put right in it and what could not be kept, one sentence each."""
    instructions: str = ""
    """Its system prompt: in force while the agent has no instructions of its own."""


class ToolsRevealed(EventBase, tag="tools_shown"):
    """Tools that were hidden (`Settings.hidden`) are in every request from here on, after all others.

    Once shown, a tool stays, and stays where it is: whoever takes it away again, or puts it anywhere
    but at the end, moves the whole prefix.
    """

    names: tuple[str, ...]
    why: str
    initial: bool = False
    """What an index found for the words the session began with; perhaps nothing."""
    tokens: int = 0
    uncached_tokens: int = 0
    """What they add to every prompt, and how much of it has to be read anew behind them, by estimate."""


class Resumed(EventBase, tag="resumed"):
    """A new driver took the session over; whatever was under way in the old one is in doubt."""

    budget: Budget | None = None
    cross_tenant: str = ""
    """The tenant for whom, when the session is another's and the caller said that this is meant."""


class RequestAdjusted(EventBase, tag="request_adjusted"):
    """Something that was asked for is not sent: the model or its provider does not take it."""

    adjustments: tuple[str, ...]
    """One sentence each."""


class ModelAsked(EventBase, tag="model_asked"):
    step: int
    attempt: int
    digest: str
    """Hash of the encoded request: a replay can prove that it asks the same."""
    tool_choice: ToolChoice = ToolChoice()
    max_tokens: int | None = None
    notes: tuple[str, ...] = ()
    """What had to be changed because this model would refuse it."""
    after_failure: FailureKind | None = None
    """The failure that this is another attempt after."""
    wait_seconds: float = 0.0
    wait_source: WaitSource = ""
    reservation: Reservation | None = None  # of a budget that is shared
    breakpoints: tuple[Breakpoint, ...] = ()
    """Up to where the provider was asked to keep the prompt, and for how long."""
    stored_prompt: str = ""
    conversation: str = ""
    """The provider's conversation object that the request and its reply are added to."""
    summarizes_until: str = ""
    """The last message of those that a summary is asked for; empty when the conversation is to go on."""
    model_key: str = ""
    """Who was asked for it, where that is not the model of the settings."""
    asks_native_summary: bool = False
    """It is asked for in the form that only its provider takes back."""


class ModelReplied(EventBase, tag="model_replied"):
    reply: Reply
    usd: Decimal | None = None
    output_error: str = ""
    """Why the type asked for refuses this answer, though its schema does not; found by the type itself."""
    resource_claims: tuple[ResourceClaim, ...] = ()
    """What the tools' own code says of the calls."""
    truncation_hint: str = ""
    """Why the model has probably not read all of the prompt."""
    usage_doubt: str = ""
    """Why the provider's count cannot be true; it is recorded, and the window goes by our estimate."""
    summarizes_until: str = ""
    """As the question says: this is no part of the conversation."""
    latency: Latency | None = None


class ModelFailed(EventBase, tag="model_failed"):
    failure: Failure
    partial_text: str = ""
    """What the model had said when its reply broke off."""
    usage: Usage | None = None
    """What was counted of a reply that broke off; None when there was no reply to pay for."""
    usd: Decimal | None = None
    rejected_parts: tuple[PartRef, ...] = ()
    """What of the view the provider stumbled over, by its own words; it can be left out."""
    discarded_tools: tuple[str, ...] = ()
    """Tools that were started early, for a reply that never came: whatever they brought is not used."""
    random_draw: float = 1.0
    """A number from 0 to 1, drawn when it failed: the wait before the next attempt is made of it."""
    latency: Latency | None = None
    """None when nothing was sent."""


class ModelSwitched(EventBase, tag="model_switched"):
    """The run goes on with another model of its chain: this one is of no more use to it."""

    model: Model
    why: str


class ToolStarted(EventBase, tag="tool_started"):
    """The intent, durable before the tool runs."""

    call_id: str
    name: str
    key: str
    """The same for every attempt at this call, so that a tool can recognise a repetition."""
    attempt: int = 1
    rule: str = ""
    """What allowed it, where a policy or a person had a say."""
    arguments: str = ""
    """What it is run with, as JSON text: the model's arguments, or those that a person wrote."""

    @property
    def unique_key(self) -> str | None:
        return f"intent:{self.call_id}#{self.attempt}"


class ToolProbed(EventBase, tag="tool_probed"):
    """A tool looked for what became of a call in doubt and found that it surely never took effect."""

    call_id: str
    attempt: int

    @property
    def unique_key(self) -> str | None:
        return f"probe:{self.call_id}#{self.attempt}"


class ToolFinished(EventBase, tag="tool_finished"):
    """The receipt: a call with one is never run again."""

    result: ToolResult
    rule: str = ""
    """What denied it, where a policy or a person did."""
    source: ResultSource = "run"
    """How the result is known, when not from running it; `receipt`: an equal call was done before."""
    same_as_call: str = ""
    """That call, by its id."""
    stored_result: StoredResult | None = None
    """Where all of it is, when the result is an excerpt."""
    name: str = ""
    """The tool that was called."""

    @property
    def unique_key(self) -> str | None:
        return f"receipt:{self.result.call_id}"

    @property
    def required_blobs(self) -> tuple[str, ...]:
        return (self.stored_result.hash,) if self.stored_result else ()


class Reprompted(EventBase, tag="nudged"):
    """The harness asked the model to go on or to try again."""

    why: str
    message: str


class RunEnded(EventBase, tag="run_ended"):
    """Calls still open are answered by this event, so that no later request can be illegal."""

    stop: RunStop
    reason: str = ""
    partial_text: str = ""
    """What the model had said of a reply that was cut off."""
    usage: Usage | None = None
    """What was counted of that reply; None when there was none to pay for."""
    usd: Decimal | None = None
    discarded_tools: tuple[str, ...] = ()
    """Tools that were started early, for that reply."""
    latency: Latency | None = None
    """Of a model call that the end of the run cut off."""


Event = (
    Configured
    | Forked
    | Imported
    | Prompted
    | MemoryLoaded
    | ContextRetrieved
    | NoteWritten
    | NoteRemoved
    | ViewChanged
    | Compacted
    | ToolsRevealed
    | CacheEvent
    | ConversationEvent
    | Resumed
    | RequestAdjusted
    | ModelAsked
    | ModelReplied
    | ModelFailed
    | ModelSwitched
    | ToolStarted
    | ToolProbed
    | ToolFinished
    | SubrunStarted
    | SubrunCharged
    | ApprovalAsked
    | ApprovalAnswered
    | CallReviewed
    | CompensationStarted
    | CompensationFinished
    | Reprompted
    | RunEnded
    | BudgetReserved
    | BudgetSettled
    | BudgetSnapshot
    | LogRepaired
    | UnknownEvent
)
