"""Sessions as trees: where one left another, and what the two have been since.

A fork shares records and copies none.  What it is told of its beginning is one event of its own (`Forked`);
the rest here is what people are shown of families and of branches beside each other.
"""

from decimal import Decimal
from typing import Literal

from .base import EventBase, Value
from .message import Message
from .usage import Usage

ForkPlace = int | str | None
"""A record by its number, a message by its id (`m4`), or None for the end."""
PairKind = Literal["same", "changed", "only_a", "only_b"]


class Forked(EventBase, tag="forked"):
    """This session begins here; what came before is another one's, and shared.

    Calls that were open at that point are the other's to finish: here they are answered, not run.
    """

    session: str
    """Makes what follows unlike what follows in any other fork of that place."""
    parent: str
    at: int
    """How many records the two share."""
    cross_tenant: str = ""
    """The tenant for whom, when the session is another's and the caller said that this is meant."""


class CompletedAction(Value):
    """Something that was done to the world, in words enough to undo it."""

    call_id: str
    tool: str
    arguments: str
    outcome: str


class Fork(Value):
    session: str
    parent: str
    at: int
    """How many records it shares with the session it was forked from."""
    message: str = ""
    """The last message of both."""
    requested_at: int = 0
    """The record that was asked for: a batch of calls that may change something is not cut in two."""
    cut_reason: str = ""
    """Why no more of them; empty when that was asked for."""
    completed_actions: tuple[CompletedAction, ...] = ()
    """What the other session did after that point.  It stays done: forking undoes nothing."""


class Branch(Value):
    """One session of a family, and what happened in it since it left its parent."""

    session: str
    parent: str = ""
    """Whose records it shares; empty for the first of the family."""
    depth: int = 0
    at: int = 0
    message: str = ""
    """The last message it shares."""
    length: int = 0
    model: str = ""
    messages: int = 0
    """All of its conversation, what is shared included."""
    own_messages: int = 0
    steps: int = 0
    usage: Usage = Usage()
    usd: Decimal | None = Decimal(0)
    end: str = ""
    first_text: str = ""
    """What was said first in it."""
    created_at: float = 0.0
    updated_at: float = 0.0
    read_error: str = ""
    """Why it cannot be read."""


class ComparedSession(Value):
    """One of two sessions beside each other, since they parted."""

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
    """How often each tool was called."""


class Pair(Value):
    """Two messages at the same place, one message that the other side has not, or one that both have."""

    kind: PairKind
    a: Message | None = None
    b: Message | None = None


class Comparison(Value):
    a: ComparedSession
    b: ComparedSession
    records: int
    """How many records they share."""
    messages: int
    """How many messages they begin with alike, whether they share them or said the same."""
    settings: tuple[tuple[str, str, str], ...] = ()
    """What they are made of that differs: its name, and how it is there and here."""
    pairs: tuple[Pair, ...] = ()
    """What came after."""


# Tenants: on whose behalf a session is held.
#
# A session belongs to the tenant of its first prompt, the tenant without a name included.  Another tenant can
# neither go on in it nor fork, answer or read it, unless the caller says so: `tenant=Across("globex")`.


class CrossTenant(str):
    """A tenant's name, and the caller's word that the session may be another's; it is recorded."""

    __slots__ = ()
