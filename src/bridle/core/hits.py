"""What the prompt cache did for a call, and for many: the figures, without how they come about.

A call could have read whatever the call before it had sent: that is expected.  What of it was not read
is missed, for one cause (misses.py finds it) and at a price.  `Hits` is what a session remembers of that:
the call that is out, the one before it, and the latest verdicts, from which alarms.py sees a cache
that has stopped working.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal

from ..values.cached import PrefixMoved, Verdict
from ..values.request import ToolChoice
from ..values.usage import Usage
from ..values.value import Value

MISSES: tuple[Verdict, ...] = ("prefix", "ttl", "lookback", "provider")
VERDICTS: dict[Verdict, str] = {
    "cold": "the first call of a session: nothing was kept for it",
    "hit": "what could be read was read",
    "prefix": "the beginning of the prompt had changed",
    "ttl": "more time had passed than the prompt is kept",
    "lookback": "more blocks had been added than a mark looks back over",
    "minimum": "what came before was too short to be kept",
    "provider": "nothing here explains it: the provider had forgotten it, or asked another machine",
    "unreported": "nobody told how much was read from the cache",
}


class CacheCall(Value):
    """One call of a model and what the cache did for it."""

    number: int
    at: float
    model: str
    tenant: str
    prompt: int
    expected: int
    read: int
    written: int
    verdict: Verdict
    why: str = ""
    missed: int = 0
    usd: Decimal | None = Decimal(0)
    """What the miss cost; None when no price is known."""
    agent: str = ""


class CacheSum(Value):
    calls: int
    expected: int
    read: int
    """Of what was expected; what was read beyond it is luck and counts for nothing."""
    missed: int
    usd: Decimal | None
    verdicts: Mapping[str, int]

    @property
    def hit_rate(self) -> float | None:
        """None when nothing could have been read."""
        return self.read / self.expected if self.expected else None


class Sent(Value):
    """A call as it was made."""

    at: float
    messages: int
    kept_seconds: float
    choice: ToolChoice
    named_tokens: int = 0
    """What of it stood there under a name."""
    usage: Usage = Usage()


class Hits(Value):
    """What a session remembers of its cache."""

    number: int = 0
    out: Sent | None = None
    """The call that is on its way."""
    before: Sent | None = None
    """The last one that was answered."""
    moved: PrefixMoved | None = None
    """What was found to have moved since then."""
    recent: tuple[CacheCall, ...] = ()
    """The newest that could have read something, and the very newest."""
    expected: int = 0
    read: int = 0
    """Of all calls that are no longer among the recent ones."""
    degraded: bool = False
    """It was said that the cache gives too little, and it has not been well since."""


def summed(calls: Sequence[CacheCall]) -> CacheSum:
    known = [call.usd for call in calls if call.usd is not None]
    return CacheSum(
        calls=len(calls),
        expected=sum([call.expected for call in calls]),
        read=sum([call.read if call.read < call.expected else call.expected for call in calls]),
        missed=sum([call.missed for call in calls]),
        usd=sum(known, Decimal(0)) if len(known) == len(calls) else None,
        verdicts=Counter([call.verdict for call in calls]),
    )
