"""Limits of a run: what is used, what the next call may cost, and the charges of nested runs.

A run has its own limits and, if set, those of its session, which cover everything spent in this log. The
spending of others (a tenant, a pool) is not known here; the driver requests it before every call
(run/budget/sources.py).

Before every request, the worst case of the call (estimated prompt plus maximum output) must fit into what is
left. The output is limited to what can be paid for, and a call without room for a useful reply is not made.

Runs inside a run's tools (`Run.subruns`) count against its limits like its own spending, except for tool
calls, which are limited where they are made; those of a program count as calls of the run. Each subrun has its
own log; the parent's log records its start and the cost of each call, so that limits cover all of it and a crash
loses no more than the call in progress.

`wrap_up` is a soft limit: at that share of any other limit, the model is asked once to finish. The notice
follows the results, so that the cached prefix stays unchanged.
"""

from decimal import Decimal
from typing import Any, Literal, NamedTuple

from msgspec.structs import replace

from bridle.core.cache.breakpoints import can_use_long_ttl
from bridle.core.context.token_estimate import estimate_part_tokens, window_tokens
from bridle.core.effects import Reprompt
from bridle.core.state import State
from bridle.values.budget import REMAINDER_SUFFIX, Spending, Subrun, SubrunCharged, SubrunStarted
from bridle.values.events import RunStop
from bridle.values.message import Reply
from bridle.values.usage import LIMIT_KINDS, MILLION, Limits, Rates, Reservation, Usage

from .hosted import explain_unpriced_tools, has_dollar_limit, price_hosted_tools

WRAP_UP_WHY = "wrap up"
WRAP_UP_NOTICE = (
    "{used} used. Finish now: call a tool only if you cannot do without it, and then give your answer"
    " with what you have."
)
TOOL_CALLS_NOTICE = "This call was not run: no more tool calls may be made ({used})."
TOOL_CALLS_RULE = "limit of tool calls"
RATE_LIMIT_RULE = "rate limit"
RATE_LIMIT_NOTICE = (
    "This call was not run: its rate limit allows it in {wait:.3g} seconds, and the run ends before that."
)
SHARED_CALLS_RULE = "limit of tool calls, shared"
TOOL_CALL_LIMITS: dict[str, Literal["own", "shared"]] = {TOOL_CALLS_RULE: "own", SHARED_CALLS_RULE: "shared"}


class LimitScope(NamedTuple):
    name: str
    """Owner of the limits as text; empty for the run's own."""
    limits: Limits
    spent: Spending
    seconds: float

    @property
    def owner(self) -> str:
        """The name as part of a sentence."""
        return f"{self.name} " if self.name else ""

    def used(self, kind: str) -> Any:
        """Amount used of a kind; None for dollars if a price is unknown."""
        return self.seconds if kind == "seconds" else getattr(self.spent, kind)


TIME_UP_IN_DOUBT = (
    "the time of the run is up while it is unknown whether a call took effect; resume with another budget, or the next"
    " prompt, settles it"
)


def limit_scopes(state: State) -> tuple[LimitScope, ...]:
    """All scopes that limit the run, its own first."""
    run = state.run
    # defect: run-seconds
    elapsed = state.now - run.budget.started_at
    own = LimitScope(
        "", run.budget.limits, add_nested_spending(run.budget.spent, run.budget.nested_spent), elapsed
    )
    if run.budget.limits.session is None:
        return (own,)
    session_spent = add_nested_spending(state.totals.spent, state.totals.nested_spent)
    # defect: session-seconds
    return own, LimitScope(
        "the session's", run.budget.limits.session, session_spent, state.totals.earlier_seconds + elapsed
    )


def add_nested_spending(own: Spending, inner: Spending) -> Spending:
    """Sum of own and nested spending; nested tool calls are those of programs."""
    # defect: inner-spending
    return own if inner == NOTHING_SPENT else own + inner


NOTHING_SPENT = Spending()


def deadline(state: State) -> float | None:
    """Time at which the run's or its session's time is up."""
    run = state.run
    if run.budget.limits.seconds is None and run.budget.limits.session is None:
        return None
    ends = [] if run.budget.limits.seconds is None else [run.budget.started_at + run.budget.limits.seconds]
    if run.budget.limits.session is not None and run.budget.limits.session.seconds is not None:
        ends.append(run.budget.started_at + run.budget.limits.session.seconds - state.totals.earlier_seconds)
    return min(ends, default=None)


def is_time_up(state: State) -> bool:
    ends = deadline(state)
    return ends is not None and state.now >= ends


def tool_calls_left(state: State) -> tuple[int, str] | None:
    """Number of tool calls left, with a description of the limit; None if there is no limit."""
    if state.run.budget.limits.tool_calls is None and state.run.budget.limits.session is None:
        return None
    found = [
        (scope.limits.tool_calls - scope.spent.tool_calls, _describe_used(scope, "tool_calls"))
        for scope in limit_scopes(state)
        if scope.limits.tool_calls is not None
    ]
    return min(found, default=None)


