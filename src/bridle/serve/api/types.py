"""Bodies, queries and replies of the API."""

from decimal import Decimal
from typing import Literal

import msgspec

from bridle.core.budget.ledger import LedgerEntry
from bridle.core.cache.report import CacheCall, CacheSum
from bridle.values.base import Value
from bridle.values.calls import PendingApproval
from bridle.values.lineage import Branch, RequestDifference
from bridle.values.message import Media, Message, Text
from bridle.values.usage import Budget, Usage

PAGE_DEFAULT, PAGE_MAX, EVENTS_MAX = 50, 500, 5_000


class ErrorDetail(Value, kw_only=True):
    code: str
    """Stable name of the error."""
    message: str
    hint: str = ""
    """Next step for the caller; empty if the message says it."""


class ErrorReply(Value, kw_only=True):
    error: ErrorDetail


class StartedRun(Value, kw_only=True):
    """A run that has begun."""

    session: str
    agent: str
    after: int
    """Record before the run: stream the session after it to see the whole run."""


class ToolSummary(Value, kw_only=True, gc=True):
    name: str
    description: str
    parameters: dict[str, object]


class ServedAgent(Value, kw_only=True, gc=True):
    name: str
    model: str
    instructions: str
    tools: tuple[ToolSummary, ...]
    live_runs: int


class AgentList(Value, kw_only=True, gc=True):
    agents: tuple[ServedAgent, ...]


class PromptBody(Value, kw_only=True, forbid_unknown_fields=True):
    prompt: str | tuple[Text | Media, ...]
    agent: str = ""
    """Agent that runs it; may be left out if the server has one, or the session has one of its agents."""
    session: str = ""
    """Id of the new session; one is made if it is left out."""
    budget: Budget | None = None
    caller: str = ""
    tenant: str = ""


class SessionSummary(Value, kw_only=True):
    """A session in a list."""

    session: str
    agent: str
    model: str
    status: str
    """`running`, or the end of its last run: `done`, `waiting`, `cancelled` …; `unfinished` if its process ended."""
    created_at: float
    updated_at: float
    records: int
    steps: int
    usage: Usage
    usd: Decimal | None
    """Dollars; null if a price is unknown."""
    prompt: str
    """First prompt."""
    tenant: str = ""
    caller: str = ""
    callers: tuple[str, ...] = ()
    """Callers of all its prompts; `caller` is that of the last one."""
    parent: str = ""
    """Session that it was forked from."""
    parent_session: str = ""
    """Session whose tool started it."""
    pending_approvals: int = 0
    reason: str = ""
    """Reason of the last end."""
    problem: str = ""
    """Reason why its log cannot be read."""


class SessionQuery(Value, kw_only=True, forbid_unknown_fields=True):
    text: str = ""
    """Only sessions whose id or first prompt contains this text."""
    agent: str = ""
    status: str = ""
    model: str = ""
    tenant: str = ""
    caller: str = ""
    """Only sessions in which this caller prompted."""
    since: float = 0.0
    """Only sessions with a record at or after this time, in seconds since 1970."""
    usd_min: Decimal = Decimal(0)
    """Only sessions that cost at least this much."""
    offset: int = 0
    limit: int = PAGE_DEFAULT


class SessionPage(Value, kw_only=True):
    sessions: tuple[SessionSummary, ...]
    next: int | None
    """Offset of the next page; null on the last one."""


class SessionDetail(Value, kw_only=True):
    summary: SessionSummary
    is_live_here: bool
    """True if this server runs it now."""
    is_running: bool
    """True if a process runs it now."""
    answer: str
    tools: tuple[str, ...]
    approvals: tuple[PendingApproval, ...]
    approved_calls: tuple[PendingApproval, ...]
    """Calls that are approved and have not started: `resume` runs them, and `reject` drops them."""
    head: str
    """Hash of the last record."""


class LogEvent(Value, kw_only=True, gc=True):
    seq: int
    at: float
    event: msgspec.Raw
    """The event as the log has it; `type` is its kind."""
    is_redacted: bool = False


