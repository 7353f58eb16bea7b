"""After a failed model call: try again, and when?

One layer: nothing below or above retries.  What a kind of failure comes to is in verdicts.py; here is how
long to wait, and when enough is enough.

    the provider's word     `should_retry` beats the table, except that nobody waits for money
    retry-after             honoured to the second, up to a limit and to the run's own time: a run that
                            sleeps for an hour has failed without saying so
    backoff                 anything from nothing to a ceiling that doubles ("full jitter"), so that those
                            who failed together do not come back together
    breaker                 when the endpoint has had its rest; nothing is sent before

Chance is data: it was drawn when the failure was recorded and stands in the log beside it.
"""

from ..values.errors import Failure
from ..values.event import WaitSource
from ..values.settings import ATTEMPTS_DEFAULT
from ..values.value import Value
from .verdicts import FAILURES

WAIT_SECONDS_FIRST = 0.5
WAIT_SECONDS_MAX = 16.0
RETRY_AFTER_SECONDS_MAX = 120.0
RESTS_MAX = 4
"""How often one reply waits for its endpoint to have had its rest."""


class Wait(Value):
    seconds: float
    source: WaitSource


class GivenUp(Value):
    why: str


def next_try(
    failure: Failure,
    tries: int,
    *,
    chance: float = 1.0,
    answered: bool = True,
    again: bool = False,
    rests: int = 0,
    left_seconds: float | None = None,
    attempts_max: int = ATTEMPTS_DEFAULT,
) -> Wait | GivenUp:
    """What follows a failure after so many `tries` at this model.

    `again`: what was sent otherwise to mend this failure has met it too.  `rests`: how often its endpoint
    was resting.  `left_seconds`: of the run's time.
    """
    row = FAILURES[failure.kind]
    if row.verdict == "repair" and row.again:
        return GivenUp(why=failure.message) if again else Wait(seconds=0.0, source="repair")
    if not is_passing(failure, answered=answered) or tries >= attempts_max or rests > RESTS_MAX:
        return GivenUp(why=failure.message)
    wait = _wait(failure, tries, chance)
    problem = _too_long(wait, left_seconds)
    return GivenUp(why=f"{failure.message} ({problem})") if problem else wait


def is_passing(failure: Failure, *, answered: bool = True) -> bool:
    """Whether the same request may do better later.

    Who was never reached and never `answered` in this session has the wrong address more often than a
    bad moment, and the person who typed it is waiting to be told.
    """
    if failure.kind == "quota" or (failure.kind == "unreachable" and not answered):
        return False
    return FAILURES[failure.kind].verdict == "retry" if failure.should_retry is None else failure.should_retry


def _wait(failure: Failure, tries: int, chance: float) -> Wait:
    asked = failure.retry_after_seconds
    if asked is not None:
        source: WaitSource = "breaker" if failure.kind == "unavailable" else "retry-after"
        return Wait(seconds=max(0.0, asked), source=source)
    ceiling = min(WAIT_SECONDS_MAX, WAIT_SECONDS_FIRST * 2.0 ** max(0, tries - 1))
    return Wait(seconds=ceiling * min(1.0, max(0.0, chance)), source="backoff")


WAITING = {
    "retry-after": "the provider asks to wait {:g} s",
    "breaker": "the endpoint rests for another {:g} s",
    "backoff": "the next attempt is due in {:g} s",
}


def _too_long(wait: Wait, left_seconds: float | None) -> str:
    told = WAITING[wait.source].format(wait.seconds)
    if left_seconds is not None and wait.seconds >= left_seconds:
        return (
            f"{told}, and {max(0.0, left_seconds):g} s of the run's time are left; resume the session later"
        )
    if wait.seconds > RETRY_AFTER_SECONDS_MAX:
        return f"{told}, and a run waits {RETRY_AFTER_SECONDS_MAX:g} s at most; resume the session later"
    return ""
