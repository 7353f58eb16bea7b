"""Values and events around a tool call: permission, approval, stored results, compensation.

Permission policy: a list of rules; the first one that matches a call decides whether to allow it, ask a
person, or deny it. If no rule matches, the tool's `approve=` decides; a tool without one may run, because
registering it was consent. The model never sees the policy and cannot change it.

    [[rules]]
    name = "small refunds"
    decision = "allow"
    tools = ["refund"]
    arguments = { amount = "<= 50", currency = "EUR" }

Requests of servers: the server of a tool may ask the model (sampling) or a person (elicitation) during a call, if
the user allows it. A request is recorded before anyone is asked, its answer before the server gets it.
Control requests: another process asks the run of a session for something (cancel, pause, a message, the answer to a
question). One writer per session is law, so requests have a log of their own (`control_log_name`), and the process
that runs the session records what it does about them.

Redaction: `ContentRedacted` records that a person removed content from an earlier record (run/archive/redact.py). The
record keeps its place and its hash; the event proves that the removal was recorded, so it is not taken for tampering.

Stored results: if only an excerpt of a result is sent, the complete text is in the session's store under its
hash.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Literal

from .base import EventBase, Value
from .message import Message, ToolResult
from .request import ToolEffect, ToolSpec
from .usage import Budget

HANDLE_LENGTH = 16
"""Long enough to be unique within a session, short enough for a model to copy correctly."""


class StoredResult(Value, kw_only=True):
    """Reference to the complete text of a result that is sent as an excerpt."""

    hash: str
    """SHA-256 of the UTF-8 text in hex; the argument of `Store.get_blob`."""
    character_count: int

    @property
    def handle(self) -> str:
        """Short name of the result in texts for the model."""
        return self.hash[:HANDLE_LENGTH]


class ToolError(Value, kw_only=True):
    """An exception that a tool did not declare: neither `ModelRetry` nor `OutcomeUnknown` nor `EndRun`."""

    type: str
    place: str = ""
    """File and line that raised it."""
    traceback: str = ""


class RunConclusion(Value, kw_only=True):
    """The end of the run that a tool asked for by `EndRun`, or that its error causes."""

    stop: Literal["done", "failed"]
    reason: str = ""
    text: str = ""
    """The answer."""
    output: str | None = None
    """JSON of the answer, for an agent with an output type."""


Permission = Literal["allow", "ask", "deny"]


class PermissionRule(Value, kw_only=True, forbid_unknown_fields=True):
    """Matches a call if every field that is set matches; unset fields match every call."""

    decision: Permission
    name: str = ""
    """Name of the rule in events; its number if empty."""
    tools: tuple[str, ...] = ()
    """Tool names; `*` and `?` are wildcards."""
    effects: tuple[ToolEffect, ...] = ()
    arguments: Mapping[str, str] = {}
    """By name (`customer.id` for nested ones): a pattern with `*` and `?`, or a comparison such as `<= 50`."""
    callers: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()


class Policy(Value, kw_only=True, forbid_unknown_fields=True):
    rules: tuple[PermissionRule, ...] = ()
    version: str = ""
    """Version chosen by you; an approval given under another version is asked for again."""
    sandbox: Literal["optional", "required"] = "optional"
    """`required`: an agent with a tool that starts programs outside of a sandbox is refused."""
    allow_rules_hold: bool = True
    """False for a policy taken from a log and not confirmed by the caller: its allow rules are ignored.

    Not part of what an approval is bound to.
    """
    otherwise: PermissionRule | None = None
    """Default for calls that no rule matches; takes precedence over the tool's `approve=`.

    Not part of what an approval is bound to: it may depend on where the run is resumed (on a terminal or
    not), and a person's answer to exactly this call overrides it.
    """
    tool_asks_first: bool = False
    """True if a call whose tool requires approval is asked about, whatever `otherwise` says; not bound either."""


class ResourceClaim(Value, kw_only=True):
    """Statement of a tool's own code about one call; recorded because the code can change."""

    call_id: str
    resource: str | None = None
    """Resource that the call works on; None if unknown, which conflicts with every resource."""
    needs_approval: bool = False
    """True if a person must approve the call."""
    why: str = ""


