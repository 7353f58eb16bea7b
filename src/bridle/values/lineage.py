"""Forks of sessions, comparisons between them, and tenants.

A fork shares its parent's records without copying them; its own log begins with one `Forked` event
(values/events.py). The values here describe session families and compared branches for display.

A session belongs to the tenant of its first prompt (which may be unnamed). Another tenant cannot continue,
fork, answer or read it unless the caller confirms it: `tenant=CrossTenant("globex")`.
"""

from decimal import Decimal
from typing import Literal

from .base import Value
from .message import Message, RawCall
from .usage import Usage

ForkPlace = int | str | None
"""A record number, a message id (`m4`), or None for the end."""
PairKind = Literal["same", "changed", "only_a", "only_b"]


class CompletedAction(Value, kw_only=True):
    """An action with an external effect, described in enough detail to undo it."""

    call_id: str
    tool: str
    arguments: str
    outcome: str


class Fork(Value, kw_only=True):
    session: str
    parent: str
    at: int
    """Number of records shared with the parent."""
    message: str = ""
    """Last shared message."""
    requested_at: int = 0
    """Requested record; the fork point may be earlier, because a batch of calls with effects is not split."""
    cut_reason: str = ""
    """Reason why fewer records are shared than requested; empty if as requested."""
    completed_actions: tuple[CompletedAction, ...] = ()
    """Actions of the parent after the fork point. They stay done: forking undoes nothing."""


class Branch(Value, kw_only=True):
    """One session of a family, and its activity since it left its parent."""

    session: str
    parent: str = ""
    """Session whose records it shares; empty for the root of the family."""
    depth: int = 0
    at: int = 0
    message: str = ""
    """Last shared message."""
    length: int = 0
    model: str = ""
    messages: int = 0
    """Messages of the whole conversation, shared ones included."""
    own_messages: int = 0
    steps: int = 0
    usage: Usage = Usage()
    usd: Decimal | None = Decimal(0)
    end: str = ""
    first_text: str = ""
    """Text of its first own message."""
    created_at: float = 0.0
    updated_at: float = 0.0
    read_error: str = ""
    """Reason why it cannot be read."""


class ComparedSession(Value, kw_only=True):
    """One of two compared sessions, since they diverged."""

    session: str
    model: str
    messages: int
    steps: int
    usage: Usage
    usd: Decimal | None
    seconds: float
    end: str
    reason: str = ""
    calls: tuple[tuple[str, int], ...] = ()
    """Number of calls per tool."""


class Pair(Value, kw_only=True):
    """Two messages at the same position; one is None if only one side has a message there."""

    kind: PairKind
    a: Message | None = None
    b: Message | None = None


class Comparison(Value, kw_only=True):
    a: ComparedSession
    b: ComparedSession
    records: int
    """Number of shared records."""
    messages: int
    """Number of leading messages that are equal, whether shared or not."""
    settings: tuple[tuple[str, str, str], ...] = ()
    """Settings that differ: name, value in a, value in b."""
    pairs: tuple[Pair, ...] = ()
    """Messages after the point of divergence."""


class CrossTenant(str):
    """A tenant name with the caller's confirmation that the session may belong to another tenant; recorded."""

    __slots__ = ()


RequestLayer = Literal["model", "tools", "instructions", "notes", "session", "history", "options"]
"""Layers of a request, in the order in which they are compared; `session`: instructions written for the session."""


class RequestDifference(Value, kw_only=True):
    """First difference between two requests."""

    layer: RequestLayer
    place: str
    """Tool, message or option that differs."""
    changes: tuple[str, ...]
    """Differences in words, the first ones only."""
    first_byte: int = -1
    """Offset of the first differing byte of the bodies; -1 if the bytes are not known or the addresses differ."""
    body_bytes: int = 0
    """Length of the recorded body."""
    diff: tuple[str, ...] = ()
    """Lines of both bodies that differ, as a unified diff."""


class Divergence(Value, kw_only=True):
    """First point at which a replay decides something other than the log records."""

    seq: int
    """Record that differs."""
    event: str
    """Tag of the recorded event."""
    effects: tuple[str, ...] = ()
    """Names of the effects that core wants at this point."""
    differences: tuple[str, ...] = ()
    """Fields that differ; empty if no effect explains the event."""
    is_request: bool = False
    """True if the request of a model call differs."""
    request: RequestDifference | None = None
    """The difference, if both requests can be built."""


class Replay(Value, kw_only=True):
    """Outcome of a replay: equal to the log, or the first difference."""

    session: str
    records: int
    """Records that were replayed."""
    length: int
    """Records of the log."""
    model_calls: int = 0
    tool_runs: int = 0
    """Calls that ran when the log was recorded; a replay runs none."""
    end: str = ""
    """Stop reason of the last run, or `unfinished`."""
    divergence: Divergence | None = None
    head: str = ""
    """Hash of the replayed log."""
    is_identical: bool = False
    """True if the replay is equal and its hash is the recorded one."""
    unchecked: tuple[str, ...] = ()
    """What could not be checked, one sentence each."""
    subruns: tuple["Replay", ...] = ()
    """Sessions that tools of this one started."""

    @property
    def is_equal(self) -> bool:
        """True if neither the session nor one of its sub-runs differs."""
        return self.divergence is None and all(each.is_equal for each in self.subruns)


class RecordedCall(Value, kw_only=True):
    """One model call of a session, with its request as it was sent."""

    number: int
    """Number of the model call in the session, from 1; retries count."""
    seq: int
    """Record of the request."""
    step: int
    attempt: int
    model: str
    method: str
    url: str
    headers: tuple[tuple[str, str], ...]
    """Headers of the request; a credential is the name of its variable."""
    body: bytes
    digest: str
    """Recorded digest of the request."""
    is_proven: bool
    """True if the rebuilt request has the recorded digest."""
    problem: str = ""
    """Reason why the request could not be rebuilt exactly."""
    signing: tuple[str, ...] = ()
    """Service and region of a request that is signed when it is sent, and the variables with its credentials."""
    is_summary: bool = False
    """True if the request asks for a summary of the conversation."""
    is_streamed: bool | None = None
    """Delivery of the reply; None if it is not recorded. The digest does not cover it."""
    outcome: str = ""
    """Tag of the event that ended the call; empty if there is none."""
    outcome_seq: int = 0
    stop: str = ""
    """Stop reason of the reply, or the failure."""
    raw: RawCall | None = None
    """Kept bytes, if any."""
    difference: RequestDifference | None = None
    """First difference to the request before it; None for the first request."""
