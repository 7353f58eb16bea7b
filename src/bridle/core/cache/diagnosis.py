"""When a cache has stopped working: rules as data, and one alarm an episode.

A single miss is nothing: a person paused, a model was switched, a machine was replaced.  A cache that
gives little call after call is money lost at every step, and nobody sees it in the answers.  Each rule
looks at so many of the latest calls that could have read something; the first that holds rings.  Then
there is silence until the cache is well again.
"""

from decimal import Decimal

from msgspec.structs import replace

from bridle.core.state import State
from bridle.values import events as e
from bridle.values.base import Value
from bridle.values.cache import CacheDegraded, CacheOutcome, PrefixMoved, PromptStored
from bridle.values.message import Reply
from bridle.values.model import Model
from bridle.values.usage import MILLION, Usage

from .breakpoints import LOOKBACK_BLOCKS, WRITES_BILLED, agent_name, ttl_seconds
from .tracking import MISS_OUTCOMES, CacheCall, CacheHistory, SentCall, sum_cache_calls


class CacheAlarm(Value):
    name: str
    call_count: int
    """How many of the latest calls it looks at."""
    rate_below: float
    missed_tokens_min: int
    """Less than this is not worth a word."""


CACHE_ALARMS = (
    CacheAlarm(name="lost", call_count=3, rate_below=0.5, missed_tokens_min=3_000),
    CacheAlarm(name="worn", call_count=10, rate_below=0.8, missed_tokens_min=10_000),
)
"""In this order.  `lost`: what is sent is not found at all.  `worn`: every now and then it is not."""
RECOVERED_CALLS, RECOVERED_RATE = 3, 0.9
"""An episode is over when this many calls in a row read that much."""


def find_cache_alarm(state: State) -> CacheDegraded | None:
    """What is to be told of the cache now; None when it is well, or when it was told already."""
    hits = state.cache
    counted = [call for call in hits.recent if call.expected_tokens]
    if hits.degraded or not counted or counted[-1] is not hits.recent[-1]:
        return None
    for rule in CACHE_ALARMS:
        latest = counted[-rule.call_count :]
        missed = sum([call.missed_tokens for call in latest])
        if len(latest) < rule.call_count or missed < rule.missed_tokens_min:
            continue
        rate = sum_cache_calls(latest).hit_rate
        if rate is not None and rate < rule.rate_below:
            return _make_cache_degraded(
                rule, latest, rate, _earlier_hit_rate(state, counted[: -rule.call_count])
            )
    return None


def apply_cache_degraded(state: State, event: CacheDegraded, at: float, proof: str) -> State:
    return replace(state, cache=replace(state.cache, degraded=True))


def has_recovered(calls: tuple[CacheCall, ...]) -> bool:
    latest = [call for call in calls if call.expected_tokens][-RECOVERED_CALLS:]
    rate = sum_cache_calls(latest).hit_rate
    return len(latest) == RECOVERED_CALLS and rate is not None and rate >= RECOVERED_RATE


def _earlier_hit_rate(state: State, earlier: list[CacheCall]) -> float | None:
    seen = sum_cache_calls(earlier)
    expected, read = (
        state.cache.older_expected_tokens + seen.expected_tokens,
        state.cache.older_read_tokens + seen.read_tokens,
    )
    return read / expected if expected else None


def _make_cache_degraded(
    rule: CacheAlarm, latest: list[CacheCall], rate: float, before: float | None
) -> CacheDegraded:
    weights: dict[str, int] = {}
    for call in latest:
        weights[call.outcome] = weights.get(call.outcome, 0) + call.missed_tokens
    likely = max(weights, key=lambda verdict: weights[verdict])
    newest = [call for call in latest if call.outcome == likely][-1]
    told = sum_cache_calls(latest)
    usd: Decimal | None = told.usd
    return CacheDegraded(
        rule=rule.name,
        rate=round(rate, 4),
        rate_before=None if before is None else round(before, 4),
        calls=len(latest),
        outcome=newest.outcome,
        why=newest.why,
        missed_tokens=told.missed_tokens,
        usd=usd,
    )


