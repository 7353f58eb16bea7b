"""Effects: actions that the core requests and the driver performs.

An effect's `name` stays the same while the same action is wanted, so that a driver can distinguish effects in
progress from new ones.
"""

from typing import Literal

from bridle.core.calls.pending import PendingCall, Receipt
from bridle.values import events as e
from bridle.values.base import Value
from bridle.values.cache import PromptStored
from bridle.values.errors import FailureKind
from bridle.values.events import ApprovalQuestion, Compacted, RunStop, ViewChange, WaitSource
from bridle.values.hooks import HookPoint
from bridle.values.memory import InstructionFunction
from bridle.values.message import Outcome, ToolCall
from bridle.values.model import Model
from bridle.values.request import Request


class AskModel(Value, kw_only=True):
    """Call the model after a wait."""

    request: Request
    step: int
    attempt: int
    after_failure: FailureKind | None = None
    """Failure that this attempt follows."""
    wait_seconds: float = 0.0
    wait_source: WaitSource = ""
    deadline: float | None = None
    """End of the run's time."""
    notes: tuple[str, ...] = ()
    summarizes_until: str = ""
    """Last message to be summarized; empty for an ordinary request."""

    @property
    def name(self) -> str:
        return f"ask:{self.step}#{self.attempt}"


class RunTool(Value, kw_only=True):
    """Run a tool call."""

    call: ToolCall
    key: str
    attempt: int
    timeout_seconds: float | None
    deadline: float | None = None
    rule: str = ""
    """Rule or approval that allowed the call, if one was involved."""
    gives_output: bool = False
    """The tool is an output function: what it returns is the answer of the run."""

    @property
    def name(self) -> str:
        return f"run:{self.call.id}#{self.attempt}"


class SkipCall(Value, kw_only=True):
    """Answer a call without running it, with a reason."""

    call: ToolCall
    outcome: Outcome
    why: str
    rule: str = ""
    source: Literal["run", "person", "receipt", "hook"] = "run"
    receipt: Receipt | None = None
    """Receipt of an equal completed call; its result follows `why`."""
    gives_output: bool = False
    """`why` is the answer of the run, as JSON."""

    @property
    def name(self) -> str:
        return f"excuse:{self.call.id}"


class RunHook(Value, kw_only=True):
    """Let a hook decide; with an empty `hook`, only record that no hook is due any more."""

    hook: str
    point: HookPoint
    subject: str
    """Number of the step, reply or run, or id of the call, that it decides about."""
    timeout_seconds: float = 0.0

    @property
    def name(self) -> str:
        return f"hook:{self.point}:{self.subject}:{self.hook}"


class ProbeTool(Value, kw_only=True):
    """Let a tool determine the outcome of a call that started but has no result."""

    call: ToolCall
    key: str
    attempt: int
    unknown_notice: str
    """Notice to the model if the tool cannot determine it."""
    timeout_seconds: float | None = None
    deadline: float | None = None

    @property
    def name(self) -> str:
        return f"probe:{self.call.id}#{self.attempt}"


class RequestApproval(Value, kw_only=True):
    """Record a question to a person, so that any process can answer it."""

    call: ToolCall
    binding: str
    rule: str
    question: ApprovalQuestion = "run"
    expires_at: float | None = None

    @property
    def name(self) -> str:
        return f"seek:{self.binding}"


class AwaitApprovals(Value, kw_only=True):
    """All remaining calls need approval: ask a person, or end the run as waiting."""

    calls: tuple[PendingCall, ...]

    @property
    def name(self) -> str:
        return f"await:{','.join(item.question.binding for item in self.calls if item.question)}"


class Reprompt(Value, kw_only=True):
    """Ask the model to continue or to try again."""

    why: str
    message: str

    @property
    def name(self) -> str:
        return "nudge"


class ChangeView(Value, kw_only=True):
    """Change the view from here on."""

    changes: tuple[ViewChange, ...]
    why: str
    model_key: str = ""

    @property
    def name(self) -> str:
        return "change"


class Compact(Value, kw_only=True):
    """Compact the conversation from here on."""

    event: Compacted

    @property
    def name(self) -> str:
        return "compact"


class RevealTools(Value, kw_only=True):
    """Make hidden tools visible to the model, from the next request on."""

    names: tuple[str, ...]
    why: str
    initial: bool = False
    tokens: int = 0
    uncached_tokens: int = 0

    @property
    def name(self) -> str:
        return f"show:{','.join(self.names)}"


class FindTools(Value, kw_only=True):
    """Find tools relevant to the first prompt of a session."""

    query: str
    limit: int
    deadline: float | None = None

    @property
    def name(self) -> str:
        return "find"


