"""What a run has done that can be undone; the two events at the end are how a log has the undoing."""

from typing import Literal

from .parts import ToolResult
from .quiet import Quiet
from .value import Value
from .whole import Whole

Undoing = Literal["open", "in_doubt", "failed", "done"]
"""`in_doubt`: whether the call took effect, or whether undoing it did, cannot be told from here."""


class Compensation(Value):
    """One completed action and what undoes it."""

    call_id: str
    tool: str
    arguments: str
    """What it was run with, as JSON text."""
    receipt: str
    """What it brought."""
    by: str
    """The tool that undoes it."""
    whole: Whole | None = None
    """Where all that it brought is, when the receipt is an excerpt."""
    key: str = ""
    """The same for every attempt at undoing it."""
    state: Undoing = "open"
    attempt: int = 0
    result: str = ""
    """What undoing it brought, or why it failed."""
    reported: bool = False
    """Whether the model was told what became of it."""


class CompensationStarted(Quiet, tag="compensation_started"):
    """Undoing a completed call is about to begin."""

    call_id: str
    """The call to be undone."""
    name: str
    key: str
    attempt: int = 1
    across: str = ""
    """The tenant for whom, when the session is another's and the caller said that this is meant."""

    @property
    def once(self) -> str | None:
        return f"undo:{self.call_id}#{self.attempt}"


class CompensationFinished(Quiet, tag="compensation_finished"):
    call_id: str
    attempt: int
    result: ToolResult
    across: str = ""
    """As in `CompensationStarted`."""

    @property
    def once(self) -> str | None:
        return f"undone:{self.call_id}#{self.attempt}"
