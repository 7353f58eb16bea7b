"""When to leave an endpoint alone: a circuit breaker as a value.

    closed      it is asked; failures in a row are counted
    open        it failed too often in a row: nobody asks before its rest is over
    half-open   the rest is over: one request is let through, and its fate decides

Time is given, never looked up.  The rest doubles with every probe that fails.  A probe that is answered at
all closes the breaker, on probation: a model may talk for minutes, and the others need not wait for the
end of its sentence; the next failure opens it again.

Whoever keeps breakers and shares them between runs is in run/; who is at fault is in verdicts.py.
"""

from typing import Literal

from msgspec.structs import replace

from ..values.value import Value

FAILURES_MAX = 8
"""More than one run makes at one reply: a breaker speaks for many, a single bad moment is for retry.py."""
REST_SECONDS_FIRST = 10.0
REST_SECONDS_MAX = 120.0
DOUBLINGS_MAX = 10
PROBE_SECONDS = 15.0
"""How long the others wait before they look again whether a probe was answered."""
PROBE_SECONDS_MAX = 600.0
"""A probe not heard of for this long is lost, and another may be sent."""


class Breaker(Value):
    failures: int = 0
    """In a row."""
    opened_at: float | None = None
    rests: int = 0
    """How often in a row it was opened."""
    probed_at: float | None = None
    why: str = ""
    """The latest failure, in words."""


CLOSED = Breaker()


def phase(breaker: Breaker, now: float) -> Literal["closed", "open", "half-open"]:
    if breaker.opened_at is None:
        return "closed"
    return "open" if now < _rested_at(breaker) else "half-open"


def admitted(breaker: Breaker, now: float) -> tuple[Breaker, float]:
    """The breaker after somebody wanted to ask, and how many seconds it is too early; 0 lets them."""
    where = phase(breaker, now)
    if where == "closed":
        return breaker, 0.0
    if where == "open":
        return breaker, _rested_at(breaker) - now
    if breaker.probed_at is not None and now - breaker.probed_at < PROBE_SECONDS_MAX:
        return breaker, PROBE_SECONDS
    return replace(breaker, probed_at=now), 0.0


def failed(breaker: Breaker, now: float, why: str = "") -> Breaker:
    if breaker.opened_at is None:
        failures = breaker.failures + 1
        opens = failures >= FAILURES_MAX
        rests = breaker.rests + 1 if opens else breaker.rests
        return Breaker(failures=failures, opened_at=now if opens else None, rests=rests, why=why)
    if breaker.probed_at is None:
        return breaker  # asked before it opened: nothing new is known
    return Breaker(failures=breaker.failures + 1, opened_at=now, rests=breaker.rests + 1, why=why)


def heard(breaker: Breaker) -> Breaker:
    """A probe is being answered."""
    if breaker.probed_at is None:
        return breaker
    return Breaker(failures=FAILURES_MAX - 1, rests=breaker.rests, why=breaker.why)


def succeeded(breaker: Breaker) -> Breaker:
    # A success of before the rest proves less than the failures that led to it.
    return breaker if breaker.opened_at is not None and breaker.probed_at is None else CLOSED


def released(breaker: Breaker) -> Breaker:
    """A probe was given up for reasons of ours: the next one may try."""
    return replace(breaker, probed_at=None)


def _rested_at(breaker: Breaker) -> float:
    assert breaker.opened_at is not None
    doublings = min(max(0, breaker.rests - 1), DOUBLINGS_MAX)
    return breaker.opened_at + min(REST_SECONDS_MAX, REST_SECONDS_FIRST * 2.0**doublings)
