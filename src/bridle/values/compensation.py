"""What a run has done that can be undone."""

from typing import Literal

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
