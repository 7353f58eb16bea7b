"""Circuit breaker of an endpoint, as a value.

    closed      requests are sent; consecutive failures are counted
    open        too many consecutive failures: no request is sent until the open time is over
    half-open   the open time is over: one request (the probe) is sent, and its outcome decides

Time is a parameter, never read from a clock. The open time doubles with every failed probe. The breaker
closes as soon as a probe is answered, because a reply may stream for minutes; the next failure opens it
again.

run/recovery shares breakers between runs; failure_policy.py decides which failures count.
"""

from typing import Literal

from msgspec.structs import replace

from bridle.values.base import Value

FAILURES_MAX = 8
"""More than one run makes for one reply: a breaker concerns many runs, retries handle a single failure."""
OPEN_SECONDS_FIRST = 10.0
# not from outside: time that we wait for our own work
OPEN_SECONDS_MAX = 120.0
DOUBLINGS_MAX = 10
PROBE_SECONDS = 15.0
"""Wait of other requests before they check again whether the probe was answered."""
# not from outside: time that we wait for our own work
PROBE_SECONDS_MAX = 600.0
"""A probe without an answer for this long is lost; another may be sent."""


class BreakerState(Value, kw_only=True):
    failures: int = 0
    """Consecutive failures."""
    opened_at: float | None = None
    openings: int = 0
    """Number of consecutive openings."""
    probed_at: float | None = None
    last_failure: str = ""
    """Message of the latest failure."""


CLOSED_BREAKER = BreakerState()


def breaker_phase(breaker: BreakerState, now: float) -> Literal["closed", "open", "half-open"]:
    if breaker.opened_at is None:
        return "closed"
    return "open" if now < _open_until(breaker) else "half-open"


def admit_request(breaker: BreakerState, now: float) -> tuple[BreakerState, float]:
    """The breaker after a request asks to be sent, and the seconds it has to wait; 0 admits it."""
    phase = breaker_phase(breaker, now)
    if phase == "closed":
        return breaker, 0.0
    if phase == "open":
        return breaker, _open_until(breaker) - now
    if breaker.probed_at is not None and now - breaker.probed_at < PROBE_SECONDS_MAX:
        return breaker, PROBE_SECONDS
    return replace(breaker, probed_at=now), 0.0


def record_failure(breaker: BreakerState, now: float, why: str = "") -> BreakerState:
    if breaker.opened_at is None:
        failures = breaker.failures + 1
        opens = failures >= FAILURES_MAX
        openings = breaker.openings + 1 if opens else breaker.openings
        return BreakerState(
            failures=failures, opened_at=now if opens else None, openings=openings, last_failure=why
        )
    if breaker.probed_at is None:
        return breaker  # sent before the breaker opened: no new information
    return BreakerState(
        failures=breaker.failures + 1, opened_at=now, openings=breaker.openings + 1, last_failure=why
    )


def record_probe_answer(breaker: BreakerState) -> BreakerState:
    """Close the breaker because the probe is being answered; one more failure opens it again."""
    if breaker.probed_at is None:
        return breaker
    return BreakerState(
        failures=FAILURES_MAX - 1, openings=breaker.openings, last_failure=breaker.last_failure
    )


def record_success(breaker: BreakerState) -> BreakerState:
    # A success from before the opening does not outweigh the failures that caused it.
    return breaker if breaker.opened_at is not None and breaker.probed_at is None else CLOSED_BREAKER


def release_probe(breaker: BreakerState) -> BreakerState:
    """Abandon a probe for reasons unrelated to the endpoint; the next request may be the probe."""
    return replace(breaker, probed_at=None)


def _open_until(breaker: BreakerState) -> float:
    assert breaker.opened_at is not None
    doublings = min(max(0, breaker.openings - 1), DOUBLINGS_MAX)
    return breaker.opened_at + min(OPEN_SECONDS_MAX, OPEN_SECONDS_FIRST * 2.0**doublings)
