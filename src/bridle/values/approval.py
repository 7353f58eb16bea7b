"""A question to a person about one call, and the answer."""

from .event import Answer, Question
from .value import Value


class PendingApproval(Value):
    """What waits for a person; kept nowhere but in the log, so it can be answered from any process."""

    id: str
    """What to answer to: `bridle approve ID`."""
    session: str
    call_id: str
    tool: str
    arguments: str
    """JSON text."""
    rule: str
    """Why a person is asked."""
    question: Question = "run"
    """`run`: may it run?  `in_doubt`: it was started and never finished; run it again, or was it done?"""
    asked_at: float = 0.0
    expires_at: float | None = None
    binding: str = ""
    """What exactly the answer will hold for."""


class Verdict(Value):
    """What a person says: `approve` (perhaps other arguments), `reject`, or `done` to a call in doubt."""

    answer: Answer
    arguments: str | None = None
    reason: str = ""
    by: str = ""
