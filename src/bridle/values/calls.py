"""Where the whole of a result is, of which only an excerpt is sent.

The bytes are in the session's store, under their hash; whoever has the log can find them.
"""

from collections.abc import Mapping
from typing import Any, Literal

from .base import EventBase, Value
from .message import ToolResult
from .request import ToolEffect

HANDLE_LENGTH = 16
"""Enough of a hash to tell apart what one session can hold; a model has to copy it without a slip."""


class StoredResult(Value):
    hash: str
    """SHA-256 of the text as UTF-8, in hex: what `Store.get_blob` takes."""
    character_count: int

    @property
    def handle(self) -> str:
        """What it is called when speaking to a model."""
        return self.hash[:HANDLE_LENGTH]


# Who may do what, as data.
#
# A policy is a list of rules, and the first that matches a call decides: allow it, ask a
# person, or deny it.  A call that no rule matches is decided by its tool (`approve=`), and
# a tool that says nothing may run: registering it was consent.
#
# A policy is never told to the model, and nothing a model says can change it.
#
#     [[rules]]
#     name = "small refunds"
#     decision = "allow"
#     tools = ["refund"]
#     arguments = { amount = "<= 50", currency = "EUR" }


Permission = Literal["allow", "ask", "deny"]


class PermissionRule(Value, forbid_unknown_fields=True):
    """Everything that is said must hold; what is not said holds for every call."""

    decision: Permission
    name: str = ""
    """What an event calls this rule; without one, its number."""
    tools: tuple[str, ...] = ()
    """Names, with `*` and `?`."""
    effects: tuple[ToolEffect, ...] = ()
    arguments: Mapping[str, str] = {}
    """By name (`customer.id` looks inside): a pattern with `*` and `?`, or a comparison such as `<= 50`."""
    callers: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()


class Policy(Value, forbid_unknown_fields=True):
    rules: tuple[PermissionRule, ...] = ()
    version: str = ""
    """A word of yours; an approval given under another version is asked for again."""
    allow_rules_hold: bool = True
    """Whether rules that allow count.  They do not when a policy comes from a log and nobody named it again.

    Like a default it is no part of what an approval is bound to."""
    otherwise: PermissionRule | None = None
    """The default for calls that no rule matches; it comes before the tool's own `approve=`.

    A default is no part of what an approval is bound to: it may depend on where the run goes on (on a
    terminal or not), and a person's answer to exactly this call overrides it."""


class ResourceClaim(Value):
    """What a tool's own code says of one call: recorded, because code can change and a log cannot."""

    call_id: str
    resource: str | None = None
    """What the call works on; None when nobody can say, so it is read as everything."""
    needs_approval: bool = False
    """Whether a person must be asked."""
    why: str = ""


# A question to a person about one call, and the answer; the events at the end are how a log has them.


ApprovalQuestion = Literal["run", "in_doubt"]
ApprovalAnswer = Literal["approve", "reject", "done"]
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
    question: ApprovalQuestion = "run"
    """`run`: may it run?  `in_doubt`: it was started and never finished; run it again, or was it done?"""
    asked_at: float = 0.0
    expires_at: float | None = None
    binding: str = ""
    """What exactly the answer will hold for."""
    complete_arguments: str = ""
    """What the tool runs with, as JSON text: the arguments and the defaults of its schema."""


class ApprovalVerdict(Value):
    """What a person says: `approve` (perhaps other arguments), `reject`, or `done` to a call in doubt."""

    answer: ApprovalAnswer
    arguments: dict[str, Any] | str | None = None
    """What to run it with instead: an object, or its JSON text."""
    reason: str = ""
    by: str = ""


class ApprovalAsked(EventBase, tag="approval_asked"):
    """A person must decide about a call; the run waits, in this process or in none."""

    call_id: str
    binding: str
    """Hash of the tool, the arguments, the call and the policy: an answer holds for exactly this."""
    rule: str
    question: ApprovalQuestion = "run"
    """`in_doubt`: it was started and never finished; shall it be run again, or was it done?"""
    expires_at: float | None = None

    @property
    def unique_key(self) -> str | None:
        return f"ask:{self.binding}"


class ApprovalAnswered(EventBase, tag="approval_answered"):
    call_id: str
    binding: str
    answer: ApprovalAnswer
    arguments: str | None = None
    """What to run it with instead, as JSON text."""
    reason: str = ""
    by: str = ""
    resource_claim: ResourceClaim | None = None
    """What the tool's own code says of the call with those arguments."""
    proof: str = ""
    """Shows who gave an approval: an HMAC with a key that is not in the log (run/calls/approval_proof.py)."""

    @property
    def unique_key(self) -> str | None:
        return f"answer:{self.binding}"


class CallReviewed(EventBase, tag="call_reviewed"):
    """A resumed run does not take from the log whether this open call may run."""

    call_id: str
    discards_approval: bool = False
    """The approval in the log has no valid proof.  It does not count, and the question is put again."""
    resource_claim: ResourceClaim | None = None
    """What the tool's own code says of the call now, where the log says something else."""


# What a run has done that can be undone; the two events at the end are how a log has the undoing.


CompensationState = Literal["open", "in_doubt", "failed", "done"]
"""`in_doubt`: whether the call took effect, or whether undoing it did, cannot be told from here."""


class Compensation(Value):
    """One completed action and what undoes it."""

    call_id: str
    tool: str
    arguments: str
    """What it was run with, as JSON text."""
    receipt: str
    """What it brought."""
    compensating_tool: str
    """The tool that undoes it."""
    stored_result: StoredResult | None = None
    """Where all that it brought is, when the receipt is an excerpt."""
    key: str = ""
    """The same for every attempt at undoing it."""
    state: CompensationState = "open"
    attempt: int = 0
    result: str = ""
    """What undoing it brought, or why it failed."""
    reported: bool = False
    """Whether the model was told what became of it."""


class CompensationStarted(EventBase, tag="compensation_started"):
    """Undoing a completed call is about to begin."""

    call_id: str
    """The call to be undone."""
    name: str
    key: str
    attempt: int = 1
    across: str = ""
    """The tenant for whom, when the session is another's and the caller said that this is meant."""

    @property
    def unique_key(self) -> str | None:
        return f"undo:{self.call_id}#{self.attempt}"


class CompensationFinished(EventBase, tag="compensation_finished"):
    call_id: str
    attempt: int
    result: ToolResult
    across: str = ""
    """As in `CompensationStarted`."""

    @property
    def unique_key(self) -> str | None:
        return f"undone:{self.call_id}#{self.attempt}"
