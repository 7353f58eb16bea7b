"""Which limits a run stands under, and how much of each is used.

A run has limits of its own and, where they are set, those of its session: all that was ever spent in
this log.  What others spend at the same time (a tenant, a pool) is not known here; it is asked for
before every call, by whoever drives (run/budget/sources.py).

Runs inside a run's tools (`Run.inner`) count against its limits as if they were its own, except for
the calls of tools: those are limited where they are made.

`wrap_up` is the soft limit: from that share of any other on, the model is told once to finish, behind
the results it is about to read, where nothing before it moves.  What it answers is the result.
"""

from decimal import Decimal
from typing import Literal, NamedTuple

from msgspec.structs import replace

from bridle.core.cache.breakpoints import can_use_long_ttl
from bridle.core.context.model_constraints import requested_output_tokens
from bridle.core.context.token_estimate import estimate_part_tokens, window_tokens
from bridle.core.effects import Reprompt
from bridle.core.state import State
from bridle.values.budget import Spending, Subrun, SubrunCharged, SubrunStarted
from bridle.values.events import RunStop
from bridle.values.message import Reply
from bridle.values.usage import MILLION, Limits, Rates, Reservation, Usage

WRAP_UP_WHY = "wrap up"
WRAP_UP_NOTICE = (
    "{used} used. Finish now: call a tool only if you cannot do without it, and then give your answer"
    " with what you have."
)
TOOL_CALLS_NOTICE = "This call was not run: no more tool calls may be made ({used})."
TOOL_CALLS_RULE = "limit of tool calls"
SHARED_CALLS_RULE = "limit of tool calls, shared"
TOOL_CALL_LIMITS: dict[str, Literal["own", "shared"]] = {TOOL_CALLS_RULE: "own", SHARED_CALLS_RULE: "shared"}


class LimitScope(NamedTuple):
    name: str
    """Whose limits they are, in words; empty for the run's own."""
    limits: Limits
    spent: Spending
    seconds: float


def limit_scopes(state: State) -> tuple[LimitScope, ...]:
    """The run's own first."""
    run = state.run
    elapsed = state.now - run.started_at
    own = LimitScope("", run.budget, add_nested_spending(run.spent, run.nested_spent), elapsed)
    if run.budget.session is None:
        return (own,)
    whole = add_nested_spending(state.total_spent, state.nested_spent)
    return own, LimitScope("the session's", run.budget.session, whole, state.earlier_seconds + elapsed)


def add_nested_spending(own: Spending, inner: Spending) -> Spending:
    """Calls of tools stay those of the run itself."""
    if inner == NOTHING_SPENT:
        return own
    usd = None if own.usd is None or inner.usd is None else own.usd + inner.usd
    return Spending(
        steps=own.steps + inner.steps, usage=own.usage + inner.usage, usd=usd, tool_calls=own.tool_calls
    )


NOTHING_SPENT = Spending()


def deadline(state: State) -> float | None:
    """When the time of the run is up, or that of its session."""
    run = state.run
    if run.budget.seconds is None and run.budget.session is None:
        return None
    ends = [] if run.budget.seconds is None else [run.started_at + run.budget.seconds]
    if run.budget.session is not None and run.budget.session.seconds is not None:
        ends.append(run.started_at + run.budget.session.seconds - state.earlier_seconds)
    return min(ends, default=None)


def tool_calls_left(state: State) -> tuple[int, str] | None:
    """How many more may be run, and of how many; None when nothing limits them."""
    if state.run.budget.tool_calls is None and state.run.budget.session is None:
        return None
    found = [
        (scope.limits.tool_calls - scope.spent.tool_calls, _describe_used(scope, "tool_calls"))
        for scope in limit_scopes(state)
        if scope.limits.tool_calls is not None
    ]
    return min(found, default=None)


def wrap_up_reprompt(state: State) -> Reprompt | None:
    """What to tell the model, when it is time and it has not been told."""
    run = state.run
    if (
        run.wrap_up_reason
        or run.attempt
        or run.continued_text
        or state.transcript.messages[-1].role not in ("tool", "user")
    ):
        return None  # nothing is put between two attempts, or into an answer
    if run.budget_warning:
        return Reprompt(why=WRAP_UP_WHY, message=WRAP_UP_NOTICE.format(used=run.budget_warning))
    for scope in limit_scopes(state):
        share = scope.limits.wrap_up
        used = _used_shares(scope) if share is not None else {}
        for name, part in used.items():
            if part >= (share or 0):
                return Reprompt(
                    why=WRAP_UP_WHY, message=WRAP_UP_NOTICE.format(used=_describe_used(scope, name))
                )
    return None


