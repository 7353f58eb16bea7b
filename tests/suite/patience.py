"""Times for tests that cannot do without a real clock, on a machine that is busy with other things as well."""

from collections.abc import Callable

PATIENCE_SECONDS = 300.0
"""Upper bound of every wait: it turns a hang into a failure, and no passing test comes near it."""


def allow_longer(check: Callable[[float], None], seconds: float) -> None:
    """Call `check(seconds)`; if it fails, call it with 8 and with 64 times as many seconds.

    For a test in which a short time runs out on purpose, and in which something has to happen before that.  A busy
    machine can be late for a short time; what is wrong fails for every one.
    """
    for longer in (seconds, 8 * seconds):
        try:
            return check(longer)
        except AssertionError:
            continue
    return check(64 * seconds)