ApprovalQuestion = Literal["run", "in_doubt"]
RequestKind = Literal["sampling", "elicitation"]
"""Requests of a server during a call: it wants to ask the model, or it asks the person."""
ApprovalAnswer = Literal["approve", "reject", "done"]
"""`done` answers a call in doubt: it took effect, and `reason` is its result."""


class CallUpgrade(Value, kw_only=True):
    """An open call under a new declaration of its tool."""

    call_id: str
    name: str
    arguments: str
    """Name and arguments that it has from here on, as JSON text."""
    edited: str | None = None
    """Arguments that a person gave instead, in the new form."""
    voids: str = ""
    """Reason why a person is asked again; empty if the question and its answer stay valid."""


ObstacleKind = Literal["agent", "version", "tool", "arguments", "approval", "hook", "output"]


class Obstacle(Value, kw_only=True):
    """Something that an unfinished run needs and that the code at hand does not offer."""

    kind: ObstacleKind
    name: str
    """The agent, version, tool, hook or output type that is needed."""
    reason: str
    remedy: str
    """What to change or to type."""
    call_id: str = ""
    """The call that needs it; empty if the whole run does."""


class PendingApproval(Value, kw_only=True):
    """A question to a person about one call; stored only in the log, so any process can answer it."""

    id: str
    """Id to answer with: `bridle approvals approve ID`."""
    session: str
    call_id: str
    tool: str
    arguments: str
    """JSON text as the model wrote it."""
    rule: str
    """Rule that requires approval."""
    question: ApprovalQuestion | RequestKind = "run"
    """`run`: may the call run? `in_doubt`: it started but has no result; run it again, or was it done?
    `sampling`: may its server ask the model? `elicitation`: its server asks you; approve with the values as
    `arguments`."""
    asked_at: float = 0.0
    expires_at: float | None = None
    binding: str = ""
    """Hash of everything that the answer applies to."""
    complete_arguments: str = ""
    """Arguments that the tool runs with, including schema defaults, as JSON text."""
    preview: str = ""
    """What the call would do according to its tool, such as a diff; untrusted text."""
    is_approved: bool = False
    """True for a call that is approved and has not started (`Agent.approved_calls`)."""
    approved_by: str = ""
    is_uncompared: bool = False
    """True if the answer was recorded where no code of the agent was at hand to compare it with."""


class ApprovalVerdict(Value, kw_only=True, gc=True):
    """A person's answer:

    `approve` (optionally with other arguments), `reject`, or `done` for a call in doubt.
    """

    answer: ApprovalAnswer
    arguments: dict[str, Any] | str | None = None
    """Arguments to run with instead: an object or its JSON text."""
    reason: str = ""
    by: str = ""


class ApprovalAsked(EventBase, kw_only=True, tag="approval_asked"):
    """A person must decide about a call; the run waits, whether or not a process is alive."""

    call_id: str
    binding: str
    """Hash of the tool, arguments, call and policy; an answer applies to exactly this."""
    rule: str
    question: ApprovalQuestion = "run"
    """`in_doubt`: the call started but has no result; run it again, or was it done?"""
    expires_at: float | None = None
    name: str = ""
    arguments: str = ""
    """Tool and arguments of the call, as JSON text."""
    preview: str = ""
    """What the call would do according to its tool, such as a diff, when the question was asked."""

    @property
    def unique_key(self) -> str | None:
        return f"ask:{self.binding}"


class ApprovalAnswered(EventBase, kw_only=True, tag="approval_answered"):
    call_id: str
    binding: str
    answer: ApprovalAnswer
    arguments: str | None = None
    """Arguments to run with instead, as JSON text."""
    reason: str = ""
    by: str = ""
    resource_claim: ResourceClaim | None = None
    """Claim of the tool's code about the call with those arguments."""
    proof: str = ""
    """HMAC that proves who approved, made with a key that is not in the log (run/calls/approval_proof.py)."""
    name: str = ""
    asked_arguments: str = ""
    """Tool and arguments that the person was asked about, as JSON text."""
    request: str = ""
    """Hash of the control request that brought the answer, if another process did."""
    is_uncompared: bool = False
    """Recorded where no code of the agent was at hand, so that only `resume` finds out whether the call can run."""
    replaces: int = 0
    """Number of earlier answers to this question, the last of which it replaces: the call had not started."""

    @property
    def unique_key(self) -> str | None:
        return f"answer:{self.binding}" + (f":{self.replaces}" if self.replaces else "")


