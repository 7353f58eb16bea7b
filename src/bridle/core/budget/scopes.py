"""Merges the limits of an agent, of a run and of a resumed run: every limit holds, so the lower one of each kind.

    merge_budgets     of an agent and of a run that it begins: a run can lower each limit and lift none
    resume_budget     of a resumed run: its own limits may be raised, those of the agent for sessions and others not
    client_budget     of a resumed run whose new budget comes from a client, which raises nothing

If a run sets limits of its session, tenant or caller, they and the agent's are recorded beside the merged ones
(`Prompted.budget_parts`). Thus a resumed run knows which of them it may raise.
"""

from collections.abc import Collection
from typing import Final, TypeVar

from msgspec.structs import replace

from bridle.values.usage import (
    BUDGET_SCOPES,
    MERGED_KINDS,
    Budget,
    BudgetParts,
    Limits,
    join_limits,
    merge_limits,
    split_limits,
)

LimitsT = TypeVar("LimitsT", bound=Limits)
SharedLimits = Limits | tuple[Limits, ...] | None
NO_LIMITS: Final = Budget(steps=None)


def merge_budgets(agent: Budget | None, run: Budget | None) -> Budget:
    """The budget of a run that an agent begins; an agent without one leaves all limits to the run."""
    if agent is None or run is None:
        return run or agent or Budget()
    scopes = {name: _merge_scope(getattr(agent, name), getattr(run, name)) for name in BUDGET_SCOPES}
    return replace(merge_limits(agent, run), **scopes)


def split_budgets(agent: Budget | None, run: Budget | None) -> BudgetParts | None:
    """The limits of agent and run for session, tenant and caller, to be recorded; None if the run sets none."""
    if run is None or not any(getattr(run, name) for name in BUDGET_SCOPES):
        return None
    return BudgetParts(agent=_take_scopes(agent), run=_take_scopes(run))


def resume_budget(
    recorded: Budget,
    parts: BudgetParts | None,
    agent: Budget | None,
    given: Budget | None,
    scopes: Collection[str] = BUDGET_SCOPES,
) -> tuple[Budget, BudgetParts | None]:
    """The budget of a resumed run, and its parts if the run sets limits of its session, tenant or caller.

    A kind of the run's own limits that is not given stays as it was. For session, tenant and caller, the agent's limit
    of now holds, or that of the agent before where it has none; what the run sets can only be lower. `scopes` are
    those that the run has: the agent may limit callers, and the run have none.
    """
    merged, asked = recorded, parts.run if parts is not None else None
    if given is not None:
        chosen = {kind: limit for kind in MERGED_KINDS if (limit := getattr(given, kind)) is not None}
        merged, asked = replace(recorded, **chosen), _prefer_scopes(given, asked)
    before = parts.agent if parts is not None else recorded
    absent = dict.fromkeys(name for name in BUDGET_SCOPES if name not in scopes)
    ceiling = _prefer_scopes(None if agent is None else replace(agent, **absent), before)
    shared = {
        name: _merge_scope(getattr(ceiling, name), getattr(asked, name, None)) for name in BUDGET_SCOPES
    }
    return replace(merged, **shared), split_budgets(ceiling, asked)


def client_budget(agent: Budget | None, recorded: Budget, given: Budget) -> Budget:
    """Budget that a client may give to a resumed run: no limit above the agent's, or above that of the run."""
    shared = {name: _merge_scope(getattr(recorded, name), getattr(given, name)) for name in BUDGET_SCOPES}
    return replace(merge_limits(given, _prefer(agent or Budget(), recorded)), **shared)


def list_scopes(budget: Budget) -> list[Limits]:
    """The limits of the run itself, and those of its session, tenant and caller."""
    return [budget, *(limits for name in BUDGET_SCOPES for limits in split_limits(getattr(budget, name)))]


def has_dollars(budget: Budget) -> bool:
    return any(limits.usd is not None for limits in list_scopes(budget))


def _take_scopes(budget: Budget | None) -> Budget:
    """The budget without the limits of the run itself."""
    return replace(NO_LIMITS, **{name: getattr(budget, name, None) for name in BUDGET_SCOPES})


def _merge_scope(one: SharedLimits, other: SharedLimits) -> SharedLimits:
    return join_limits((*split_limits(one), *split_limits(other)))


def _prefer_scopes(first: Budget | None, second: Budget | None) -> Budget:
    """The limits of the first for session, tenant and caller, with what the second has besides."""
    pairs = {name: (getattr(first, name, None), getattr(second, name, None)) for name in BUDGET_SCOPES}
    return replace(NO_LIMITS, **{name: _prefer_scope(*pair) for name, pair in pairs.items()})


def _prefer_scope(first: SharedLimits, second: SharedLimits) -> SharedLimits:
    """The first limits, with the periods and kinds of the second that they lack."""
    found = {(limits.period, limits.zone): limits for limits in split_limits(second)}
    for limits in split_limits(first):
        key = limits.period, limits.zone
        found[key] = _prefer(limits, found[key]) if key in found else limits
    return join_limits(found.values())


def _prefer(first: LimitsT, second: Limits) -> LimitsT:
    """The first limits, with the kinds of the second that they lack."""
    kinds = {kind: getattr(second, kind) for kind in MERGED_KINDS if getattr(first, kind) is None}
    return replace(first, **kinds)
