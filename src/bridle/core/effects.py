"""What the core wants done.  The driver does it; the core never does.

An effect's `name` is the same as long as the same thing is wanted, so that a
driver can tell what it is already doing from what is new.
"""

from ..values.event import Change, RunStop
from ..values.parts import Outcome, ToolCall
from ..values.request import Request
from ..values.value import Value


class AskModel(Value):
    request: Request
    step: int
    attempt: int
    wait_seconds: float = 0.0
    deadline: float | None = None
    """When the run's time is up."""
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"ask:{self.step}#{self.attempt}"


class RunTool(Value):
    call: ToolCall
    key: str
    attempt: int
    timeout_seconds: float | None
    deadline: float | None = None

    @property
    def name(self) -> str:
        return f"run:{self.call.id}#{self.attempt}"


class Excuse(Value):
    """Answer a call without running it, and say why."""

    call: ToolCall
    outcome: Outcome
    why: str

    @property
    def name(self) -> str:
        return f"excuse:{self.call.id}"


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


class End(Value):
    stop: RunStop
    reason: str = ""

    @property
    def name(self) -> str:
        return "end"


Effect = AskModel | RunTool | Excuse | Nudge | ChangeView | End