class EventQuery(Value, kw_only=True, forbid_unknown_fields=True):
    after: int = 0
    limit: int = PAGE_DEFAULT
    tenant: str = ""


class EventPage(Value, kw_only=True, gc=True):
    events: tuple[LogEvent, ...]
    next: int | None
    """Value of `after` for the next page; null on the last one."""
    records: int
    """Number of records up to the end of this page."""


class TenantQuery(Value, kw_only=True, forbid_unknown_fields=True):
    tenant: str = ""
    """Fail unless the session belongs to this tenant."""


class MessageList(Value, kw_only=True):
    messages: tuple[Message, ...]


class StreamQuery(Value, kw_only=True, forbid_unknown_fields=True):
    after: int = -1
    """Start after this record; the header Last-Event-ID counts more. Default: 0, the whole session."""
    until: Literal["end", "never"] = "end"
    """`end`: stop when no run is in progress; `never`: wait for the next run."""
    format: str = "events"
    tenant: str = ""


class SteerBody(Value, kw_only=True, forbid_unknown_fields=True):
    text: str
    by: str = ""
    tenant: str | None = None


class ControlBody(Value, kw_only=True, forbid_unknown_fields=True):
    by: str = ""
    """Person who asks; recorded."""
    tenant: str | None = None


class ResumeBody(Value, kw_only=True, forbid_unknown_fields=True):
    agent: str = ""
    budget: Budget | None = None
    tenant: str | None = None


class ForkBody(Value, kw_only=True, forbid_unknown_fields=True):
    at: int | str | None = None
    """Record number or message id (`m4`); null for the end."""
    session: str | None = None
    model: str | None = None
    tenant: str | None = None


class ApprovalBody(Value, kw_only=True, gc=True, forbid_unknown_fields=True):
    answer: Literal["approve", "reject", "done"]
    arguments: dict[str, object] | str | None = None
    """Other arguments to run the call with: an object, or its JSON text, in which numbers stay as they are written."""
    reason: str = ""
    """For `done`: the result of the call."""
    by: str = ""
    resume: bool = True
    """Continue the run once no question is open."""
    tenant: str | None = None


class ApprovalReply(Value, kw_only=True):
    approval: PendingApproval
    run: StartedRun | None
    """The run that was continued; null if a run took the answer, another question is open, or its agent is not
    served."""


class ApprovalList(Value, kw_only=True):
    approvals: tuple[PendingApproval, ...]
    approved_calls: tuple[PendingApproval, ...] = ()
    """Calls that are approved and have not started: `resume` runs them, and `reject` drops them."""


class CostGroup(Value, kw_only=True):
    name: str
    calls: int
    tokens: int
    usd: Decimal | None


class CostReply(Value, kw_only=True):
    session: str
    usage: Usage
    usd: Decimal | None
    by_model: tuple[CostGroup, ...]
    by_tool: tuple[CostGroup, ...]
    """Estimated share of every tool in the prompts."""
    calls: tuple[LedgerEntry, ...]


class CacheReply(Value, kw_only=True):
    session: str
    sum: CacheSum
    hit_rate: float | None
    calls: tuple[CacheCall, ...]


class CallRow(Value, kw_only=True):
    number: int
    seq: int
    step: int
    attempt: int
    model: str
    outcome: str
    stop: str
    body_bytes: int
    is_proven: bool
    problem: str


class CallList(Value, kw_only=True):
    calls: tuple[CallRow, ...]


class RawCallReply(Value, kw_only=True):
    """A request as it was sent, and its difference to the one before it."""

    call: CallRow
    method: str
    url: str
    headers: tuple[tuple[str, str], ...]
    body: str
    digest: str
    difference: RequestDifference | None


class CompareQuery(Value, kw_only=True, forbid_unknown_fields=True):
    other: str
    """Session to compare with."""
    tenant: str = ""


class ReplayQuery(Value, kw_only=True, forbid_unknown_fields=True):
    agent: str = ""
    """Replay with the settings of this agent of the server; the first request that differs is reported."""
    tenant: str = ""


class BranchList(Value, kw_only=True):
    branches: tuple[Branch, ...]
