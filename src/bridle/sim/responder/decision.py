"""What a brain decides: a reply, how it is delivered, and what goes wrong before it is.

A provider that fails for ever is of no use in a test, so troubles are used up: each
attempt at the same point of a conversation meets the next one, and when all are used up
the reply is delivered.  After that they start over, so that the next conversation of the
same kind meets them too.  Pauses are no troubles: they belong to every delivery.
"""

from collections.abc import Callable

from bridle.values.base import Value
from bridle.values.errors import Failure
from bridle.values.message import Reply
from bridle.values.request import Request
from bridle.values.usage import Usage


class CutAfter(Value, tag="cut_after"):
    """The reply is begun and the connection breaks after this many bytes of it."""

    bytes: int


SimulatedFailure = Failure | CutAfter


class ResponderDecision(Value):
    reply: Reply
    failures: tuple[SimulatedFailure, ...] = ()
    silence_seconds: float = 0.0
    """Before the first byte."""
    stall_seconds: float = 0.0
    """In the middle of a stream."""
    pace_seconds: float = 0.0
    """Between two pieces of a stream."""
    usage: Usage | None = None
    """What the provider says it counted; None when it counts."""


Responder = Callable[[Request], Reply | Failure | ResponderDecision]


def as_decision(decided: Reply | Failure | ResponderDecision) -> ResponderDecision | Failure:
    return ResponderDecision(reply=decided) if isinstance(decided, Reply) else decided
