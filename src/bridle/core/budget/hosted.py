"""The worst case of hosted tools: what their uses in one reply may cost.

Some wires cannot limit the uses of a tool. Where each use is charged, a dollar limit then holds only as far as the
user's own figure: `max_uses` is reserved, and without one no such request is made.
"""

from decimal import Decimal
from typing import NamedTuple

from bridle.core.state import State
from bridle.values.request import HostedSpec
from bridle.values.usage import CONCEPT_COUNTS, HostedRate

from .scopes import has_dollars

USES_LIMIT = "max_uses"
"""The option that a provider with a limit of uses enforces."""
USES_EXAMPLE = 20


class UsePrice(NamedTuple):
    """Dollars of a hosted tool: once for a reply that uses it, and for each use."""

    once: Decimal
    each: Decimal


def price_hosted_tools(state: State) -> Decimal | None:
    """Most that the hosted tools of the next reply may cost; None if a price is unknown or has no bound.

    Some providers limit the uses of all hosted tools together, so that every use may be one of the tool with
    the highest price.
    """
    model, uses = state.settings.model, 0
    fixed = highest = Decimal(0)
    offered = dict(model.abilities.hosted)
    for hosted in state.settings.hosted_tools:
        if hosted.concept not in offered:
            continue
        uses += hosted.max_uses
        price = _price_use(state, hosted)
        if price is None or (_is_unlimited(state, hosted, price) and not hosted.has_max_uses):
            return None
        fixed += price.once
        highest = max(highest, price.each)
    return fixed + highest * uses


def explain_unpriced_tools(state: State) -> str:
    """End of a sentence about a dollar limit that hosted tools make impossible; empty if they do not."""
    name = state.settings.model.name
    for hosted, usd in _list_unlimited(state):
        if not hosted.has_max_uses:
            return (
                f" ({name} has no limit for the uses of {hosted.concept}, ${usd:f} each; for a dollar limit,"
                f" state how many to reserve for a reply, such as hosted.{hosted.concept}({USES_LIMIT}={USES_EXAMPLE}))"
            )
    if price_hosted_tools(state) is not None:
        return ""
    names = ", ".join(hosted.concept for hosted in state.settings.hosted_tools)
    return f" (a price among the hosted tools {names} of {name} is unknown)"


def list_unlimited_uses(state: State) -> tuple[str, ...]:
    """Hosted tools whose uses may exceed what is reserved for them, one sentence each."""
    return tuple(
        f"{hosted.max_uses} uses of the hosted tool {hosted.concept!r} are reserved for a reply, ${usd:f} each:"
        f" {state.settings.model.name} has no limit for them, and more may exceed the budget"
        for hosted, usd in _list_unlimited(state)
        if hosted.has_max_uses and has_dollar_limit(state)
    )


def has_dollar_limit(state: State) -> bool:
    return has_dollars(state.run.budget.limits)


def _list_unlimited(state: State) -> list[tuple[HostedSpec, Decimal]]:
    prices = [(hosted, _price_use(state, hosted)) for hosted in state.settings.hosted_tools]
    return [
        (hosted, price.each)
        for hosted, price in prices
        if price is not None and _is_unlimited(state, hosted, price)
    ]


def _price_use(state: State, hosted: HostedSpec) -> UsePrice | None:
    """Dollars of a hosted tool by all counts that it can incur; None if one of them has no known price."""
    model, once, each = state.settings.model, Decimal(0), Decimal(0)
    counts = [count for concept, count in model.abilities.hosted_counts if concept == hosted.concept]
    if hosted.concept in CONCEPT_COUNTS:
        counts.append(CONCEPT_COUNTS[hosted.concept])
    for count in counts:
        rate = model.price.hosted_rate(count, state.now) if model.price else None
        if rate is None:
            return None
        if _is_charged_once(rate):
            once += rate.usd
        else:
            each += rate.usd
    return UsePrice(once, each)


def _is_unlimited(state: State, hosted: HostedSpec, price: UsePrice) -> bool:
    """True if each use is charged and the wire cannot limit them."""
    enforced = dict(state.settings.model.abilities.hosted).get(hosted.concept, (USES_LIMIT,))
    return price.each > 0 and USES_LIMIT not in enforced


def _is_charged_once(rate: HostedRate) -> bool:
    return rate.per_reply or rate.count == "containers"  # a reply has one container
