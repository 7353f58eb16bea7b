"""Cache statistics per call and per session, and the state that the cache rules need.

A call could have read from the cache what the previous call sent: the expected tokens. Those not read are
missed, for one cause (diagnosis.py) and at a price. `CacheHistory` is a session's record: the call in flight,
the previous one, and the latest outcomes, from which alarms are raised.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal

from bridle.values.base import Value
from bridle.values.cache import CacheDegraded, CacheOutcome, PrefixMoved
from bridle.values.message import Message
from bridle.values.request import ToolChoice, ToolSpec
from bridle.values.settings import Settings
from bridle.values.usage import Usage

MISS_OUTCOMES: tuple[CacheOutcome, ...] = ("prefix", "ttl", "lookback", "provider")
CACHE_OUTCOMES: dict[CacheOutcome, str] = {
    "cold": "first call of a session: nothing is cached yet",
    "hit": "the expected tokens were read from the cache",
    "prefix": "the beginning of the prompt changed",
    "ttl": "the cached prompt had expired",
    "lookback": "more blocks were added than a breakpoint's lookback covers",
    "minimum": "the previous prompt was too short to be cached",
    "provider": "not explained: the provider evicted it, or routed the call to another machine",
    "unreported": "the provider did not report cache reads",
}


class CacheCall(Value, kw_only=True):
    """One model call and its cache outcome."""

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
    """Extra cost of the miss; None if no price is known."""
    agent: str = ""


class CacheSum(Value, kw_only=True):
    calls: int
    expected_tokens: int
    read_tokens: int
    """Expected tokens that were read; tokens read beyond the expectation do not count."""
    missed_tokens: int
    usd: Decimal | None
    outcomes: Mapping[str, int]

    @property
    def hit_rate(self) -> float | None:
        """Share of the expected tokens that were read; None if nothing was expected."""
        return self.read_tokens / self.expected_tokens if self.expected_tokens else None


class SentCall(Value, kw_only=True):
    """A call as it was sent."""

    at: float
    message_count: int
    ttl_seconds: float
    tool_choice: ToolChoice
    stored_prompt_tokens: int = 0
    """Tokens of the prompt that were stored by name."""
    usage: Usage = Usage()


class CacheHistory(Value, kw_only=True):
    """A session's cache statistics."""

    call_count: int = 0
    in_flight: SentCall | None = None
    """The call in flight."""
    previous: SentCall | None = None
    """The last answered call."""
    prefix_change: PrefixMoved | None = None
    """Prefix change found since then."""
    recent: tuple[CacheCall, ...] = ()
    """The newest calls with expected tokens, and the newest call."""
    older_expected_tokens: int = 0
    older_read_tokens: int = 0
    """Totals of all calls that are no longer in `recent`."""
    degraded: bool = False
    """True after an alarm, until the cache recovers."""
    alarm: CacheDegraded | None = None
    """Alarm to record now."""


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


class RequestSnapshot(Value, kw_only=True):
    """Prefix of the latest request, for comparison with the next one; references only."""

    settings: Settings
    tools: tuple[ToolSpec, ...]
    revealed_tools: tuple[str, ...]
    view: tuple[Message, ...]
    cache_key: str
    memory: str
    view_change_count: int
    """Number of view changes at that time."""
    tool_choice: ToolChoice = ToolChoice()
    written: str = ""
    """Instructions that functions wrote."""


class ServerConversation(Value, kw_only=True):
    """A conversation object, as far as the log proves its content."""

    model_key: str
    name: str = ""
    """Empty if none could be created; not tried again before the next prompt."""
    reply_id: str = ""
    """Newest reply in it; empty while it has none."""
    in_flight: bool = False
    """A request was sent to it, with an outcome not known yet."""
    unusable_reason: str = ""
    """Reason why its content is unknown or differs from what is sent."""