class LoadMemory(Value, kw_only=True):
    """Load the notes of the tenant, of the caller and of the session."""

    tenant: str
    why: str
    caller: str = ""

    @property
    def name(self) -> str:
        return "remember"


class RetrieveContext(Value, kw_only=True):
    """Retrieve context for a prompt."""

    query: str
    deadline: float | None = None

    @property
    def name(self) -> str:
        return "gather"


class WriteInstruction(Value, kw_only=True):
    """Call a function of the agent that writes instructions."""

    function: InstructionFunction
    owner: str = ""
    deadline: float | None = None

    @property
    def name(self) -> str:
        return f"instruct:{self.function.name}"


class SwitchModel(Value, kw_only=True):
    """Continue with another model of the chain."""

    model: Model
    why: str

    @property
    def name(self) -> str:
        return "switch"


class StorePrompt(Value, kw_only=True):
    """Store tools and instructions at the provider under a name, or extend their lifetime."""

    request: Request
    """Request whose tools and instructions are stored."""
    seconds: float
    prompt_head: str
    stored: PromptStored | None = None
    """Stored prompt to extend; None to create one."""

    @property
    def name(self) -> str:
        return f"keep:{self.stored.name if self.stored else self.prompt_head}"


class DropPrompt(Value, kw_only=True):
    stored: PromptStored
    why: str
    already_dropped: bool = False
    """The provider has already dropped it."""

    @property
    def name(self) -> str:
        return f"drop:{self.stored.name}"


class OpenConversation(Value, kw_only=True):
    """Create a conversation object at the provider."""

    model_key: str

    @property
    def name(self) -> str:
        return f"converse:{self.model_key}"


class DropConversation(Value, kw_only=True):
    """Stop using a conversation object."""

    conversation: str
    model_key: str
    why: str

    @property
    def name(self) -> str:
        return f"part:{self.conversation}"


class TakeSteering(Value, kw_only=True):
    """Add messages that a person sent to the running run to its conversation."""

    count: int

    @property
    def name(self) -> str:
        return "steer"


class ChooseOptions(Value, kw_only=True):
    """Let functions of the agent choose options of a step."""

    step: int

    @property
    def name(self) -> str:
        return f"options:{self.step}"


class RecordFinding(Value, kw_only=True):
    """Record a difference between requests, or a cache that stopped working."""

    event: e.RequestAdjusted | e.PrefixMoved | e.CacheDegraded

    @property
    def name(self) -> str:
        return f"finding:{type(self.event).__name__}"


class CheckOutput(Value, kw_only=True):
    """Let a validator decide about an answer."""

    validator: str
    answer_id: str
    answer: str
    """JSON text, or plain text if there is no output type."""
    deadline: float | None = None

    @property
    def name(self) -> str:
        return f"check:{self.answer_id}:{self.validator}"


class EndRun(Value, kw_only=True):
    stop: RunStop
    reason: str = ""

    @property
    def name(self) -> str:
        return "end"


Effect = (
    AskModel
    | RunTool
    | RunHook
    | ProbeTool
    | SkipCall
    | RequestApproval
    | AwaitApprovals
    | Reprompt
    | ChangeView
    | Compact
    | RevealTools
    | FindTools
    | LoadMemory
    | RetrieveContext
    | WriteInstruction
    | SwitchModel
    | StorePrompt
    | DropPrompt
    | OpenConversation
    | DropConversation
    | ChooseOptions
    | RecordFinding
    | CheckOutput
    | TakeSteering
    | EndRun
)


RecordedEffect = (
    ChangeView | Compact | DropConversation | RecordFinding | Reprompt | SwitchModel | TakeSteering
)
"""Effects that consist of recording one event."""


def make_approval_question(effect: RequestApproval, preview: str) -> e.ApprovalAsked:
    return e.ApprovalAsked(
        call_id=effect.call.id,
        binding=effect.binding,
        rule=effect.rule,
        question=effect.question,
        expires_at=effect.expires_at,
        name=effect.call.name,
        arguments=effect.call.arguments,
        preview=preview,
    )


def event_for_effect(effect: RecordedEffect) -> e.Event:
    match effect:
        case Reprompt(why=why, message=message):
            return e.Reprompted(why=why, message=message)
        case ChangeView(changes=changes, why=why, model_key=model_key):
            return e.ViewChanged(changes=changes, why=why, model_key=model_key)
        case SwitchModel(model=model, why=why):
            return e.ModelSwitched(model=model, why=why)
        case DropConversation(conversation=name, model_key=model_key, why=why):
            return e.ConversationDropped(name=name, model_key=model_key, why=why)
        case TakeSteering(count=count):
            return e.SteeringTaken(count=count)
        case Compact(event=event) | RecordFinding(event=event):
            return event
