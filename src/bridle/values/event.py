"""Everything that can happen in a session, one struct per fact.

Events are kept for ever and a session is nothing but its events.  Hence:

  - An event names something that *has happened*, in the past tense.
  - Order, time and proof are on the envelope (`Record`), put there by the driver.
  - New fields get defaults; an old field is never renamed or given a new meaning.
  - What was decided by code outside the core (a price, a choice made by a
    callable) is recorded with the event, so that folding needs no outside world.

`once` names what must not be in a log twice, whatever retries above the store do.  The events of a concept
that has a file of its own (approvals, undoing, the view, the cache) stand there.
"""

from decimal import Decimal
from typing import Literal

from .approval import Answer as Answer
from .approval import ApprovalAnswered as ApprovalAnswered
from .approval import ApprovalAsked as ApprovalAsked
from .approval import CallReviewed as CallReviewed
from .approval import Question as Question
from .cached import CacheDegraded as CacheDegraded
from .cached import CacheEvent
from .cached import PrefixMoved as PrefixMoved
from .compensation import CompensationFinished as CompensationFinished
from .compensation import CompensationStarted as CompensationStarted
from .conversation_object import ConversationDropped as ConversationDropped
from .conversation_object import ConversationEvent
from .conversation_object import ConversationOpened as ConversationOpened
from .errors import Failure, FailureKind
from .latency import Latency
from .lineage import Forked as Forked
from .lost import Repaired as Repaired
from .lost import Unknown as Unknown
from .memory import MemoryLoaded, NoteRemoved, NoteWritten
from .message import Message, Reply
from .model import Model
from .parts import Media, Text, ToolResult
from .policy import Claim
from .pooled import Carried, Reserved, Settled
from .quiet import Quiet
from .request import Mark, ToolChoice
from .retrieval import ContextGathered
from .settings import Settings
from .subrun import SubrunCharged, SubrunStarted
from .usage import Budget, Reservation, Usage
from .view import Change as Change
from .view import Compacted as Compacted
from .view import Spot as Spot
from .view import ViewChanged as ViewChanged
from .whole import Whole

RunStop = Literal[
    "done", "budget", "steps", "seconds", "no_progress", "refused", "cancelled", "failed", "waiting",
    "context",
]  # fmt: skip

How = Literal["run", "probe", "person", "receipt"]
WaitSource = Literal["", "backoff", "retry-after", "breaker", "repair"]
"""Who said how long to wait: our own table, the provider, the endpoint's rest, or nobody, because what is
sent is no longer the same."""


class Configured(Quiet, tag="configured"):
    """What the session is made of from here on."""

    settings: Settings
    session: str = ""
    """Set on the first event: makes this line of records unlike any other, for ever."""


class Prompted(Quiet, tag="prompted"):
    """A person said something: a run begins."""

    parts: tuple[Text | Media, ...]
    budget: Budget = Budget()
    caller: str = ""
    """On whose behalf; what a policy may go by."""
    tenant: str = ""
    across: str = ""
    """The tenant again, when the session is another's and the caller said that this is meant."""
    within: str = ""
    """The session in a tool of which this run is."""


class Imported(Quiet, tag="imported"):
    """A conversation held elsewhere became the beginning of this one."""

    messages: tuple[Message, ...]
    repairs: tuple[str, ...] = ()
    """What had to be put right in it and what could not be kept, one sentence each."""
    instructions: str = ""
    """Its system prompt: in force while the agent has no instructions of its own."""


class ToolsShown(Quiet, tag="tools_shown"):
    """Tools that were hidden (`Settings.hidden`) are in every request from here on, after all others.

    Once shown, a tool stays, and stays where it is: whoever takes it away again, or puts it anywhere
    but at the end, moves the whole prefix.
    """

    names: tuple[str, ...]
    why: str
    first: bool = False
    """What an index found for the words the session began with; perhaps nothing."""
    tokens: int = 0
    anew_tokens: int = 0
    """What they add to every prompt, and how much of it has to be read anew behind them, by estimate."""


class Resumed(Quiet, tag="resumed"):
    """A new driver took the session over; whatever was under way in the old one is in doubt."""

    budget: Budget | None = None
    across: str = ""
    """The tenant for whom, when the session is another's and the caller said that this is meant."""


class RequestAdjusted(Quiet, tag="request_adjusted"):
    """Something that was asked for is not sent: the model or its provider does not take it."""

    what: tuple[str, ...]
    """One sentence each."""