class CallReviewed(EventBase, kw_only=True, tag="call_reviewed"):
    """Permission of a pending call, evaluated again on resume instead of taken from the log."""

    call_id: str
    discards_approval: bool = False
    """The approval in the log has no valid proof; it is ignored and the question is asked again."""
    resource_claim: ResourceClaim | None = None
    """Current claim of the tool's code about the call, if it differs from the log."""
    name: str = ""
    arguments: str = ""
    """Tool and arguments of the call, as JSON text."""


CONTROL_LOG_PREFIX = "control:"
"""Prefix of the names of control logs; session ids must not start with it."""
ControlAction = Literal["cancel", "pause", "steer", "answer"]


def control_log_name(session: str) -> str:
    """Name of the log with the requests for a session."""
    return f"{CONTROL_LOG_PREFIX}{session}"


class ControlRequested(EventBase, kw_only=True, tag="control_requested"):
    """Another process asks something of a run. In the control log of the session; its record's hash identifies it."""

    action: ControlAction
    run: str
    """Run that it is meant for: the id of the prompt that started it. Later runs ignore the request."""
    by: str = ""
    text: str = ""  # message for the run, or reason
    answer: ApprovalAnswered | None = None
    after: int | None = None  # the session's last record then; if the run ended later, it is ignored


class ControlRefused(EventBase, kw_only=True, tag="control_refused"):
    """A control request was not carried out."""

    request: str
    action: ControlAction
    why: str
    by: str = ""


class ContentRedacted(EventBase, kw_only=True, tag="content_redacted"):
    """A person removed content from an earlier record. Its digest stays, and what is left replaces it everywhere."""

    record: int
    record_hash: str
    """Hash of the record, which covers its original content."""
    body: str
    """SHA-256 of the content that is left, in hex."""
    digest: str
    """SHA-256 of the original content of the record, in hex."""
    field: str = ""
    """Path of the removed field; empty for all content of the record."""
    blobs: tuple[str, ...] = ()
    """Stored results that the record does not refer to any more, by their hashes."""
    message: str = ""
    """First message of the conversation that changed; empty if none did."""
    reason: str = ""
    by: str = ""

    @property
    def unique_key(self) -> str | None:
        return f"redaction:{self.record}:{self.body}"


def redaction_key(seq: int, data: bytes) -> str:
    """Unique key of the event that records the redaction of record `seq` to this content."""
    hashlib = import_module("hashlib")  # OpenSSL is slow to load, and few programs redact
    return f"redaction:{seq}:{hashlib.sha256(data).hexdigest()}"


CompensationState = Literal["open", "in_doubt", "failed", "done"]
"""`in_doubt`: it is unknown whether the call, or its compensation, took effect."""


class Compensation(Value, kw_only=True):
    """A completed action and the tool that undoes it."""

    call_id: str
    tool: str
    arguments: str
    """Arguments that it ran with, as JSON text."""
    receipt: str
    """Result of the action."""
    compensating_tool: str
    """Tool that undoes the action."""
    stored_result: StoredResult | None = None
    """Complete result, if `receipt` is an excerpt."""
    key: str = ""
    """Idempotency key; equal for all attempts at the compensation."""
    state: CompensationState = "open"
    attempt: int = 0
    result: str = ""
    """Result of the compensation, or why it failed."""
    reported: bool = False
    """True once the model has been informed of the outcome."""
    session: str = ""
    """Session of the program or inner agent that made the call; empty for a call of the session itself."""

    @property
    def reference(self) -> str:
        """Name of the call in a list with those of inner runs: `c1_0`, or `SESSION/c1_0`."""
        return f"{self.session}/{self.call_id}" if self.session else self.call_id


class CompensationStarted(EventBase, kw_only=True, tag="compensation_started"):
    """The compensation of a completed call is about to run."""

    call_id: str
    """Call to be undone."""
    name: str
    key: str
    attempt: int = 1
    across: str = ""
    """Tenant acting, if the session belongs to another tenant and the caller confirmed it."""

    @property
    def unique_key(self) -> str | None:
        return f"undo:{self.call_id}#{self.attempt}"


class CompensationFinished(EventBase, kw_only=True, tag="compensation_finished"):
    call_id: str
    attempt: int
    result: ToolResult
    across: str = ""
    """As in `CompensationStarted`."""

    @property
    def unique_key(self) -> str | None:
        return f"undone:{self.call_id}#{self.attempt}"