def _used_shares(scope: LimitScope) -> dict[str, float]:
    limits, used = scope.limits, _used_amounts(scope)
    return {
        name: float(part) / float(limit)
        for name, part in used.items()
        if (limit := getattr(limits, name)) and part is not None
    }


def _used_amounts(scope: LimitScope) -> dict[str, float | None]:
    spent = scope.spent
    return {
        "usd": None if spent.usd is None else float(spent.usd),
        "tokens": spent.usage.total,
        "steps": spent.steps,
        "seconds": scope.seconds,
        "tool_calls": spent.tool_calls,
    }


def _describe_used(scope: LimitScope, name: str) -> str:
    part, limit = _used_amounts(scope)[name], getattr(scope.limits, name)
    whose = f"{scope.name} " if scope.name else ""
    if name == "usd":
        return f"${part:.4f} of {whose}${limit:f}"
    shown = f"{part:.0f}" if name == "seconds" else f"{part:,}"
    return f"{shown} of {whose}{limit:,g} {name.replace('_', ' ')}"


# May the run go on, and how much may the next reply cost?
#
# Asked before every request.  A limit that is only looked at afterwards is a limit
# that was broken: the worst case of the next call (the prompt as estimated, plus every
# output token it may produce) has to fit in what is left, so the output is clamped to
# what can be paid for, and a call that could not say anything useful is not made.


OUTPUT_TOKENS_DEFAULT = 20_000
"""Enough for an answer with its reasoning; within what may be awaited without a stream."""
REPLY_SHARE_MIN = 0.05
"""Of the window.  Some providers refuse a prompt that leaves less room for the reply than was asked for, so
less is asked for as the window fills, down to this."""
OUTPUT_TOKENS_MIN = 16
"""A reply shorter than this is not worth its prompt."""


def find_reached_limit(state: State) -> tuple[RunStop, str] | None:
    """The limit that has been reached and its story, or None."""
    for scope in limit_scopes(state):
        limits, spent, whose = scope.limits, scope.spent, f"{scope.name} " if scope.name else ""
        if limits.steps is not None and spent.steps >= limits.steps:
            return "steps", f"{spent.steps} of {whose}{limits.steps} steps taken"
        if limits.seconds is not None and scope.seconds >= limits.seconds:
            return "seconds", f"{scope.seconds:.1f} of {whose}{limits.seconds:g} seconds used"
    if state.run.tool_call_limit == "shared":
        return "budget", "no more tool calls may be made of a shared budget, and more were wanted"
    calls = tool_calls_left(state)
    if state.run.tool_call_limit and calls is not None and calls[0] <= 0:
        return "budget", f"{calls[1]} made, and more were wanted"
    if output_tokens_room(state) < OUTPUT_TOKENS_MIN:
        told = [_describe_spending(scope) for scope in limit_scopes(state)]
        return "budget", " and ".join(filter(None, told)) + "; the next call would not fit"
    return None


def output_tokens_room(state: State) -> int:
    """The most output tokens the next reply may have."""
    settings, run = state.settings, state.run
    limit = settings.model.abilities.output_tokens
    allowance = (settings.thinking.budget_tokens or 0) if settings.thinking else 0
    usual = min(limit, OUTPUT_TOKENS_DEFAULT + allowance)
    window = window_tokens(state)
    beside = max(window - state.prompt_tokens + state.estimate_margin_tokens, int(window * REPLY_SHARE_MIN))
    rooms = [min(beside, requested_output_tokens(settings) or (limit if run.needs_full_output else usual))]
    for _, limits, spent, _ in limit_scopes(state):
        if limits.tokens is not None:
            rooms.append(limits.tokens - spent.usage.total - state.prompt_tokens)
        if limits.usd is not None:
            if spent.usd is None:
                return 0  # what a call costs is unknown, so no limit on it can be held
            rooms.append(affordable_output_tokens(state, limits.usd - spent.usd))
    return min(rooms)


def affordable_output_tokens(state: State, left: Decimal) -> int:
    """Output tokens that can be paid when the whole prompt is billed at its dearest rate."""
    rates = _highest_rates(state)
    if rates is None:
        return 0
    after_prompt = left - _highest_input_rate(state, rates) * state.prompt_tokens / MILLION
    if rates.output <= 0:
        return MILLION if after_prompt >= 0 else 0
    return int(after_prompt * MILLION / rates.output)


def worst_case_reservation(state: State, output_tokens: int, pool: str) -> Reservation:
    """The most the next call may come to, with a reply of at most so many tokens."""
    rates, tokens = _highest_rates(state), state.prompt_tokens + output_tokens
    if rates is None:
        return Reservation(pool=pool, tokens=tokens, output_tokens=output_tokens)
    dollars = _highest_input_rate(state, rates) * state.prompt_tokens + rates.output * output_tokens
    return Reservation(pool=pool, tokens=tokens, usd=dollars / MILLION, output_tokens=output_tokens)


