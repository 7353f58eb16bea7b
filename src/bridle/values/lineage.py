"""Forks of sessions, comparisons between them, and tenants.

A fork shares its parent's records without copying them; its own log begins with one `Forked` event
(values/events.py). The values here describe session families and compared branches for display.

A session belongs to the tenant of its first prompt (which may be unnamed). Another tenant cannot continue,
fork, answer or read it unless the caller confirms it: `tenant=CrossTenant("globex")`.
"""

from decimal import Decimal
from typing import Literal

from .base import Value
from .message import Message
from .usage import Usage

ForkPlace = int | str | None
"""A record number, a message id (`m4`), or None for the end."""
PairKind = Literal["same", "changed", "only_a", "only_b"]


class CompletedAction(Value):
    """An action with an external effect, described in enough detail to undo it."""

    call_id: str
    tool: str
    arguments: str
    outcome: str


class Fork(Value):
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


class Branch(Value):
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


class ComparedSession(Value):
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


class Pair(Value):
    """Two messages at the same position; one is None if only one side has a message there."""

    kind: PairKind
    a: Message | None = None
    b: Message | None = None


class Comparison(Value):
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


class Divergence(Value):
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
