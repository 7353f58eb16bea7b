"""Why a call read less from the cache than it could have: the verdict on each, as it is answered.

Expected is what the call before it had sent, rounded down where a provider keeps prompts in steps, and no
more than was sent now: of a conversation that was made shorter nobody can miss what is no longer in it.
What was missed is priced: the difference between what those tokens cost and what they would have cost
from the cache.

Causes are looked for in the order of how certain they are.  What the log itself says (the prefix moved)
comes first, what the provider says next, then what follows from times and counts; what nothing here
explains was the provider's doing.  Calls whose counts nobody reported are said to be that, and count for
nothing.

Everything is told from what the log has: a replay comes to the same verdicts.
"""

from decimal import Decimal

from msgspec.structs import replace

from ..values import event as e
from ..values.cached import PrefixMoved, PromptKept, Verdict
from ..values.message import Reply
from ..values.model import Model
from ..values.usage import MILLION, Usage
from .alarms import recovered
from .hits import MISSES, CacheCall, Hits, Sent
from .marking import LOOKBACK_BLOCKS, WRITES_BILLED, kept_seconds
from .naming import agent_name
from .state import State

SLACK_TOKENS, SLACK_PARTS = 128, 20
"""A miss is more than both: the last few tokens of a prompt are never kept, and counts are rounded."""
PART = e.PrefixMoved(
    layer="history",
    block="a message in it",
    cause="compacted",
    why="only the first turns were to be summarised",
)
RECENT_MAX = 20
"""How many calls an alarm may look at."""
Cause = tuple[Verdict, str]


def sent(state: State, event: e.ModelAsked, at: float) -> Hits:
    """The question is on its way."""
    out = Sent(
        at=at,
        messages=len(state.view),
        kept_seconds=kept_seconds(state.settings, state.view, event.marks),
        choice=event.tool_choice,
        named_tokens=state.named.tokens if event.kept_as and isinstance(state.named, PromptKept) else 0,
    )
    return replace(state.hits, out=out)


def answered_aside(state: State, reply: Reply, *, elsewhere: bool) -> Hits:
    """The same of a summary, which is asked for beside the conversation: that goes on from where it was."""
    hits = state.hits
    part = hits.before is not None and reply.usage.prompt < hits.before.usage.prompt
    moved = hits.moved or (PART if part else None)
    beside = replace(hits, before=None if elsewhere else hits.before, moved=moved)
    after = answered(replace(state, hits=beside), reply)
    return replace(after, before=hits.before, moved=hits.moved)


def answered(state: State, reply: Reply) -> Hits:
    """The verdict is in; `state` is as it was when the answer came."""
    hits = state.hits
    if hits.out is None:
        return hits
    number = hits.number + 1
    call = _judged(number, state, hits, hits.out, reply)
    recent, gone = _latest((*hits.recent, call))
    return Hits(
        number=number,
        before=replace(hits.out, usage=reply.usage),
        recent=recent,
        expected=hits.expected + sum(old.expected for old in gone),
        read=hits.read + sum(min(old.read, old.expected) for old in gone),
        degraded=hits.degraded and not recovered(recent),
    )


def _latest(calls: tuple[CacheCall, ...]) -> tuple[tuple[CacheCall, ...], tuple[CacheCall, ...]]:
    """What is remembered and what is only summed up; a verdict that counts for nothing is kept once."""
    *old, newest = calls
    counted = [call for call in old if call.expected]
    extra = max(0, len(counted) + 1 - RECENT_MAX)
    return (*counted[extra:], newest), tuple(counted[:extra])


def _judged(number: int, state: State, hits: Hits, out: Sent, reply: Reply) -> CacheCall:
    model, usage = state.settings.model, reply.usage
    verdict, why, expected = _verdict(state, hits, out, reply)
    missed = max(0, expected - usage.cache_read) if verdict in MISSES else 0
    return CacheCall(
        number=number,
        at=out.at,
        model=model.name,
        tenant=state.run.tenant,
        agent=agent_name(state.settings),
        prompt=usage.prompt,
        expected=expected,
        read=usage.cache_read,
        written=usage.cache_write,
        verdict=verdict,
        why=why,
        missed=missed,
        usd=_lost(model, usage, missed),
    )


def _verdict(state: State, hits: Hits, out: Sent, reply: Reply) -> tuple[Verdict, str, int]:
    abilities, before, usage = state.settings.model.abilities, hits.before, reply.usage
    if not abilities.cache and not usage.cache_read:
        return "unreported", "whether this model keeps prompts is not known", 0
    if usage.incomplete or not usage.prompt:
        return "unreported", "", 0
    if out.named_tokens:
        return _of_named(out.named_tokens, usage)
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
    if expected - usage.cache_read <= max(SLACK_TOKENS, expected // SLACK_PARTS):
        return "hit", "", expected
    return *_cause(state, before, out, reply, hits.moved), expected


def _of_named(tokens: int, usage: Usage) -> tuple[Verdict, str, int]:
    """What is kept by name is there, whatever the call before it was."""
    if tokens - usage.cache_read <= max(SLACK_TOKENS, tokens // SLACK_PARTS):
        return "hit", "", tokens
    return "provider", "it was kept by name", tokens


def _cause(state: State, before: Sent, out: Sent, reply: Reply, moved: PrefixMoved | None) -> Cause:
    abilities, usage = state.settings.model.abilities, reply.usage
    if moved is not None:
        return "prefix", f"{moved.layer}, from {moved.block} on: {moved.why}"
    if reply.missed:
        return "prefix", f"the provider says {reply.missed}"
    pause = out.at - before.at
    if pause > before.kept_seconds:
        return "ttl", f"{pause:,.0f} s since the call before; kept for {before.kept_seconds:,.0f} s"
    if out.choice != before.choice:
        return "prefix", f"settings: the tool choice is {out.choice.mode} and was {before.choice.mode}"
    new = sum(len(message.parts) for message in state.view[before.messages : out.messages])
    # Something further in front was found, so it is not that everything was forgotten.
    if abilities.cache == "marks" and new >= LOOKBACK_BLOCKS and usage.cache_read:
        return "lookback", f"{new} blocks since the call before"
    return "provider", ""


def _lost(model: Model, usage: Usage, missed: int) -> Decimal | None:
    if not missed:
        return Decimal(0)
    rates = model.price.rates(usage.prompt) if model.price is not None else None
    if rates is None:
        return None
    written = rates.cache_write_1h if usage.cache_write_1h else rates.cache_write
    paid = written if model.abilities.cache in WRITES_BILLED and usage.cache_write else rates.input
    return None if paid is None else missed * (paid - rates.cache_read) / MILLION