class ToolInterrupted(EventBase, kw_only=True, tag="tool_interrupted"):
    """A tool lost its service during a call: the call is in doubt, and the tool's `on_unknown` decides about it."""

    call_id: str
    attempt: int
    why: str
    name: str = ""
    arguments: str = ""
    """As in `ToolStarted`."""

    @property
    def unique_key(self) -> str | None:
        return f"interrupted:{self.call_id}#{self.attempt}"


class ToolsRevealed(EventBase, kw_only=True, tag="tools_revealed"):
    """Hidden tools (`Settings.hidden_tools`) are part of every request from here on, after all others.

    Once revealed, a tool keeps its position: removing or moving it would change the cached prefix.
    """

    names: tuple[str, ...]
    why: str
    initial: bool = False
    """Found by the index for the first prompt of the session; may be none."""
    tokens: int = 0
    uncached_tokens: int = 0
    """Tokens that the tools add to every prompt, and tokens after them to be processed again; both estimated."""


class ToolsChanged(EventBase, kw_only=True, tag="tools_changed"):
    """The tools of a server, compared with those that the session has seen.

    A session keeps the definitions it has seen, in their order. New tools follow all others; a tool that the server
    does not offer any more stays visible, and calls of it get an error.
    """

    server: str
    added: tuple[ToolSpec, ...] = ()
    """Tools that are new during a run; those found when a run starts are in its settings."""
    missing: tuple[str, ...] = ()
    """Tools of the session that the server does not offer now."""
    changed: tuple[str, ...] = ()
    """Tools that the server defines in another way by now."""
    error: str = ""
    """Reason why the server cannot be used; empty if it can."""
    notes: tuple[str, ...] = ()
    """What was changed in the server's definitions, or left out, one sentence each."""


ElicitationAction = Literal["accept", "decline", "cancel"]


class RequestRefused(Exception):
    """A request of a server was not allowed, or could not be answered; the server reads the message."""


class SamplingRequest(Value, kw_only=True):
    """A conversation that a server wants the model to continue."""

    server: str
    messages: tuple[Message, ...]
    """In turn; the last one is the user's."""
    max_tokens: int
    instructions: str = ""
    temperature: float | None = None
    stop_sequences: tuple[str, ...] = ()
    budget: Budget = Budget()
    """Of this request, besides that of the run."""

    @property
    def kind(self) -> RequestKind:
        return "sampling"


class ElicitationRequest(Value, kw_only=True):
    """A question of a server to the person that approves calls."""

    server: str
    message: str
    fields: str = ""
    """JSON Schema of the answer as text; empty for a question with an address."""
    url: str = ""
    """Address that the person should open; Bridle never opens it."""

    @property
    def kind(self) -> RequestKind:
        return "elicitation"


ServerRequest = SamplingRequest | ElicitationRequest


class ServerReply(Value, kw_only=True):
    """The answer to a request of a server."""

    action: ElicitationAction = "accept"
    text: str = ""
    """The model's text, or the person's values as a JSON object."""
    model: str = ""
    """Model that answered."""
    is_cut: bool = False
    """True if the model's text ends at the limit that the server set."""


class ServerRequestEvent(EventBase, kw_only=True):
    """Fields of the events about a request of a server."""

    call_id: str
    attempt: int
    kind: RequestKind
    server: str
    binding: str
    """Hash of the call and the exact request; an answer applies to exactly this."""


class ServerAsked(ServerRequestEvent, kw_only=True, tag="server_asked"):
    """The server of a tool asks the model or a person during a call; neither has been asked yet."""

    request: str
    """The request as JSON text, as a person sees it."""
    rule: str = ""
    """Rule that decides who answers."""

    @property
    def unique_key(self) -> str | None:
        return f"server-ask:{self.binding}#{self.attempt}"


class ServerAnswered(ServerRequestEvent, kw_only=True, tag="server_answered"):
    """A request of a server was allowed, answered or refused; a repeated call gets the same answer."""

    action: ElicitationAction
    content: str = ""
    """The person's values as a JSON object; the model's answer is in a session of its own."""
    reason: str = ""
    by: str = ""
    proof: str = ""
    """As in `ApprovalAnswered`; an answer without a valid one is not used again."""

    @property
    def unique_key(self) -> str | None:
        return f"server-answer:{self.binding}#{self.attempt}"
