"""May the run go on, and how much may the next reply cost?

Asked before every request.  A limit that is only looked at afterwards is a limit
that was broken: the worst case of the next call (the prompt as estimated, plus every
output token it may produce) has to fit in what is left, so the output is clamped to
what can be paid for, and a call that could not say anything useful is not made.
"""

from decimal import Decimal

from msgspec.structs import replace

from ..values.event import RunStop
from ..values.usage import MILLION, Budget, Rates, Reservation, Usage
from .state import Spent, State

OUTPUT_TOKENS_DEFAULT = 20_000
"""Enough for an answer with its reasoning; within what may be awaited without a stream."""
REPLY_SHARE = 0.2
"""Of the window: kept for the reply.  Some providers refuse a prompt that leaves less than was asked for."""
OUTPUT_TOKENS_LEAST = 16
"""A reply shorter than this is not worth its prompt."""


def exhausted(state: State) -> tuple[RunStop, str] | None:
    """The limit that has been reached and its story, or None."""
    budget, spent = state.run.budget, state.run.spent
    if budget.steps is not None and spent.steps >= budget.steps:
        return "steps", f"{spent.steps} of {budget.steps} steps taken"
    elapsed = state.now - state.run.started_at
    if budget.seconds is not None and elapsed >= budget.seconds:
        return "seconds", f"{elapsed:.1f} of {budget.seconds:g} seconds used"
    if room(state) < OUTPUT_TOKENS_LEAST:
        return "budget", _story(budget, spent.usage, spent.usd)
    return None


def room(state: State) -> int:
    """The most output tokens the next reply may have."""
    settings, run = state.settings, state.run
    limit = settings.model.abilities.output_tokens
    allowance = (settings.thinking.budget_tokens or 0) if settings.thinking else 0
    usual = min(limit, OUTPUT_TOKENS_DEFAULT + allowance)
    window = settings.window_tokens
    beside = max(window - state.prompt_tokens, int(window * REPLY_SHARE))
    rooms = [min(beside, settings.max_tokens or (limit if run.more_room else usual))]
    if run.budget.tokens is not None:
        rooms.append(run.budget.tokens - run.spent.usage.total - state.prompt_tokens)
    if run.budget.usd is not None:
        if run.spent.usd is None:
            return 0  # what a call costs is unknown, so no limit on it can be held
        rooms.append(affordable(state, run.budget.usd - run.spent.usd))
    return min(rooms)


def affordable(state: State, left: Decimal) -> int:
    """Output tokens that can be paid when the whole prompt is billed at its dearest rate."""
    rates = _dearest(state)
    if rates is None:
        return 0
    after_prompt = left - _dearest_input(rates) * state.prompt_tokens / MILLION
    if rates.output <= 0:
        return MILLION if after_prompt >= 0 else 0
    return int(after_prompt * MILLION / rates.output)


def worst_case(state: State, output_tokens: int, pool: str) -> Reservation:
    """The most the next call may come to, with a reply of at most so many tokens."""
    rates, tokens = _dearest(state), state.prompt_tokens + output_tokens
    if rates is None:
        return Reservation(pool=pool, tokens=tokens, output_tokens=output_tokens)
    dollars = _dearest_input(rates) * state.prompt_tokens + rates.output * output_tokens
    return Reservation(pool=pool, tokens=tokens, usd=dollars / MILLION, output_tokens=output_tokens)


def fitting(state: State, wanted: Reservation, usd: Decimal | None, tokens: int | None) -> Reservation | None:
    """A smaller worst case for what is left; None when no useful reply would fit."""
    rooms = [wanted.output_tokens]
    if tokens is not None:
        rooms.append(tokens - state.prompt_tokens)
    if usd is not None:
        rooms.append(affordable(state, usd))
    room = min(rooms)
    return worst_case(state, room, wanted.pool) if room >= OUTPUT_TOKENS_LEAST else None


def _dearest(state: State) -> Rates | None:
    """What may be asked for by a word in a field of the user's own is priced as that."""
    settings = state.settings
    price = settings.model.price
    words = (extra.json.strip().strip('"') for extra in settings.extras)
    return price.dearest(state.prompt_tokens, state.now, words) if price else None


def _dearest_input(rates: Rates) -> Decimal:
    return max(rates.input, rates.cache_write)


def _story(budget: Budget, usage: Usage, usd: Decimal | None) -> str:
    told = []
    if budget.usd is not None:
        told.append(f"${usd:.4f} of ${budget.usd:f} spent" if usd is not None else "cost unknown")
    if budget.tokens is not None:
        told.append(f"{usage.total} of {budget.tokens} tokens used")
    return " and ".join(told) + "; the next call would not fit"


def charged(state: State, usage: Usage | None, usd: Decimal | None) -> State:
    """A reply that broke off is paid for too: as counted, or as estimated when nobody counted."""
    if usage is None:
        return state
    usage, usd = bill(state, usage, usd)
    return replace(
        state,
        run=replace(state.run, spent=plus(state.run.spent, usage, usd)),
        total=plus(state.total, usage, usd),
    )


def bill(state: State, usage: Usage, usd: Decimal | None) -> tuple[Usage, Decimal | None]:
    """What a reply that broke off is booked as."""
    if usage.total:
        return usage, usd
    guess, price = Usage(input=state.prompt_tokens, incomplete=True), state.settings.model.price
    return guess, price.cost(guess, state.now) if price else None


def plus(spent: Spent, usage: Usage, usd: Decimal | None, steps: int = 0) -> Spent:
    known = None if spent.usd is None or usd is None else spent.usd + usd
    return Spent(steps=spent.steps + steps, usage=spent.usage + usage, usd=known)
