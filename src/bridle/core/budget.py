"""May the run go on, and how much may the next reply cost?

Asked before every request.  A limit that is only looked at afterwards is a limit
that was broken: the worst case of the next call (the prompt as estimated, plus every
output token it may produce) has to fit in what is left, so the output is clamped to
what can be paid for, and a call that could not say anything useful is not made.
"""

from decimal import Decimal

from msgspec.structs import replace

from ..values.event import RunStop
from ..values.message import Reply
from ..values.usage import MILLION, Rates, Reservation, Usage
from .limits import Scope, scopes, tool_calls_left
from .marking import long_marks
from .saying import parts_tokens
from .settling import output_tokens_wanted
from .spent import Spent
from .state import State
from .window import window_tokens

OUTPUT_TOKENS_DEFAULT = 20_000
"""Enough for an answer with its reasoning; within what may be awaited without a stream."""
REPLY_SHARE_LEAST = 0.05
"""Of the window.  Some providers refuse a prompt that leaves less room for the reply than was asked for, so
less is asked for as the window fills, down to this."""
OUTPUT_TOKENS_LEAST = 16
"""A reply shorter than this is not worth its prompt."""


def exhausted(state: State) -> tuple[RunStop, str] | None:
    """The limit that has been reached and its story, or None."""
    for scope in scopes(state):
        limits, spent, whose = scope.limits, scope.spent, f"{scope.name} " if scope.name else ""
        if limits.steps is not None and spent.steps >= limits.steps:
            return "steps", f"{spent.steps} of {whose}{limits.steps} steps taken"
        if limits.seconds is not None and scope.seconds >= limits.seconds:
            return "seconds", f"{scope.seconds:.1f} of {whose}{limits.seconds:g} seconds used"
    if state.run.capped == "shared":
        return "budget", "no more tool calls may be made of a shared budget, and more were wanted"
    calls = tool_calls_left(state)
    if state.run.capped and calls is not None and calls[0] <= 0:
        return "budget", f"{calls[1]} made, and more were wanted"
    if room(state) < OUTPUT_TOKENS_LEAST:
        told = [_story(scope) for scope in scopes(state)]
        return "budget", " and ".join(filter(None, told)) + "; the next call would not fit"
    return None


def room(state: State) -> int:
    """The most output tokens the next reply may have."""
    settings, run = state.settings, state.run
    limit = settings.model.abilities.output_tokens
    allowance = (settings.thinking.budget_tokens or 0) if settings.thinking else 0
    usual = min(limit, OUTPUT_TOKENS_DEFAULT + allowance)
    window = window_tokens(state)
    beside = max(window - state.prompt_tokens + state.slack_tokens, int(window * REPLY_SHARE_LEAST))
    rooms = [min(beside, output_tokens_wanted(settings) or (limit if run.more_room else usual))]
    for _, limits, spent, _ in scopes(state):
        if limits.tokens is not None:
            rooms.append(limits.tokens - spent.usage.total - state.prompt_tokens)
        if limits.usd is not None:
            if spent.usd is None:
                return 0  # what a call costs is unknown, so no limit on it can be held
            rooms.append(affordable(state, limits.usd - spent.usd))
    return min(rooms)


def affordable(state: State, left: Decimal) -> int:
    """Output tokens that can be paid when the whole prompt is billed at its dearest rate."""
    rates = _dearest(state)
    if rates is None:
        return 0
    after_prompt = left - _dearest_input(state, rates) * state.prompt_tokens / MILLION
    if rates.output <= 0:
        return MILLION if after_prompt >= 0 else 0
    return int(after_prompt * MILLION / rates.output)


def worst_case(state: State, output_tokens: int, pool: str) -> Reservation:
    """The most the next call may come to, with a reply of at most so many tokens."""
    rates, tokens = _dearest(state), state.prompt_tokens + output_tokens
    if rates is None:
        return Reservation(pool=pool, tokens=tokens, output_tokens=output_tokens)
    dollars = _dearest_input(state, rates) * state.prompt_tokens + rates.output * output_tokens
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


def _dearest_input(state: State, rates: Rates) -> Decimal:
    """A prompt may be written to the cache whole, and for an hour where the marks may say so."""
    dearest = max(rates.input, rates.cache_write)
    if rates.cache_write_1h is None or not long_marks(state.settings, state.view):
        return dearest
    return max(dearest, rates.cache_write_1h)


def _story(scope: Scope) -> str:
    limits, spent, told = scope.limits, scope.spent, []
    whose = f"{scope.name} " if scope.name else ""
    if limits.usd is not None:
        known = spent.usd is not None
        told.append(f"${spent.usd:.4f} of {whose}${limits.usd:f} spent" if known else "cost unknown")
    if limits.tokens is not None:
        told.append(f"{spent.usage.total} of {whose}{limits.tokens} tokens used")
    return " and ".join(told)


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
    if usage.prompt:
        return usage, usd
    guess = Usage(input=state.prompt_tokens, output=usage.output, incomplete=True)
    price = state.settings.model.price
    return guess, price.cost(guess, state.now) if price else None


def booked(state: State, reply: Reply) -> Usage:
    """What a whole reply is booked as.  Where its provider counted nothing, tokens are those estimated: a
    limit on them has to hold there too.  Dollars stay unknown."""
    if reply.usage.known:
        return reply.usage
    written = reply.usage.output or parts_tokens(reply.parts)
    return Usage(input=state.prompt_tokens, output=written, incomplete=True)


def plus(spent: Spent, usage: Usage, usd: Decimal | None, steps: int = 0) -> Spent:
    known = None if spent.usd is None or usd is None else spent.usd + usd
    return replace(spent, steps=spent.steps + steps, usage=spent.usage + usage, usd=known)