def wrap_up_reprompt(state: State) -> Reprompt | None:
    """Wrap-up notice to the model, if it is due and was not sent yet."""
    run = state.run
    if (
        run.budget.wrap_up_reason
        or run.attempt.number
        or run.evaluation.continued_text
        or state.conversation.transcript.messages[-1].role not in ("tool", "user")
    ):
        return None  # nothing is inserted between two attempts or into an answer
    # defect: shared-warning
    if run.budget.warning:
        return Reprompt(why=WRAP_UP_WHY, message=WRAP_UP_NOTICE.format(used=run.budget.warning))
    if run.budget.limits.wrap_up is None and run.budget.limits.session is None:
        return None
    for scope in limit_scopes(state):
        limits = scope.limits
        for kind in limits.kinds if limits.wrap_up is not None else ():
            limit, part = getattr(limits, kind), scope.used(kind)
            if limit and part is not None and float(part) / float(limit) >= (limits.wrap_up or 0):
                return Reprompt(
                    why=WRAP_UP_WHY, message=WRAP_UP_NOTICE.format(used=_describe_used(scope, kind))
                )
    return None


def remaining_limits(state: State, now: float) -> Limits:
    """Remaining limits of the run and its session; None where there is no limit."""
    left: dict[str, Any] = {}
    for scope in limit_scopes(state):
        current = scope._replace(seconds=scope.seconds + max(0.0, now - state.now))
        for kind in scope.limits.kinds:
            limit, part = getattr(scope.limits, kind), current.used(kind)
            if part is not None:
                room = max(type(limit)(0), limit - part)
                left[kind] = min(left.get(kind, room), room)
    return Limits(**left)


def _describe_used(scope: LimitScope, kind: str) -> str:
    part, limit = scope.used(kind), getattr(scope.limits, kind)
    if kind == "usd":
        return f"${float(part):.4f} of {scope.owner}${limit:f}"
    shown = f"{part:.0f}" if isinstance(part, float) else f"{part:,}"
    return f"{shown} of {scope.owner}{limit:,g} {kind.replace('_', ' ')}"


OUTPUT_TOKENS_DEFAULT = 20_000
"""Enough for an answer with reasoning, and within what may be awaited without streaming."""
REPLY_SHARE_MIN = 0.05
"""Share of the window reserved for the reply at least.

Some providers reject a prompt that leaves less room than `max_tokens`, so less is requested as the window
fills, down to this share.
"""
OUTPUT_TOKENS_MIN = 16
"""A shorter reply is not worth its prompt."""


def find_reached_limit(state: State) -> tuple[RunStop, str] | None:
    """Stop reason and description of a limit that has been reached; None if there is none."""
    budget = state.run.budget
    for scope in limit_scopes(state) if budget.limits.kinds or budget.limits.session else ():
        for kind in scope.limits.kinds:
            # guard: budget-limit-reached
            # defect: step-limit
            if kind not in CHECKED_PER_CALL and scope.used(kind) >= getattr(scope.limits, kind):
                return OWN_STOPS.get(kind, "budget"), _describe_reached(scope, kind)
    # defect: shared-tool-calls
    if budget.tool_call_limit == "shared":
        return "budget", "the shared limit of tool calls is reached, and the model asked for more"
    if budget.tool_call_limit and (calls := tool_calls_left(state)) is not None and calls[0] <= 0:
        return "budget", f"{calls[1]} made, and the model asked for more"
    # guard: output-room-left
    if output_tokens_room(state) < OUTPUT_TOKENS_MIN:
        descriptions = [_describe_spending(scope) for scope in limit_scopes(state)]
        unpriced = ""
        if has_dollar_limit(state):
            unpriced = explain_unpriced_tools(state) or explain_unpriced_terms(state)
        return "budget", " and ".join(filter(None, descriptions)) + "; the next call would not fit" + unpriced
    return None


OWN_STOPS: dict[str, RunStop] = {"steps": "steps", "seconds": "seconds"}
"""Kinds with a stop reason of their own; the others end a run as `budget`."""
LIMIT_STOPS = frozenset(OWN_STOPS.get(kind, "budget") for kind in LIMIT_KINDS)
"""Stop reasons of runs that reached a limit."""
CHECKED_PER_CALL = ("usd", "tokens", "tool_calls")
"""Kinds of which the next call must fit into the rest; every other kind ends the run when it is used up."""


