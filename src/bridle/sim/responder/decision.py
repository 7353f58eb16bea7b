"""The decision of a responder: a reply, how it is delivered, and the failures that come first.

Each attempt at the same point of a conversation receives the next failure. When all are used up, the reply is
delivered and the failures start over, so that the next conversation receives them too. Pauses are not
failures: they belong to every delivery.
"""

from collections.abc import Callable

from bridle.values.base import Value
from bridle.values.errors import Failure
from bridle.values.message import Reply
from bridle.values.request import Request
from bridle.values.usage import Usage

from .hosted_uses import HostedUse


class CutAfter(Value, kw_only=True, tag="cut_after"):
    """The connection breaks after this many bytes of the reply."""

    bytes: int


SimulatedFailure = Failure | CutAfter


class ResponderDecision(Value, kw_only=True):
    reply: Reply
    failures: tuple[SimulatedFailure, ...] = ()
    silence_seconds: float = 0.0
    """Silence before the first byte."""
    stall_seconds: float = 0.0
    """Silence in the middle of a stream."""
    pace_seconds: float = 0.0
    """Silence between two chunks of a stream."""
    usage: Usage | None = None
    """Usage that the provider reports; None if the simulator counts it."""
    hosted: tuple[HostedUse, ...] = ()
    """Uses of hosted tools in the reply."""


Responder = Callable[[Request], Reply | Failure | ResponderDecision]


def as_decision(decided: Reply | Failure | ResponderDecision) -> ResponderDecision | Failure:
    return ResponderDecision(reply=decided) if isinstance(decided, Reply) else decided
