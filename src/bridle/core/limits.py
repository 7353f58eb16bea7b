"""Which limits a run stands under, and how much of each is used.

A run has limits of its own and, where they are set, those of its session: all that was ever spent in
this log.  What others spend at the same time (a tenant, a pool) is not known here; it is asked for
before every call, by whoever drives (run/reserving.py).

Runs inside a run's tools (`Run.inner`) count against its limits as if they were its own, except for
the calls of tools: those are limited where they are made.

`wrap_up` is the soft limit: from that share of any other on, the model is told once to finish, behind
the results it is about to read, where nothing before it moves.  What it answers is the result.
"""

from typing import Literal, NamedTuple

from ..values.usage import Limits
from .effects import Nudge
from .spent import Spent
from .state import State

WRAP_UP = "wrap up"
WRAP_UP_WORDS = (
    "{used} used. Finish now: call a tool only if you cannot do without it, and then give your answer"
    " with what you have."
)
TOOL_CALLS_USED = "This call was not run: no more tool calls may be made ({used})."
TOOL_CALLS_RULE = "limit of tool calls"
SHARED_CALLS_RULE = "limit of tool calls, shared"
CAPPED: dict[str, Literal["own", "shared"]] = {TOOL_CALLS_RULE: "own", SHARED_CALLS_RULE: "shared"}


class Scope(NamedTuple):
    name: str
    """Whose limits they are, in words; empty for the run's own."""
    limits: Limits
    spent: Spent
    seconds: float


def scopes(state: State) -> tuple[Scope, ...]:
    """The run's own first."""
    run = state.run
    elapsed = state.now - run.started_at
    own = Scope("", run.budget, together(run.spent, run.inner), elapsed)
    if run.budget.session is None:
        return (own,)
    whole = together(state.total, state.inner)
    return own, Scope("the session's", run.budget.session, whole, state.earlier_seconds + elapsed)


def together(own: Spent, inner: Spent) -> Spent:
    """Calls of tools stay those of the run itself."""
    if inner == NOTHING:
        return own
    usd = None if own.usd is None or inner.usd is None else own.usd + inner.usd
    return Spent(
        steps=own.steps + inner.steps, usage=own.usage + inner.usage, usd=usd, tool_calls=own.tool_calls
    )


NOTHING = Spent()


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
        (scope.limits.tool_calls - scope.spent.tool_calls, _used(scope, "tool_calls"))
        for scope in scopes(state)
        if scope.limits.tool_calls is not None
    ]
    return min(found, default=None)


def to_wrap_up(state: State) -> Nudge | None:
    """What to tell the model, when it is time and it has not been told."""
    run = state.run
    if run.wrapped or run.attempt or run.said or state.transcript.messages[-1].role not in ("tool", "user"):
        return None  # nothing is put between two attempts, or into an answer
    if run.crowded:
        return Nudge(why=WRAP_UP, words=WRAP_UP_WORDS.format(used=run.crowded))
    for scope in scopes(state):
        share = scope.limits.wrap_up
        used = _shares(scope) if share is not None else {}
        for name, part in used.items():
            if part >= (share or 0):
                return Nudge(why=WRAP_UP, words=WRAP_UP_WORDS.format(used=_used(scope, name)))
    return None


def _shares(scope: Scope) -> dict[str, float]:
    limits, used = scope.limits, _amounts(scope)
    return {
        name: float(part) / float(limit)
        for name, part in used.items()
        if (limit := getattr(limits, name)) and part is not None
    }


def _amounts(scope: Scope) -> dict[str, float | None]:
    spent = scope.spent
    return {
        "usd": None if spent.usd is None else float(spent.usd),
        "tokens": spent.usage.total,
        "steps": spent.steps,
        "seconds": scope.seconds,
        "tool_calls": spent.tool_calls,
    }


def _used(scope: Scope, name: str) -> str:
    part, limit = _amounts(scope)[name], getattr(scope.limits, name)
    whose = f"{scope.name} " if scope.name else ""
    if name == "usd":
        return f"${part:.4f} of {whose}${limit:f}"
    shown = f"{part:.0f}" if name == "seconds" else f"{part:,}"
    return f"{shown} of {whose}{limit:,g} {name.replace('_', ' ')}"