def explain_unpriced_terms(state: State) -> str:
    """End of a sentence about a dollar limit that requested service terms make impossible; empty if they do not."""
    settings = state.settings
    price, terms = settings.model.price, settings.requested_terms if settings.extras else ()
    unknown = price.unknown_terms(terms) if price is not None else ()
    return f" (the price of {', '.join(unknown)} of {settings.model.name} is unknown)" if unknown else ""


def _describe_reached(scope: LimitScope, kind: str) -> str:
    part, limit = scope.used(kind), getattr(scope.limits, kind)
    amounts = (
        f"{part:.1f} of {scope.owner}{limit:g}"
        if isinstance(part, float)
        else f"{part} of {scope.owner}{limit}"
    )
    return f"{amounts} {kind.replace('_', ' ')} {'taken' if kind == 'steps' else 'used'}"


def output_tokens_room(state: State) -> int:
    """Maximum number of output tokens of the next reply."""
    estimate = state.estimate
    settings, run = state.settings, state.run
    requested = settings.output_tokens_requested
    if not requested:
        requested = limit = settings.model.abilities.output_tokens
        if not run.evaluation.needs_full_output:
            allowance = (settings.thinking.budget_tokens or 0) if settings.thinking else 0
            requested = min(limit, OUTPUT_TOKENS_DEFAULT + allowance)
    window = settings.window_tokens if not estimate.reported_windows else window_tokens(state)
    room = window - estimate.prompt_tokens + estimate.margin_tokens
    if room < requested:  # not with max(): this runs three times in every step
        least = int(window * REPLY_SHARE_MIN)
        room = room if room > least else least
    room = room if room < requested else requested
    own = run.budget.limits
    if own.tokens is None and own.usd is None and own.session is None:
        return room
    rooms = [room]
    for _, limits, spent, _ in limit_scopes(state):
        if limits.tokens is not None:
            # defect: token-limit
            rooms.append(limits.tokens - spent.usage.total - estimate.prompt_tokens)
        if limits.usd is not None:
            if spent.usd is None:
                return 0  # with an unknown price no dollar limit can be enforced
            # defect: spent-dollars
            rooms.append(affordable_output_tokens(state, limits.usd - spent.usd))
    return min(rooms)


def affordable_output_tokens(state: State, dollars_left: Decimal) -> int:
    """Output tokens that can be paid if the whole prompt is billed at its highest rate."""
    rates = _highest_rates(state)
    if rates is None:
        return 0
    after_prompt = dollars_left - _highest_input_rate(state, rates) * state.estimate.prompt_tokens / MILLION
    if state.settings.hosted_tools:
        hosted = price_hosted_tools(state)
        if hosted is None:
            return 0
        # guard: hosted-cost-in-room
        after_prompt -= hosted
    if rates.output <= 0:
        return MILLION if after_prompt >= 0 else 0
    return int(after_prompt * MILLION / rates.output)


def worst_case_reservation(state: State, output_tokens: int, pool: str) -> Reservation:
    """Worst case of the next call, with at most this many output tokens."""
    rates, tokens = _highest_rates(state), state.estimate.prompt_tokens + output_tokens
    if rates is None:
        return Reservation(pool=pool, tokens=tokens, output_tokens=output_tokens)
    dollars = _highest_input_rate(state, rates) * state.estimate.prompt_tokens + rates.output * output_tokens
    dollars /= MILLION
    if state.settings.hosted_tools:
        hosted = price_hosted_tools(state)
        if hosted is None:
            return Reservation(pool=pool, tokens=tokens, output_tokens=output_tokens)
        # guard: hosted-cost-in-worst-case
        dollars += hosted
    return Reservation(pool=pool, tokens=tokens, usd=dollars, output_tokens=output_tokens)


def fit_reservation(
    state: State, wanted: Reservation, usd: Decimal | None, tokens: int | None
) -> Reservation | None:
    """A smaller reservation that fits into what is left; None if no useful reply would fit."""
    rooms = [wanted.output_tokens]
    if tokens is not None:
        rooms.append(tokens - state.estimate.prompt_tokens)
    if usd is not None:
        rooms.append(affordable_output_tokens(state, usd))
    room = min(rooms)
    return worst_case_reservation(state, room, wanted.pool) if room >= OUTPUT_TOKENS_MIN else None


def _highest_rates(state: State) -> Rates | None:
    """Highest rates of the next call; service terms requested in extra fields are included."""
    settings = state.settings
    price = settings.model.price
    terms = settings.requested_terms if settings.extras else ()
    return price.highest_rates(state.estimate.prompt_tokens, state.now, terms) if price else None


def _highest_input_rate(state: State, rates: Rates) -> Decimal:
    """Highest rate of a prompt token: it may be written to the cache, for an hour if breakpoints ask for it."""
    highest = max(rates.input, rates.cache_write)
    if rates.cache_write_1h is None or not can_use_long_ttl(state.settings, state.conversation.view):
        return highest
    return max(highest, rates.cache_write_1h)


