"""The worst case of hosted tools: what their uses in one reply may cost."""

from decimal import Decimal

from bridle.core.state import State
from bridle.values.usage import CONCEPT_COUNTS


def price_hosted_tools(state: State) -> Decimal | None:
    """Most that the hosted tools of the next reply may cost; None if the price of one is unknown.

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
        count = CONCEPT_COUNTS.get(hosted.concept)
        if count is None:
            continue
        rate = model.price.hosted_rate(count, state.now) if model.price else None
        if rate is None:
            return None
        if rate.per_reply or count == "containers":
            fixed += rate.usd  # a reply has one container
        else:
            highest = max(highest, rate.usd)
    return fixed + highest * uses
