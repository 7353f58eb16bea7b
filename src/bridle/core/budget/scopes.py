"""Merges the limits of an agent, of a run and of a resumed run: every limit holds, so the lower one of each kind.

    merge_limits      of two limits of one scope, both
    merge_budgets     of an agent and of a run that it begins: a run can lower each limit and lift none
    resume_budget     of a resumed run: its own limits may be raised, those of its session and tenant not
    client_budget     of a resumed run whose new budget comes from a client, which may not raise its own limits

If a run sets limits of its session or tenant, they and the agent's are recorded beside the merged ones
(`Prompted.budget_parts`). Thus a resumed run knows which of them it may raise.
"""

from typing import Any, Final, TypeVar

from msgspec.structs import replace

from bridle.values.usage import LIMIT_KINDS, Budget, BudgetParts, Limits

LimitsT = TypeVar("LimitsT", bound=Limits)
SCOPES: Final = ("session", "tenant")
"""The fields of `Budget` that limit more than one run."""
NO_LIMITS: Final = Budget(steps=None)
OWN_KINDS: Final = (*LIMIT_KINDS, "wrap_up")


def merge_limits(one: LimitsT, other: Limits) -> LimitsT:
    """Both limits at once: of each kind the lower one."""
    # guard: lower-limit
    return replace(one, **{kind: _lower(getattr(one, kind), getattr(other, kind)) for kind in OWN_KINDS})


def merge_budgets(agent: Budget | None, run: Budget | None) -> Budget:
    """The budget of a run that an agent begins; an agent without one leaves all limits to the run."""
    if agent is None or run is None:
        return run or agent or Budget()
    scopes = {name: _merge_scopes(getattr(agent, name), getattr(run, name)) for name in SCOPES}
    return replace(merge_limits(agent, run), **scopes)


def split_budgets(agent: Budget | None, run: Budget | None) -> BudgetParts | None:
    """The limits of agent and run for session and tenant, to be recorded; None if the run sets none."""
    if run is None or not any(getattr(run, name) for name in SCOPES):
        return None
    return BudgetParts(agent=_take_scopes(agent), run=_take_scopes(run))


def resume_budget(
    recorded: Budget,
    parts: BudgetParts | None,
    agent: Budget | None,
    given: Budget | None,
    *,
    has_tenant: bool,
) -> tuple[Budget, BudgetParts | None]:
    """The budget of a resumed run, and its parts if the run sets limits of its session or tenant.

    A kind of the run's own limits that is not given stays as it was. For session and tenant, the agent's limit of now
    holds, or that of the agent before where it has none; what the run sets can only be lower.
    """
    merged, asked = recorded, parts.run if parts is not None else None
    if given is not None:
        chosen = {kind: limit for kind in OWN_KINDS if (limit := getattr(given, kind)) is not None}
        merged, asked = replace(recorded, **chosen), _prefer_scopes(given, asked)
    before = parts.agent if parts is not None else recorded
    now = agent if agent is None or has_tenant else replace(agent, tenant=None)
    ceiling = _prefer_scopes(now, before)
    scopes = {name: _merge_scopes(getattr(ceiling, name), getattr(asked, name, None)) for name in SCOPES}
    return replace(merged, **scopes), split_budgets(ceiling, asked)


def client_budget(agent: Budget | None, recorded: Budget, given: Budget) -> Budget:
    """What a client may give to a run that is resumed: no limit above the agent's, or above that of the run."""
    ceiling = _prefer(agent or Budget(), recorded)
    assert ceiling is not None
    return replace(
        given, **{kind: _lower(getattr(ceiling, kind), getattr(given, kind)) for kind in OWN_KINDS}
    )


def _take_scopes(budget: Budget | None) -> Budget:
    """The budget without the limits of the run itself."""
    return replace(NO_LIMITS, **{name: getattr(budget, name, None) for name in SCOPES})


def _prefer_scopes(first: Budget | None, second: Budget | None) -> Budget:
    """The limits of the first for session and tenant, with the kinds of the second that they lack."""
    pairs = {name: (getattr(first, name, None), getattr(second, name, None)) for name in SCOPES}
    return replace(NO_LIMITS, **{name: _prefer(*pair) for name, pair in pairs.items()})


def _merge_scopes(one: Limits | None, other: Limits | None) -> Limits | None:
    if one is None or other is None:
        return one or other
    return merge_limits(one, other)


def _prefer(first: LimitsT | None, second: Limits | None) -> Limits | None:
    """The first limits, with the kinds of the second that they lack."""
    if first is None or second is None:
        return first or second
    kinds = {kind: getattr(second, kind) for kind in OWN_KINDS if getattr(first, kind) is None}
    return replace(first, **kinds)


def _lower(one: Any, other: Any) -> Any:
    return min((each for each in (one, other) if each is not None), default=None)
