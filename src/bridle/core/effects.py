"""What the core wants done.  The driver does it; the core never does.

An effect's `name` is the same as long as the same thing is wanted, so that a
driver can tell what it is already doing from what is new.
"""

from typing import Literal

from ..values.cached import PromptKept
from ..values.errors import FailureKind
from ..values.event import Change, Compacted, Question, RunStop, WaitSource
from ..values.model import Model
from ..values.parts import Outcome, ToolCall
from ..values.request import Request
from ..values.value import Value
from .opencall import OpenCall
from .receipts import Receipt


class AskModel(Value):
    request: Request
    step: int
    attempt: int
    after: FailureKind | None = None
    """The failure that this is another attempt after."""
    wait_seconds: float = 0.0
    wait_source: WaitSource = ""
    deadline: float | None = None
    """When the run's time is up."""
    notes: tuple[str, ...] = ()
    summary_of: str = ""
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


class Excuse(Value):
    """Answer a call without running it, and say why."""

    call: ToolCall
    outcome: Outcome
    why: str
    rule: str = ""
    how: Literal["run", "person", "receipt"] = "run"
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
    unknown: str
    """What the model is told when the tool cannot find out."""
    timeout_seconds: float | None = None
    deadline: float | None = None

    @property
    def name(self) -> str:
        return f"probe:{self.call.id}#{self.attempt}"


class SeekApproval(Value):
    """Write a question to a person down, so that it can be answered from anywhere."""

    call: ToolCall
    binding: str
    rule: str
    question: Question = "run"
    expires_at: float | None = None

    @property
    def name(self) -> str:
        return f"seek:{self.binding}"


class AwaitAnswers(Value):
    """Nothing can go on before a person has answered: put it to one, or end the run as waiting."""

    items: tuple[OpenCall, ...]

    @property
    def name(self) -> str:
        return f"await:{','.join(item.asked.binding for item in self.items if item.asked)}"


class Nudge(Value):
    """Ask the model to go on or to try again."""

    why: str
    words: str

    @property
    def name(self) -> str:
        return "nudge"


class ChangeView(Value):
    """Send something else than what was said, from here on."""

    changes: tuple[Change, ...]
    why: str
    seat: str = ""

    @property
    def name(self) -> str:
        return "change"


class Compact(Value):
    """Make what is sent shorter, from here on."""

    event: Compacted

    @property
    def name(self) -> str:
        return "compact"


class ShowTools(Value):
    """Let the model have tools that were hidden from it, from the next request on."""

    names: tuple[str, ...]
    why: str
    first: bool = False
    tokens: int = 0
    anew_tokens: int = 0

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


class Gather(Value):
    """Look up what belongs beside the words of a prompt."""

    words: str
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


class KeepPrompt(Value):
    """Have the provider keep tools and instructions by name, or keep them for longer."""

    request: Request
    """What they are in front of."""
    seconds: float
    front: str
    kept: PromptKept | None = None
    """What is to be kept for longer; None to have it made."""

    @property
    def name(self) -> str:
        return f"keep:{self.kept.name if self.kept else self.front}"


class DropPrompt(Value):
    kept: PromptKept
    why: str
    gone: bool = False
    """The provider has dropped it already."""

    @property
    def name(self) -> str:
        return f"drop:{self.kept.name}"


class OpenConversation(Value):
    """Have the provider make a conversation object."""

    seat: str

    @property
    def name(self) -> str:
        return f"converse:{self.seat}"


class DropConversation(Value):
    """Use a conversation object no more."""

    conversation: str
    seat: str
    why: str

    @property
    def name(self) -> str:
        return f"part:{self.conversation}"


class End(Value):
    stop: RunStop
    reason: str = ""

    @property
    def name(self) -> str:
        return "end"


Effect = (
    AskModel
    | RunTool
    | ProbeTool
    | Excuse
    | SeekApproval
    | AwaitAnswers
    | Nudge
    | ChangeView
    | Compact
    | ShowTools
    | FindTools
    | LoadMemory
    | Gather
    | SwitchModel
    | KeepPrompt
    | DropPrompt
    | OpenConversation
    | DropConversation
    | End
)