def _describe_spending(scope: LimitScope) -> str:
    limits, spent, owner = scope.limits, scope.spent, scope.owner
    descriptions = []
    if limits.usd is not None:
        is_known = spent.usd is not None
        descriptions.append(
            f"${spent.usd:.4f} of {owner}${limits.usd:f} spent" if is_known else "cost unknown"
        )
    if limits.tokens is not None:
        descriptions.append(f"{spent.usage.total} of {owner}{limits.tokens} tokens used")
    return " and ".join(descriptions)


def charge_partial_reply(state: State, usage: Usage | None, usd: Decimal | None) -> State:
    """Charge a reply that broke off: as reported, or as estimated if nothing was reported."""
    if usage is None:
        return state
    return charge(state, *price_partial_reply(state, usage, usd))


def charge(state: State, usage: Usage, usd: Decimal | None) -> State:
    """The state with this usage added to the run and to the session."""
    used, totals = state.run.budget, state.totals
    run = replace(state.run, budget=replace(used, spent=add_spending(used.spent, usage, usd)))
    return replace(state, run=run, totals=replace(totals, spent=add_spending(totals.spent, usage, usd)))


def price_partial_reply(state: State, usage: Usage, usd: Decimal | None) -> tuple[Usage, Decimal | None]:
    """Usage and cost of a reply that broke off."""
    if usage.prompt:
        return usage, usd
    terms = usage.terms or state.settings.requested_terms
    guess = replace(usage, input=state.estimate.prompt_tokens, incomplete=True, terms=terms)
    price = state.settings.model.price
    return guess, price.cost(guess, state.now) if price else None


def billable_usage(state: State, reply: Reply) -> Usage:
    """Usage of a complete reply; estimated if the provider reported none, so that token limits still hold.

    Its cost stays unknown.
    """
    if reply.usage.is_known:
        return reply.usage
    written = reply.usage.output or estimate_part_tokens(reply.parts)
    return Usage(input=state.estimate.prompt_tokens, output=written, incomplete=True)


def add_spending(spent: Spending, usage: Usage, usd: Decimal | None, steps: int = 0) -> Spending:
    return spent + model_call_spending(usage, usd, steps)


def model_call_spending(usage: Usage, usd: Decimal | None, steps: int) -> Spending:
    """Counts of one model call; `steps` is 1 for a reply and 0 for a summary or a call that broke off.

    Every budget counts by this function: of a run, its session, its tenant, a pool, and an outer run.
    """
    return Spending(steps=steps, usage=usage, usd=usd)


def apply_subrun_started(state: State, event: SubrunStarted, at: float, proof: str) -> State:
    used = state.run.budget
    if any(each.session == event.session for each in used.subruns):
        return state
    calls = (call for message in reversed(state.conversation.transcript.messages) for call in message.calls)
    tool = next((call.name for call in calls if call.id == event.call_id), "")
    begun = Subrun(session=event.session, call_id=event.call_id, tool=tool)
    return replace(state, run=replace(state.run, budget=replace(used, subruns=(*used.subruns, begun))))


def apply_subrun_charged(state: State, event: SubrunCharged, at: float, proof: str) -> State:
    run = state.run
    subruns = tuple(
        _add_charge(each, event) if each.session == event.session else each for each in run.budget.subruns
    )
    charged = Spending(steps=event.steps, usage=event.usage, usd=event.usd, tool_calls=event.tool_calls)
    inner = run.budget.nested_spent + charged
    total = state.totals.nested_spent + charged
    return replace(
        state,
        run=replace(run, budget=replace(run.budget, nested_spent=inner, subruns=subruns)),
        totals=replace(state.totals, nested_spent=total),
    )


def find_missing_charge(subrun: Subrun, known: Subrun | None) -> SubrunCharged | None:
    """Charge for the part of a subrun's spending that is not in `known`; None if nothing is missing."""
    recorded = known or Subrun(session=subrun.session, call_id="")
    if subrun.usage.total <= recorded.usage.total and subrun.steps <= recorded.steps:
        return None
    usd = None if subrun.usd is None or recorded.usd is None else subrun.usd - recorded.usd
    return SubrunCharged(
        call_id="",
        session=subrun.session,
        id=f"{subrun.session}{REMAINDER_SUFFIX}",
        usage=subrun.usage.excess_over(recorded.usage),
        usd=usd,
        steps=max(0, subrun.steps - recorded.steps),
    )


def _add_charge(subrun: Subrun, event: SubrunCharged) -> Subrun:
    known: Decimal | None = None if subrun.usd is None or event.usd is None else subrun.usd + event.usd
    return replace(
        subrun,
        usage=subrun.usage + event.usage,
        usd=known,
        steps=subrun.steps + event.steps,
        tool_calls=subrun.tool_calls + event.tool_calls,
    )
