"""When a cache has stopped working: rules as data, and one alarm an episode.

A single miss is nothing: a person paused, a model was switched, a machine was replaced.  A cache that
gives little call after call is money lost at every step, and nobody sees it in the answers.  Each rule
looks at so many of the latest calls that could have read something; the first that holds rings.  Then
there is silence until the cache is well again.
"""

from decimal import Decimal

from msgspec.structs import replace

from ..values.cached import CacheDegraded
from ..values.value import Value
from .hits import CacheCall, summed
from .state import State


class Alarm(Value):
    name: str
    calls: int
    """How many of the latest calls it looks at."""
    rate_below: float
    missed_tokens_min: int
    """Less than this is not worth a word."""


ALARMS = (
    Alarm(name="lost", calls=3, rate_below=0.5, missed_tokens_min=3_000),
    Alarm(name="worn", calls=10, rate_below=0.8, missed_tokens_min=10_000),
)
"""In this order.  `lost`: what is sent is not found at all.  `worn`: every now and then it is not."""
WELL_CALLS, WELL_RATE = 3, 0.9
"""An episode is over when this many calls in a row read that much."""


def alarm(state: State) -> CacheDegraded | None:
    """What is to be told of the cache now; None when it is well, or when it was told already."""
    hits = state.hits
    counted = [call for call in hits.recent if call.expected]
    if hits.degraded or not counted or counted[-1] is not hits.recent[-1]:
        return None
    for rule in ALARMS:
        latest = counted[-rule.calls :]
        missed = sum([call.missed for call in latest])
        if len(latest) < rule.calls or missed < rule.missed_tokens_min:
            continue
        rate = summed(latest).hit_rate
        if rate is not None and rate < rule.rate_below:
            return _told(rule, latest, rate, _before(state, counted[: -rule.calls]))
    return None


def cache_degraded(state: State, event: CacheDegraded, at: float, proof: str) -> State:
    return replace(state, hits=replace(state.hits, degraded=True))


def recovered(calls: tuple[CacheCall, ...]) -> bool:
    latest = [call for call in calls if call.expected][-WELL_CALLS:]
    rate = summed(latest).hit_rate
    return len(latest) == WELL_CALLS and rate is not None and rate >= WELL_RATE


def _before(state: State, earlier: list[CacheCall]) -> float | None:
    seen = summed(earlier)
    expected, read = state.hits.expected + seen.expected, state.hits.read + seen.read
    return read / expected if expected else None


def _told(rule: Alarm, latest: list[CacheCall], rate: float, before: float | None) -> CacheDegraded:
    weights: dict[str, int] = {}
    for call in latest:
        weights[call.verdict] = weights.get(call.verdict, 0) + call.missed
    likely = max(weights, key=lambda verdict: weights[verdict])
    newest = [call for call in latest if call.verdict == likely][-1]
    told = summed(latest)
    usd: Decimal | None = told.usd
    return CacheDegraded(
        rule=rule.name,
        rate=round(rate, 4),
        rate_before=None if before is None else round(before, 4),
        calls=len(latest),
        verdict=newest.verdict,
        why=newest.why,
        missed_tokens=told.missed,
        usd=usd,
    )
