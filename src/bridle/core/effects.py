"""What the core wants done.  The driver does it; the core never does.

An effect's `name` is the same as long as the same thing is wanted, so that a
driver can tell what it is already doing from what is new.
"""

from typing import Literal

from bridle.core.calls.pending import PendingCall, Receipt
from bridle.values import events as e
from bridle.values.base import Value
from bridle.values.cache import PromptStored
from bridle.values.errors import FailureKind
from bridle.values.events import ApprovalQuestion, Compacted, RunStop, ViewChange, WaitSource
from bridle.values.message import Outcome, ToolCall
from bridle.values.model import Model
from bridle.values.request import Request


class AskModel(Value):
    request: Request
    step: int
    attempt: int
    after_failure: FailureKind | None = None
    """The failure that this is another attempt after."""
    wait_seconds: float = 0.0
    wait_source: WaitSource = ""
    deadline: float | None = None
    """When the run's time is up."""
    notes: tuple[str, ...] = ()
    summarizes_until: str = ""
    """The last message of those that a summary is wanted of; else the conversation is to go on."""

    @property
    def name(self) -> str:
        return f"ask:{self.step}#{self.attempt}"


class RunTool(Value):
    call: ToolCall
    key: str
    attempt: int
    timeout_seconds: float | None
    deadline: float | None = None
    rule: str = ""
    """What allowed it, where anybody had a say."""

    @property
    def name(self) -> str:
        return f"run:{self.call.id}#{self.attempt}"


class SkipCall(Value):
    """Answer a call without running it, and say why."""

    call: ToolCall
    outcome: Outcome
    why: str
    rule: str = ""
    source: Literal["run", "person", "receipt"] = "run"
    receipt: Receipt | None = None
    """Of an equal call that was done: its result is given again, after `why`."""

    @property
    def name(self) -> str:
        return f"excuse:{self.call.id}"


class ProbeTool(Value):
    """Let a tool look for what became of a call that was started and never finished."""

    call: ToolCall
    key: str
    attempt: int
    unknown_notice: str
    """What the model is told when the tool cannot find out."""
    timeout_seconds: float | None = None
    deadline: float | None = None

    @property
    def name(self) -> str:
        return f"probe:{self.call.id}#{self.attempt}"


class RequestApproval(Value):
    """Write a question to a person down, so that it can be answered from anywhere."""

    call: ToolCall
    binding: str
    rule: str
    question: ApprovalQuestion = "run"
    expires_at: float | None = None

    @property
    def name(self) -> str:
        return f"seek:{self.binding}"


class AwaitApprovals(Value):
    """Nothing can go on before a person has answered: put it to one, or end the run as waiting."""

    calls: tuple[PendingCall, ...]

    @property
    def name(self) -> str:
        return f"await:{','.join(item.question.binding for item in self.calls if item.question)}"


class Reprompt(Value):
    """Ask the model to go on or to try again."""

    why: str
    message: str

    @property
    def name(self) -> str:
        return "nudge"


class ChangeView(Value):
    """Send something else than what was said, from here on."""

    changes: tuple[ViewChange, ...]
    why: str
    model_key: str = ""

    @property
    def name(self) -> str:
        return "change"


class Compact(Value):
    """Make what is sent shorter, from here on."""

    event: Compacted

    @property
    def name(self) -> str:
        return "compact"


class RevealTools(Value):
    """Let the model have tools that were hidden from it, from the next request on."""

    names: tuple[str, ...]
    why: str
    initial: bool = False
    tokens: int = 0
    uncached_tokens: int = 0

    @property
    def name(self) -> str:
        return f"show:{','.join(self.names)}"


class FindTools(Value):
    """Find the tools that the first words of a session are about."""

    query: str
    limit: int
    deadline: float | None = None

    @property
    def name(self) -> str:
        return "find"


class LoadMemory(Value):
    """Put a tenant's notes, and the session's own, in front of the conversation."""

    tenant: str
    why: str

    @property
    def name(self) -> str:
        return "remember"


class RetrieveContext(Value):
    """Look up what belongs beside the words of a prompt."""

    query: str
    deadline: float | None = None

    @property
    def name(self) -> str:
        return "gather"


class SwitchModel(Value):
    """Go on with another model of the chain."""

    model: Model
    why: str

    @property
    def name(self) -> str:
        return "switch"


class StorePrompt(Value):
    """Have the provider keep tools and instructions by name, or keep them for longer."""

    request: Request
    """What they are in front of."""
    seconds: float
    prompt_head: str
    stored: PromptStored | None = None
    """What is to be kept for longer; None to have it made."""

    @property
    def name(self) -> str:
        return f"keep:{self.stored.name if self.stored else self.prompt_head}"


class DropPrompt(Value):
    stored: PromptStored
    why: str
    already_dropped: bool = False
    """The provider has dropped it already."""

    @property
    def name(self) -> str:
        return f"drop:{self.stored.name}"


class OpenConversation(Value):
    """Have the provider make a conversation object."""

    model_key: str

    @property
    def name(self) -> str:
        return f"converse:{self.model_key}"


class DropConversation(Value):
    """Use a conversation object no more."""

    conversation: str
    model_key: str
    why: str

    @property
    def name(self) -> str:
        return f"part:{self.conversation}"


class EndRun(Value):
    stop: RunStop
    reason: str = ""

    @property
    def name(self) -> str:
        return "end"


Effect = (
    AskModel
    | RunTool
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
    | SwitchModel
    | StorePrompt
    | DropPrompt
    | OpenConversation
    | DropConversation
    | EndRun
)


# Effects that are nothing but a line in the log: the event each of them comes to.


RecordedEffect = ChangeView | Compact | DropConversation | Reprompt | RequestApproval | SwitchModel


def event_for_effect(effect: RecordedEffect) -> e.Event:
    match effect:
        case RequestApproval(call=call, binding=binding, rule=rule, question=asked, expires_at=until):
            return e.ApprovalAsked(
                call_id=call.id, binding=binding, rule=rule, question=asked, expires_at=until
            )
        case Reprompt(why=why, message=words):
            return e.Reprompted(why=why, message=words)
        case ChangeView(changes=changes, why=why, model_key=seat):
            return e.ViewChanged(changes=changes, why=why, model_key=seat)
        case SwitchModel(model=model, why=why):
            return e.ModelSwitched(model=model, why=why)
        case DropConversation(conversation=name, model_key=seat, why=why):
            return e.ConversationDropped(name=name, model_key=seat, why=why)
        case Compact(event=event):
            return event