# Why a call read less from the cache than it could have: the verdict on each, as it is answered.
#
# Expected is what the call before it had sent, rounded down where a provider keeps prompts in steps, and no
# more than was sent now: of a conversation that was made shorter nobody can miss what is no longer in it.
# What was missed is priced: the difference between what those tokens cost and what they would have cost
# from the cache.
#
# Causes are looked for in the order of how certain they are.  What the log itself says (the prefix moved)
# comes first, what the provider says next, then what follows from times and counts; what nothing here
# explains was the provider's doing.  Calls whose counts nobody reported are said to be that, and count for
# nothing.
#
# Everything is told from what the log has: a replay comes to the same verdicts.


TOLERANCE_TOKENS, TOLERANCE_DIVISOR = 128, 20
"""A miss is more than both: the last few tokens of a prompt are never kept, and counts are rounded."""
PARTIAL_SUMMARY_MOVE = e.PrefixMoved(
    layer="history",
    block="a message in it",
    cause="compacted",
    why="only the first turns were to be summarised",
)
RECENT_CALLS_MAX = 20
"""How many calls an alarm may look at."""
MissCause = tuple[CacheOutcome, str]


def record_call_sent(state: State, event: e.ModelAsked, at: float) -> CacheHistory:
    """The question is on its way."""
    out = SentCall(
        at=at,
        message_count=len(state.view),
        ttl_seconds=ttl_seconds(state.settings, state.view, event.breakpoints),
        tool_choice=event.tool_choice,
        stored_prompt_tokens=state.stored_prompt.tokens
        if event.stored_prompt and isinstance(state.stored_prompt, PromptStored)
        else 0,
    )
    return replace(state.cache, in_flight=out)


def record_summary_answered(state: State, reply: Reply, *, elsewhere: bool) -> CacheHistory:
    """The same of a summary, which is asked for beside the conversation: that goes on from where it was."""
    hits = state.cache
    part = hits.previous is not None and reply.usage.prompt < hits.previous.usage.prompt
    moved = hits.prefix_change or (PARTIAL_SUMMARY_MOVE if part else None)
    beside = replace(hits, previous=None if elsewhere else hits.previous, prefix_change=moved)
    after = record_call_answered(replace(state, cache=beside), reply)
    return replace(after, previous=hits.previous, prefix_change=hits.prefix_change)


def record_call_answered(state: State, reply: Reply) -> CacheHistory:
    """The verdict is in; `state` is as it was when the answer came."""
    hits = state.cache
    if hits.in_flight is None:
        return hits
    number = hits.call_count + 1
    call = _diagnose_call(number, state, hits, hits.in_flight, reply)
    recent, gone = _split_recent((*hits.recent, call))
    return CacheHistory(
        call_count=number,
        previous=replace(hits.in_flight, usage=reply.usage),
        recent=recent,
        older_expected_tokens=hits.older_expected_tokens + sum(old.expected_tokens for old in gone),
        older_read_tokens=hits.older_read_tokens
        + sum(min(old.read_tokens, old.expected_tokens) for old in gone),
        degraded=hits.degraded and not has_recovered(recent),
    )


def _split_recent(calls: tuple[CacheCall, ...]) -> tuple[tuple[CacheCall, ...], tuple[CacheCall, ...]]:
    """What is remembered and what is only summed up; a verdict that counts for nothing is kept once."""
    *old, newest = calls
    counted = [call for call in old if call.expected_tokens]
    extra = max(0, len(counted) + 1 - RECENT_CALLS_MAX)
    return (*counted[extra:], newest), tuple(counted[:extra])