def fit_reservation(
    state: State, wanted: Reservation, usd: Decimal | None, tokens: int | None
) -> Reservation | None:
    """A smaller worst case for what is left; None when no useful reply would fit."""
    rooms = [wanted.output_tokens]
    if tokens is not None:
        rooms.append(tokens - state.prompt_tokens)
    if usd is not None:
        rooms.append(affordable_output_tokens(state, usd))
    room = min(rooms)
    return worst_case_reservation(state, room, wanted.pool) if room >= OUTPUT_TOKENS_MIN else None


def _highest_rates(state: State) -> Rates | None:
    """What may be asked for by a word in a field of the user's own is priced as that."""
    settings = state.settings
    price = settings.model.price
    words = (extra.json.strip().strip('"') for extra in settings.extras)
    return price.highest_rates(state.prompt_tokens, state.now, words) if price else None


def _highest_input_rate(state: State, rates: Rates) -> Decimal:
    """A prompt may be written to the cache whole, and for an hour where the marks may say so."""
    dearest = max(rates.input, rates.cache_write)
    if rates.cache_write_1h is None or not can_use_long_ttl(state.settings, state.view):
        return dearest
    return max(dearest, rates.cache_write_1h)


def _describe_spending(scope: LimitScope) -> str:
    limits, spent, told = scope.limits, scope.spent, []
    whose = f"{scope.name} " if scope.name else ""
    if limits.usd is not None:
        known = spent.usd is not None
        told.append(f"${spent.usd:.4f} of {whose}${limits.usd:f} spent" if known else "cost unknown")
    if limits.tokens is not None:
        told.append(f"{spent.usage.total} of {whose}{limits.tokens} tokens used")
    return " and ".join(told)


def charge_partial_reply(state: State, usage: Usage | None, usd: Decimal | None) -> State:
    """A reply that broke off is paid for too: as counted, or as estimated when nobody counted."""
    if usage is None:
        return state
    usage, usd = price_partial_reply(state, usage, usd)
    return replace(
        state,
        run=replace(state.run, spent=add_spending(state.run.spent, usage, usd)),
        total_spent=add_spending(state.total_spent, usage, usd),
    )


def price_partial_reply(state: State, usage: Usage, usd: Decimal | None) -> tuple[Usage, Decimal | None]:
    """What a reply that broke off is booked as."""
    if usage.prompt:
        return usage, usd
    guess = Usage(input=state.prompt_tokens, output=usage.output, incomplete=True)
    price = state.settings.model.price
    return guess, price.cost(guess, state.now) if price else None


def billable_usage(state: State, reply: Reply) -> Usage:
    """What a whole reply is booked as.  Where its provider counted nothing, tokens are those estimated: a
    limit on them has to hold there too.  Dollars stay unknown."""
    if reply.usage.is_known:
        return reply.usage
    written = reply.usage.output or estimate_part_tokens(reply.parts)
    return Usage(input=state.prompt_tokens, output=written, incomplete=True)


def add_spending(spent: Spending, usage: Usage, usd: Decimal | None, steps: int = 0) -> Spending:
    known = None if spent.usd is None or usd is None else spent.usd + usd
    return replace(spent, steps=spent.steps + steps, usage=spent.usage + usage, usd=known)


# Runs inside the tools of a run: what they spend is the run's too.
#
# Each has a log of its own.  In the log of the run around it stands that it began and what each of its calls
# came to, so that limits hold for all of it, and a crash loses no more than the call that was under way.


def apply_subrun_started(state: State, event: SubrunStarted, at: float, proof: str) -> State:
    if any(each.session == event.session for each in state.run.subruns):
        return state
    calls = (call for message in reversed(state.transcript.messages) for call in message.calls)
    tool = next((call.name for call in calls if call.id == event.call_id), "")
    begun = Subrun(session=event.session, call_id=event.call_id, tool=tool)
    return replace(state, run=replace(state.run, subruns=(*state.run.subruns, begun)))


def apply_subrun_charged(state: State, event: SubrunCharged, at: float, proof: str) -> State:
    run = state.run
    subruns = tuple(
        _add_charge(each, event) if each.session == event.session else each for each in run.subruns
    )
    inner = add_spending(run.nested_spent, event.usage, event.usd, steps=event.steps)
    total = add_spending(state.nested_spent, event.usage, event.usd, steps=event.steps)
    return replace(state, run=replace(run, nested_spent=inner, subruns=subruns), nested_spent=total)


def _add_charge(subrun: Subrun, event: SubrunCharged) -> Subrun:
    known: Decimal | None = None if subrun.usd is None or event.usd is None else subrun.usd + event.usd
    return replace(subrun, usage=subrun.usage + event.usage, usd=known, steps=subrun.steps + event.steps)
