"""After a failed model call: try again, and when?

One table, one layer: nothing below or above retries.  A provider's own word
(`should_retry`, `retry_after_seconds`) beats the table; its wish is honoured up to a
limit, because a run that sleeps for an hour has failed without saying so.
"""

from ..values.errors import Failure, FailureKind

ATTEMPTS_MAX = 4
WAIT_SECONDS_FIRST = 0.5
WAIT_SECONDS_MAX = 8.0
RETRY_AFTER_SECONDS_MAX = 120.0

TRANSIENT: dict[FailureKind, bool] = {
    "unreachable": True,
    "timeout": True,
    "cut": True,
    "garbled": True,
    "overloaded": True,
    "rate_limited": True,
    "server": True,
    "quota": False,
    "unauthorized": False,
    "not_found": False,
    "forgotten": True,
    "too_large": False,
    "context": False,
    "reasoning_refused": True,
    "invalid": False,
}

SENT_OTHERWISE: dict[FailureKind, str] = {
    "forgotten": "everything is sent",
    "reasoning_refused": "earlier reasoning is left out",
}
"""Failures that another request mends: it is sent at once, and only once."""


def wait_before_next(
    failure: Failure, attempts: int, *, answered: bool = True, again: bool = False
) -> float | None:
    """Seconds to wait before asking again after `attempts` tries, or None when it would not help.

    `again`: the other request that was to mend this failure has met it too.

    Who was never reached and never `answered` in this session has the wrong address more often than a
    bad moment, and the person who typed it is waiting to be told.
    """
    willing = TRANSIENT[failure.kind] if failure.should_retry is None else failure.should_retry
    if failure.kind == "unreachable" and not answered:
        willing = False
    if failure.kind in SENT_OTHERWISE:
        return None if again else 0.0
    if not willing or attempts >= ATTEMPTS_MAX:
        return None
    if failure.retry_after_seconds is not None:
        if failure.retry_after_seconds > RETRY_AFTER_SECONDS_MAX:
            return None
        return max(0.0, failure.retry_after_seconds)
    return float(min(WAIT_SECONDS_MAX, WAIT_SECONDS_FIRST * 2 ** (attempts - 1)))