def _diagnose_call(number: int, state: State, hits: CacheHistory, out: SentCall, reply: Reply) -> CacheCall:
    model, usage = state.settings.model, reply.usage
    verdict, why, expected = _decide_outcome(state, hits, out, reply)
    missed = max(0, expected - usage.cache_read) if verdict in MISS_OUTCOMES else 0
    return CacheCall(
        index=number,
        at=out.at,
        model=model.name,
        tenant=state.run.tenant,
        agent=agent_name(state.settings),
        prompt_tokens=usage.prompt,
        expected_tokens=expected,
        read_tokens=usage.cache_read,
        written_tokens=usage.cache_write,
        outcome=verdict,
        why=why,
        missed_tokens=missed,
        usd=_price_miss(model, usage, missed),
    )


def _decide_outcome(
    state: State, hits: CacheHistory, out: SentCall, reply: Reply
) -> tuple[CacheOutcome, str, int]:
    abilities, before, usage = state.settings.model.abilities, hits.previous, reply.usage
    if not abilities.cache and not usage.cache_read:
        return "unreported", "whether this model keeps prompts is not known", 0
    if usage.incomplete or not usage.prompt:
        return "unreported", "", 0
    if out.stored_prompt_tokens:
        return _diagnose_stored_prompt(out.stored_prompt_tokens, usage)
    if before is None:
        return "cold", "", 0
    if before.usage.incomplete or not before.usage.prompt:
        return "unreported", "the call before it was not counted", 0
    least = abilities.cache_minimum_tokens
    # What was read shows that the minimum is lower than the table says.
    if before.usage.prompt < least and not usage.cache_read:
        return "minimum", f"{before.usage.prompt:,} of at least {least:,} tokens", 0
    step = abilities.cache_step_tokens or 1
    expected = min(before.usage.prompt, usage.prompt) // step * step
    if expected - usage.cache_read <= max(TOLERANCE_TOKENS, expected // TOLERANCE_DIVISOR):
        return "hit", "", expected
    return *_find_miss_cause(state, before, out, reply, hits.prefix_change), expected


def _diagnose_stored_prompt(tokens: int, usage: Usage) -> tuple[CacheOutcome, str, int]:
    """What is kept by name is there, whatever the call before it was."""
    if tokens - usage.cache_read <= max(TOLERANCE_TOKENS, tokens // TOLERANCE_DIVISOR):
        return "hit", "", tokens
    return "provider", "it was kept by name", tokens


def _find_miss_cause(
    state: State, before: SentCall, out: SentCall, reply: Reply, moved: PrefixMoved | None
) -> MissCause:
    abilities, usage = state.settings.model.abilities, reply.usage
    if moved is not None:
        return "prefix", f"{moved.layer}, from {moved.block} on: {moved.why}"
    if reply.cache_miss_reason:
        return "prefix", f"the provider says {reply.cache_miss_reason}"
    pause = out.at - before.at
    if pause > before.ttl_seconds:
        return "ttl", f"{pause:,.0f} s since the call before; kept for {before.ttl_seconds:,.0f} s"
    if out.tool_choice != before.tool_choice:
        return (
            "prefix",
            f"settings: the tool choice is {out.tool_choice.mode} and was {before.tool_choice.mode}",
        )
    new = sum(len(message.parts) for message in state.view[before.message_count : out.message_count])
    # Something further in front was found, so it is not that everything was forgotten.
    if abilities.cache == "marks" and new >= LOOKBACK_BLOCKS and usage.cache_read:
        return "lookback", f"{new} blocks since the call before"
    return "provider", ""


def _price_miss(model: Model, usage: Usage, missed: int) -> Decimal | None:
    if not missed:
        return Decimal(0)
    rates = model.price.rates(usage.prompt) if model.price is not None else None
    if rates is None:
        return None
    written = rates.cache_write_1h if usage.cache_write_1h else rates.cache_write
    paid = written if model.abilities.cache in WRITES_BILLED and usage.cache_write else rates.input
    return None if paid is None else missed * (paid - rates.cache_read) / MILLION
