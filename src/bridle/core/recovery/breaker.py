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

from bridle.values.base import Value

FAILURES_MAX = 8
"""More than one run makes at one reply: a breaker speaks for many, a single bad moment is for retry.py."""
OPEN_SECONDS_FIRST = 10.0
OPEN_SECONDS_MAX = 120.0
DOUBLINGS_MAX = 10
PROBE_SECONDS = 15.0
"""How long the others wait before they look again whether a probe was answered."""
PROBE_SECONDS_MAX = 600.0
"""A probe not heard of for this long is lost, and another may be sent."""


class BreakerState(Value):
    failures: int = 0
    """In a row."""
    opened_at: float | None = None
    openings: int = 0
    """How often in a row it was opened."""
    probed_at: float | None = None
    last_failure: str = ""
    """The latest failure, in words."""


CLOSED_BREAKER = BreakerState()


def breaker_phase(breaker: BreakerState, now: float) -> Literal["closed", "open", "half-open"]:
    if breaker.opened_at is None:
        return "closed"
    return "open" if now < _open_until(breaker) else "half-open"


def admit_request(breaker: BreakerState, now: float) -> tuple[BreakerState, float]:
    """The breaker after somebody wanted to ask, and how many seconds it is too early; 0 lets them."""
    where = breaker_phase(breaker, now)
    if where == "closed":
        return breaker, 0.0
    if where == "open":
        return breaker, _open_until(breaker) - now
    if breaker.probed_at is not None and now - breaker.probed_at < PROBE_SECONDS_MAX:
        return breaker, PROBE_SECONDS
    return replace(breaker, probed_at=now), 0.0


def record_failure(breaker: BreakerState, now: float, why: str = "") -> BreakerState:
    if breaker.opened_at is None:
        failures = breaker.failures + 1
        opens = failures >= FAILURES_MAX
        rests = breaker.openings + 1 if opens else breaker.openings
        return BreakerState(
            failures=failures, opened_at=now if opens else None, openings=rests, last_failure=why
        )
    if breaker.probed_at is None:
        return breaker  # asked before it opened: nothing new is known
    return BreakerState(
        failures=breaker.failures + 1, opened_at=now, openings=breaker.openings + 1, last_failure=why
    )


def record_probe_answer(breaker: BreakerState) -> BreakerState:
    """A probe is being answered."""
    if breaker.probed_at is None:
        return breaker
    return BreakerState(
        failures=FAILURES_MAX - 1, openings=breaker.openings, last_failure=breaker.last_failure
    )


def record_success(breaker: BreakerState) -> BreakerState:
    # A success of before the rest proves less than the failures that led to it.
    return breaker if breaker.opened_at is not None and breaker.probed_at is None else CLOSED_BREAKER


def release_probe(breaker: BreakerState) -> BreakerState:
    """A probe was given up for reasons of ours: the next one may try."""
    return replace(breaker, probed_at=None)


def _open_until(breaker: BreakerState) -> float:
    assert breaker.opened_at is not None
    doublings = min(max(0, breaker.openings - 1), DOUBLINGS_MAX)
    return breaker.opened_at + min(OPEN_SECONDS_MAX, OPEN_SECONDS_FIRST * 2.0**doublings)
