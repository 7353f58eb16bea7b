"""Diagnoses cache misses, and raises an alarm when a cache stops working.

For each call, the expected tokens are those that the previous call sent, rounded down to the provider's cache
steps and limited to the current prompt. The miss is priced: the difference between the actual cost of those
tokens and their cost from the cache.

Causes are tried in order of certainty: a prefix change recorded in the log, the provider's explanation, then
times and counts; a miss without any of these is attributed to the provider. Calls without reported counts do
not count. Everything is derived from the log, so that a replay reaches the same result.

A single miss is normal: a pause, a model switch, a replaced machine. A low hit rate over many calls costs
money at every step and is invisible in the answers. Each alarm considers a number of the latest calls that
could have hit the cache; the first one that applies is reported, once until the cache recovers.
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


class CacheAlarm(Value, kw_only=True):
    name: str
    call_count: int
    """Number of latest calls considered."""
    rate_below: float
    missed_tokens_min: int
    """Smaller losses are not reported."""


CACHE_ALARMS = (
    CacheAlarm(name="lost", call_count=3, rate_below=0.5, missed_tokens_min=3_000),
    CacheAlarm(name="worn", call_count=10, rate_below=0.8, missed_tokens_min=10_000),
)
"""Tried in this order. `lost`: the prompt is never found. `worn`: it is sometimes not found."""
RECOVERED_CALLS, RECOVERED_RATE = 3, 0.9
"""Calls and hit rate after which the cache counts as recovered."""


def find_cache_alarm(history: CacheHistory) -> CacheDegraded | None:
    """Alarm to report now; None if the cache works, or if it was already reported."""
    recent = history.recent
    if history.degraded or not recent or not recent[-1].expected_tokens:
        return None
    for call in recent:
        if call.missed_tokens:
            break
    else:
        return None  # nothing was missed, as in most sessions
    eligible = [call for call in recent if call.expected_tokens]
    for rule in CACHE_ALARMS:
        latest = eligible[-rule.call_count :]
        missed = sum([call.missed_tokens for call in latest])
        if len(latest) < rule.call_count or missed < rule.missed_tokens_min:
            continue
        rate = sum_cache_calls(latest).hit_rate
        if rate is not None and rate < rule.rate_below:
            return _make_cache_degraded(
                rule, latest, rate, _earlier_hit_rate(history, eligible[: -rule.call_count])
            )
    return None


def apply_cache_degraded(state: State, event: CacheDegraded, at: float, proof: str) -> State:
    history = replace(state.cache.history, degraded=True, alarm=None)
    return replace(state, cache=replace(state.cache, history=history))


def has_recovered(calls: tuple[CacheCall, ...]) -> bool:
    latest = [call for call in calls if call.expected_tokens][-RECOVERED_CALLS:]
    rate = sum_cache_calls(latest).hit_rate
    return len(latest) == RECOVERED_CALLS and rate is not None and rate >= RECOVERED_RATE


def _earlier_hit_rate(history: CacheHistory, earlier: list[CacheCall]) -> float | None:
    seen = sum_cache_calls(earlier)
    expected, read = (
        history.older_expected_tokens + seen.expected_tokens,
        history.older_read_tokens + seen.read_tokens,
    )
    return read / expected if expected else None


def _make_cache_degraded(
    rule: CacheAlarm, latest: list[CacheCall], rate: float, before: float | None
) -> CacheDegraded:
    weights: dict[str, int] = {}
    for call in latest:
        weights[call.outcome] = weights.get(call.outcome, 0) + call.missed_tokens
    main_outcome = max(weights, key=lambda outcome: weights[outcome])
    newest = [call for call in latest if call.outcome == main_outcome][-1]
    totals = sum_cache_calls(latest)
    usd: Decimal | None = totals.usd
    return CacheDegraded(
        rule=rule.name,
        rate=round(rate, 4),
        rate_before=None if before is None else round(before, 4),
        calls=len(latest),
        outcome=newest.outcome,
        why=newest.why,
        missed_tokens=totals.missed_tokens,
        usd=usd,
    )


TOLERANCE_TOKENS, TOLERANCE_DIVISOR = 128, 20
"""Larger differences are a miss; the last tokens of a prompt are never cached, and counts are rounded."""
PARTIAL_SUMMARY_MOVE = e.PrefixMoved(
    layer="history", block="a message in it", cause="compacted", why="only the first turns are summarized"
)
RECENT_CALLS_MAX = 20
"""Maximum number of calls that an alarm may consider."""
MissCause = tuple[CacheOutcome, str]
NO_COST = Decimal(0)


def record_call_sent(state: State, event: e.ModelAsked, at: float) -> CacheHistory:
    """Cache history after a request was sent."""
    sent = SentCall(
        at=at,
        message_count=len(state.conversation.view),
        ttl_seconds=ttl_seconds(state.settings, state.conversation.view, event.breakpoints),
        tool_choice=event.tool_choice,
        stored_prompt_tokens=state.cache.stored_prompt.tokens
        if event.stored_prompt and isinstance(state.cache.stored_prompt, PromptStored)
        else 0,
    )
    return replace(state.cache.history, in_flight=sent)


def record_summary_answered(state: State, reply: Reply, *, elsewhere: bool) -> CacheHistory:
    """Cache history after a summary, which is requested beside the conversation and does not advance it."""
    history = state.cache.history
    is_partial = history.previous is not None and reply.usage.prompt < history.previous.usage.prompt
    moved = history.prefix_change or (PARTIAL_SUMMARY_MOVE if is_partial else None)
    side_history = replace(history, previous=None if elsewhere else history.previous, prefix_change=moved)
    after = record_call_answered(replace(state, cache=replace(state.cache, history=side_history)), reply)
    return replace(after, previous=history.previous, prefix_change=history.prefix_change)


def record_call_answered(state: State, reply: Reply) -> CacheHistory:
    """Cache history after a reply; `state` is the state before it."""
    history = state.cache.history
    if history.in_flight is None:
        return history
    number = history.call_count + 1
    call = _diagnose_call(number, state, history, history.in_flight, reply)
    recent = history.recent
    older_expected, older_read = history.older_expected_tokens, history.older_read_tokens
    if recent and not recent[-1].expected_tokens:
        recent = recent[:-1]  # a call without expectation is kept only while it is the newest
    while len(recent) >= RECENT_CALLS_MAX:  # older ones are only summed
        older_expected += recent[0].expected_tokens
        older_read += min(recent[0].read_tokens, recent[0].expected_tokens)
        recent = recent[1:]
    recent = (*recent, call)
    after = CacheHistory(
        call_count=number,
        previous=replace(history.in_flight, usage=reply.usage),
        recent=recent,
        older_expected_tokens=older_expected,
        older_read_tokens=older_read,
        degraded=history.degraded and not has_recovered(recent),
    )
    alarm = find_cache_alarm(after)
    return after if alarm is None else replace(after, alarm=alarm)


def _diagnose_call(
    number: int, state: State, history: CacheHistory, sent: SentCall, reply: Reply
) -> CacheCall:
    model, usage = state.settings.model, reply.usage
    outcome, why, expected = _decide_outcome(state, history, sent, reply)
    missed = max(0, expected - usage.cache_read) if outcome in MISS_OUTCOMES else 0
    return CacheCall(
        index=number,
        at=sent.at,
        model=model.name,
        tenant=state.run.origin.tenant,
        agent=agent_name(state.settings),
        prompt_tokens=usage.prompt,
        expected_tokens=expected,
        read_tokens=usage.cache_read,
        written_tokens=usage.cache_write,
        outcome=outcome,
        why=why,
        missed_tokens=missed,
        usd=_price_miss(model, usage, missed, sent.at) if missed else NO_COST,
    )


def _decide_outcome(
    state: State, history: CacheHistory, sent: SentCall, reply: Reply
) -> tuple[CacheOutcome, str, int]:
    abilities, before, usage = state.settings.model.abilities, history.previous, reply.usage
    if not abilities.cache and not usage.cache_read:
        return "unreported", "it is unknown whether this model caches prompts", 0
    prompt = usage.prompt
    if usage.incomplete or not prompt:
        return "unreported", "", 0
    if sent.stored_prompt_tokens:
        return _diagnose_stored_prompt(sent.stored_prompt_tokens, usage)
    if before is None:
        return "cold", "", 0
    sent_before = before.usage.prompt
    if before.usage.incomplete or not sent_before:
        return "unreported", "the previous call reported no usage", 0
    minimum = abilities.cache_minimum_tokens
    # A cache hit shows that the actual minimum is lower than the table's.
    if sent_before < minimum and not usage.cache_read:
        return "minimum", f"{sent_before:,} of at least {minimum:,} tokens", 0
    step = abilities.cache_step_tokens or 1
    expected = min(sent_before, prompt) // step * step
    if expected - usage.cache_read <= max(TOLERANCE_TOKENS, expected // TOLERANCE_DIVISOR):
        return "hit", "", expected
    return *_find_miss_cause(state, before, sent, reply, history.prefix_change), expected


def _diagnose_stored_prompt(tokens: int, usage: Usage) -> tuple[CacheOutcome, str, int]:
    """Outcome for a prompt stored by name, which does not depend on the previous call."""
    if tokens - usage.cache_read <= max(TOLERANCE_TOKENS, tokens // TOLERANCE_DIVISOR):
        return "hit", "", tokens
    return "provider", "it was stored by name", tokens


def _find_miss_cause(
    state: State, before: SentCall, sent: SentCall, reply: Reply, moved: PrefixMoved | None
) -> MissCause:
    abilities, usage = state.settings.model.abilities, reply.usage
    if moved is not None:
        return "prefix", f"{moved.layer}, from {moved.block} on: {moved.why}"
    if reply.cache_miss_reason:
        return "prefix", f"the provider says {reply.cache_miss_reason}"
    pause = sent.at - before.at
    if pause > before.ttl_seconds:
        return "ttl", f"{pause:,.0f} s since the previous call; cached for {before.ttl_seconds:,.0f} s"
    if sent.tool_choice != before.tool_choice:
        return (
            "prefix",
            f"settings: the tool choice is {sent.tool_choice.mode} and was {before.tool_choice.mode}",
        )
    new = sum(
        len(message.parts) for message in state.conversation.view[before.message_count : sent.message_count]
    )
    # An earlier breakpoint was found, so the provider did not lose everything.
    if abilities.cache == "marks" and new >= LOOKBACK_BLOCKS and usage.cache_read:
        return "lookback", f"{new} blocks since the previous call"
    return "provider", ""


def _price_miss(model: Model, usage: Usage, missed: int, at: float) -> Decimal | None:
    rates = model.price.rates(usage.prompt, at) if model.price is not None else None
    if rates is None:
        return None
    write_rate = rates.cache_write_1h if usage.cache_write_1h else rates.cache_write
    paid_rate = write_rate if model.abilities.cache in WRITES_BILLED and usage.cache_write else rates.input
    return None if paid_rate is None else missed * (paid_rate - rates.cache_read) / MILLION
