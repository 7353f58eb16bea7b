"""What the prompt cache did for a call, and for many: the figures, without how they come about.

A call could have read whatever the call before it had sent: that is expected.  What of it was not read
is missed, for one cause (misses.py finds it) and at a price.  `Hits` is what a session remembers of that:
the call that is out, the one before it, and the latest verdicts, from which alarms.py sees a cache
that has stopped working.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal

from bridle.values.base import Value
from bridle.values.cache import CacheOutcome, PrefixMoved
from bridle.values.message import Message
from bridle.values.request import ToolChoice, ToolSpec
from bridle.values.settings import Settings
from bridle.values.usage import Usage

MISS_OUTCOMES: tuple[CacheOutcome, ...] = ("prefix", "ttl", "lookback", "provider")
CACHE_OUTCOMES: dict[CacheOutcome, str] = {
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

    index: int
    at: float
    model: str
    tenant: str
    prompt_tokens: int
    expected_tokens: int
    read_tokens: int
    written_tokens: int
    outcome: CacheOutcome
    why: str = ""
    missed_tokens: int = 0
    usd: Decimal | None = Decimal(0)
    """What the miss cost; None when no price is known."""
    agent: str = ""


class CacheSum(Value):
    calls: int
    expected_tokens: int
    read_tokens: int
    """Of what was expected; what was read beyond it is luck and counts for nothing."""
    missed_tokens: int
    usd: Decimal | None
    outcomes: Mapping[str, int]

    @property
    def hit_rate(self) -> float | None:
        """None when nothing could have been read."""
        return self.read_tokens / self.expected_tokens if self.expected_tokens else None


class SentCall(Value):
    """A call as it was made."""

    at: float
    message_count: int
    ttl_seconds: float
    tool_choice: ToolChoice
    stored_prompt_tokens: int = 0
    """What of it stood there under a name."""
    usage: Usage = Usage()


class CacheHistory(Value):
    """What a session remembers of its cache."""

    call_count: int = 0
    in_flight: SentCall | None = None
    """The call that is on its way."""
    previous: SentCall | None = None
    """The last one that was answered."""
    prefix_change: PrefixMoved | None = None
    """What was found to have moved since then."""
    recent: tuple[CacheCall, ...] = ()
    """The newest that could have read something, and the very newest."""
    older_expected_tokens: int = 0
    older_read_tokens: int = 0
    """Of all calls that are no longer among the recent ones."""
    degraded: bool = False
    """It was said that the cache gives too little, and it has not been well since."""


def sum_cache_calls(calls: Sequence[CacheCall]) -> CacheSum:
    known = [call.usd for call in calls if call.usd is not None]
    return CacheSum(
        calls=len(calls),
        expected_tokens=sum([call.expected_tokens for call in calls]),
        read_tokens=sum(
            [
                call.read_tokens if call.read_tokens < call.expected_tokens else call.expected_tokens
                for call in calls
            ]
        ),
        missed_tokens=sum([call.missed_tokens for call in calls]),
        usd=sum(known, Decimal(0)) if len(known) == len(calls) else None,
        outcomes=Counter([call.outcome for call in calls]),
    )


# What the latest request had in front: references only, for the guard of the prefix (prefix.py).


class RequestSnapshot(Value):
    """What the latest request had in front, to be compared with the next one."""

    settings: Settings
    tools: tuple[ToolSpec, ...]
    revealed_tools: tuple[str, ...]
    view: tuple[Message, ...]
    cache_key: str
    memory: str
    view_change_count: int
    """How many changes of the view there were."""
    tool_choice: ToolChoice = ToolChoice()


# Values of the provider's conversation object in the state of a session; the rules are beside it.


class ServerConversation(Value):
    """A conversation object as far as the log tells what is in it."""

    model_key: str
    name: str = ""
    """Empty when none could be made: it is not tried again before the next prompt."""
    reply_id: str = ""
    """The newest reply in it; empty while nothing is in it."""
    in_flight: bool = False
    """A request was sent to it and what came of that is not known yet."""
    unusable_reason: str = ""
    """Why what it holds is no longer known, or no longer what is sent."""
