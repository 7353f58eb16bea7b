"""What the prompt cache should have given at every call, what it gave, and why that was less.

A pure reading of the log.  A call could have read whatever the call before it had sent: that is expected,
rounded down where a provider keeps prompts in steps.  What of it was not read is missed, has one cause
and a price: the difference between what those tokens cost and what they would have cost from the cache.

Causes are looked for in the order of how certain they are.  What the log itself says (the prefix moved)
comes first, what follows from its times and counts next; what nothing here explains was the provider's
doing.  Calls whose counts nobody reported are said to be that, and count for nothing.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Literal

from msgspec.structs import replace

from ..values import event as e
from ..values.model import Abilities, Model
from ..values.record import Record
from ..values.request import ToolChoice
from ..values.usage import MILLION, Usage
from ..values.value import Value
from .loop import apply
from .marking import LONG_SECONDS, LOOKBACK_BLOCKS, SHORT_SECONDS, lifetime
from .state import State
from .summary import asked_now_by

Verdict = Literal["cold", "hit", "prefix", "ttl", "lookback", "minimum", "provider", "unreported"]
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
SLACK_TOKENS, SLACK_PARTS = 128, 20
"""A miss is more than both: the last few tokens of a prompt are never kept, and counts are rounded."""
KEPT_SECONDS = {"5m": SHORT_SECONDS, "1h": LONG_SECONDS}
WRITES_BILLED = ("marks", "points")


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


class _Sent(Value):
    """A call as it was made."""

    at: float
    seat: str
    blocks: int
    kept_seconds: float
    choice: ToolChoice
    usage: Usage = Usage()


def examined(records: Iterable[Record]) -> tuple[CacheCall, ...]:
    """Every call that was answered, in order."""
    state = asked = State()
    before: _Sent | None = None
    sent: _Sent | None = None
    moved: e.PrefixMoved | None = None
    calls: list[CacheCall] = []
    for record in records:
        event = record.event
        if isinstance(event, e.PrefixMoved):
            moved = event
        elif isinstance(event, e.ModelAsked):
            asked = asked_now_by(state, event.seat)
            sent = _sent(asked, record.at, event.tool_choice)
        elif isinstance(event, e.ModelReplied) and sent is not None:
            usage, aside = event.reply.usage, bool(event.summary_of)
            known = before if not aside or before is None or before.seat == sent.seat else None
            calls.append(_judged(len(calls) + 1, asked, known, sent, usage, None if aside else moved))
            if not aside:  # a summary is asked for beside the conversation, which goes on from where it was
                before, moved = replace(sent, usage=usage), None
        state = apply(state, event, record.at, record.hash)
    return tuple(calls)


def summed(calls: Sequence[CacheCall]) -> CacheSum:
    known = [call.usd for call in calls if call.usd is not None]
    return CacheSum(
        calls=len(calls),
        expected=sum(call.expected for call in calls),
        read=sum(min(call.read, call.expected) for call in calls),
        missed=sum(call.missed for call in calls),
        usd=sum(known, Decimal(0)) if len(known) == len(calls) else None,
        verdicts=Counter(call.verdict for call in calls),
    )


def _sent(state: State, at: float, choice: ToolChoice) -> _Sent:
    abilities = state.settings.model.abilities
    by_mark = KEPT_SECONDS[lifetime(state.settings, state.view)]
    return _Sent(
        at=at,
        seat=state.settings.model.seat,
        blocks=sum(len(message.parts) for message in state.view),
        kept_seconds=by_mark if abilities.cache == "marks" else abilities.cache_seconds,
        choice=choice,
    )


def _judged(
    number: int, state: State, before: _Sent | None, sent: _Sent, usage: Usage, moved: e.PrefixMoved | None
) -> CacheCall:
    model = state.settings.model
    verdict, why, expected = _verdict(model.abilities, before, sent, usage, moved)
    missed = max(0, expected - usage.cache_read) if verdict in MISSES else 0
    return CacheCall(
        number=number,
        at=sent.at,
        model=model.name,
        tenant=state.run.tenant,
        prompt=usage.prompt,
        expected=expected,
        read=usage.cache_read,
        written=usage.cache_write,
        verdict=verdict,
        why=why,
        missed=missed,
        usd=_lost(model, usage, missed),
    )


def _verdict(
    abilities: Abilities, before: _Sent | None, sent: _Sent, usage: Usage, moved: e.PrefixMoved | None
) -> tuple[Verdict, str, int]:
    if not abilities.cache and not usage.cache_read:
        return "unreported", "whether this model keeps prompts is not known", 0
    if usage.incomplete or not usage.prompt:
        return "unreported", "", 0
    if before is None:
        return "cold", "", 0
    if before.usage.incomplete or not before.usage.prompt:
        return "unreported", "the call before it was not counted", 0
    least = abilities.cache_minimum_tokens
    if before.usage.prompt < least:
        return "minimum", f"{before.usage.prompt:,} of at least {least:,} tokens", 0
    step = abilities.cache_step_tokens or 1
    expected = before.usage.prompt // step * step
    if expected - usage.cache_read <= max(SLACK_TOKENS, expected // SLACK_PARTS):
        return "hit", "", expected
    return *_cause(abilities, before, sent, usage, moved), expected


def _cause(
    abilities: Abilities, before: _Sent, sent: _Sent, usage: Usage, moved: e.PrefixMoved | None
) -> tuple[Verdict, str]:
    if moved is not None:
        return "prefix", f"{moved.layer}, from {moved.block} on: {moved.why}"
    pause = sent.at - before.at
    if pause > before.kept_seconds:
        return "ttl", f"{pause:,.0f} s since the call before; kept for {before.kept_seconds:,.0f} s"
    if sent.choice != before.choice:
        return "prefix", f"settings: the tool choice is {sent.choice.mode} and was {before.choice.mode}"
    new = sent.blocks - before.blocks
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
