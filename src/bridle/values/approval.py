"""A question to a person about one call, and the answer; the events at the end are how a log has them."""

from typing import Any, Literal

from .policy import Claim
from .quiet import Quiet
from .value import Value

Question = Literal["run", "in_doubt"]
Answer = Literal["approve", "reject", "done"]
"""`done`, to a call in doubt: it took effect, and `reason` is what came of it."""


class PendingApproval(Value):
    """What waits for a person; kept nowhere but in the log, so it can be answered from any process."""

    id: str
    """What to answer to: `bridle approve ID`."""
    session: str
    call_id: str
    tool: str
    arguments: str
    """JSON text, as the model wrote it."""
    rule: str
    """Why a person is asked."""
    question: Question = "run"
    """`run`: may it run?  `in_doubt`: it was started and never finished; run it again, or was it done?"""
    asked_at: float = 0.0
    expires_at: float | None = None
    binding: str = ""
    """What exactly the answer will hold for."""
    complete: str = ""
    """What the tool runs with, as JSON text: the arguments and the defaults of its schema."""


class Verdict(Value):
    """What a person says: `approve` (perhaps other arguments), `reject`, or `done` to a call in doubt."""

    answer: Answer
    arguments: dict[str, Any] | str | None = None
    """What to run it with instead: an object, or its JSON text."""
    reason: str = ""
    by: str = ""


class ApprovalAsked(Quiet, tag="approval_asked"):
    """A person must decide about a call; the run waits, in this process or in none."""

    call_id: str
    binding: str
    """Hash of the tool, the arguments, the call and the policy: an answer holds for exactly this."""
    rule: str
    question: Question = "run"
    """`in_doubt`: it was started and never finished; shall it be run again, or was it done?"""
    expires_at: float | None = None

    @property
    def once(self) -> str | None:
        return f"ask:{self.binding}"


class ApprovalAnswered(Quiet, tag="approval_answered"):
    call_id: str
    binding: str
    answer: Answer
    arguments: str | None = None
    """What to run it with instead, as JSON text."""
    reason: str = ""
    by: str = ""
    claim: Claim | None = None
    """What the tool's own code says of the call with those arguments."""
    proof: str = ""
    """Shows who gave an approval: an HMAC with a key that is not in the log (run/answer_proof.py)."""

    @property
    def once(self) -> str | None:
        return f"answer:{self.binding}"


class CallReviewed(Quiet, tag="call_reviewed"):
    """A resumed run does not take from the log whether this open call may run."""

    call_id: str
    discards_approval: bool = False
    """The approval in the log has no valid proof.  It does not count, and the question is put again."""
    claim: Claim | None = None
    """What the tool's own code says of the call now, where the log says something else."""