class ModelAsked(Quiet, tag="model_asked"):
    step: int
    attempt: int
    digest: str
    """Hash of the encoded request: a replay can prove that it asks the same."""
    tool_choice: ToolChoice = ToolChoice()
    max_tokens: int | None = None
    notes: tuple[str, ...] = ()
    """What had to be changed because this model would refuse it."""
    after: FailureKind | None = None
    """The failure that this is another attempt after."""
    wait_seconds: float = 0.0
    wait_source: WaitSource = ""
    reserved: Reservation | None = None  # of a budget that is shared
    marks: tuple[Mark, ...] = ()
    """Up to where the provider was asked to keep the prompt, and for how long."""
    kept_as: str = ""
    conversation: str = ""
    """The provider's conversation object that the request and its reply are added to."""
    summary_of: str = ""
    """The last message of those that a summary is asked for; empty when the conversation is to go on."""
    seat: str = ""
    """Who was asked for it, where that is not the model of the settings."""
    native: bool = False
    """It is asked for in the form that only its provider takes back."""


class ModelReplied(Quiet, tag="model_replied"):
    reply: Reply
    usd: Decimal | None = None
    objection: str = ""
    """Why the type asked for refuses this answer, though its schema does not; found by the type itself."""
    claims: tuple[Claim, ...] = ()
    """What the tools' own code says of the calls."""
    suspicion: str = ""
    """Why the model has probably not read all of the prompt."""
    usage_doubt: str = ""
    """Why the provider's count cannot be true; it is recorded, and the window goes by our estimate."""
    summary_of: str = ""
    """As the question says: this is no part of the conversation."""
    latency: Latency | None = None


class ModelFailed(Quiet, tag="model_failed"):
    failure: Failure
    partial: str = ""
    """What the model had said when its reply broke off."""
    usage: Usage | None = None
    """What was counted of a reply that broke off; None when there was no reply to pay for."""
    usd: Decimal | None = None
    blamed: tuple[Spot, ...] = ()
    """What of the view the provider stumbled over, by its own words; it can be left out."""
    discarded: tuple[str, ...] = ()
    """Tools that were started early, for a reply that never came: whatever they brought is not used."""
    chance: float = 1.0
    """A number from 0 to 1, drawn when it failed: the wait before the next attempt is made of it."""
    latency: Latency | None = None
    """None when nothing was sent."""


class ModelSwitched(Quiet, tag="model_switched"):
    """The run goes on with another model of its chain: this one is of no more use to it."""

    model: Model
    why: str


class ToolStarted(Quiet, tag="tool_started"):
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
    def once(self) -> str | None:
        return f"intent:{self.call_id}#{self.attempt}"


class ToolProbed(Quiet, tag="tool_probed"):
    """A tool looked for what became of a call in doubt and found that it surely never took effect."""

    call_id: str
    attempt: int

    @property
    def once(self) -> str | None:
        return f"probe:{self.call_id}#{self.attempt}"


class ToolFinished(Quiet, tag="tool_finished"):
    """The receipt: a call with one is never run again."""

    result: ToolResult
    rule: str = ""
    """What denied it, where a policy or a person did."""
    how: How = "run"
    """How the result is known, when not from running it; `receipt`: an equal call was done before."""
    same_as: str = ""
    """That call, by its id."""
    whole: Whole | None = None
    """Where all of it is, when the result is an excerpt."""
    name: str = ""
    """The tool that was called."""

    @property
    def once(self) -> str | None:
        return f"receipt:{self.result.call_id}"

    @property
    def refers(self) -> tuple[str, ...]:
        return (self.whole.hash,) if self.whole else ()


class Nudged(Quiet, tag="nudged"):
    """The harness asked the model to go on or to try again."""

    why: str
    words: str


class RunEnded(Quiet, tag="run_ended"):
    """Calls still open are answered by this event, so that no later request can be illegal."""

    stop: RunStop
    reason: str = ""
    partial: str = ""
    """What the model had said of a reply that was cut off."""
    usage: Usage | None = None
    """What was counted of that reply; None when there was none to pay for."""
    usd: Decimal | None = None
    discarded: tuple[str, ...] = ()
    """Tools that were started early, for that reply."""
    latency: Latency | None = None
    """Of a model call that the end of the run cut off."""


Event = (
    Configured
    | Forked
    | Imported
    | Prompted
    | MemoryLoaded
    | ContextGathered
    | NoteWritten
    | NoteRemoved
    | ViewChanged
    | Compacted
    | ToolsShown
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
    | Nudged
    | RunEnded
    | Reserved
    | Settled
    | Carried
    | Repaired
    | Unknown
)
