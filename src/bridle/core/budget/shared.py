"""How a shared budget stands, and what may be set aside of it.

    offer       may this call be made now, with less room, later, or never?
    Account     a budget's line in a store, added up
    evidence    what the log of a session tells of a call that nobody is left to settle

The rule for a caller that died: what its log shows to have ended is settled by its log; what its log shows
never to have been asked was never sent, and is given back; whatever was asked and has no end there may
have been paid for, so all that was set aside counts as spent.
"""

from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Final, NamedTuple

from bridle.values import events as e
from bridle.values.budget import Amount, BudgetReserved, BudgetSettled, BudgetSnapshot, SubrunCharged
from bridle.values.record import Record
from bridle.values.usage import Limits, Reservation, Usage

FitReservation = Callable[[Decimal | None, int | None], Reservation | None]
"""What to set aside instead, when this much is left at most; None when that is of no use."""
RETRY_LATER: Final = "later"


class RemainingBudget(NamedTuple):
    usd: Decimal | None = None
    tokens: int | None = None
    steps: int | None = None

    def minus(self, amount: Amount) -> "RemainingBudget":
        return RemainingBudget(
            None if self.usd is None else self.usd - amount.usd,
            None if self.tokens is None else self.tokens - amount.tokens,
            None if self.steps is None else self.steps - amount.steps,
        )

    def can_cover(self, wanted: Reservation) -> bool:
        if self.usd is not None and (wanted.usd is None or wanted.usd > self.usd):
            return False  # what a call costs is unknown, or too much
        if self.steps is not None and self.steps < 1:
            return False
        return self.tokens is None or wanted.tokens <= self.tokens


def remaining_budget(limits: Limits) -> RemainingBudget:
    return RemainingBudget(limits.usd, limits.tokens, limits.steps)


def reserved_amount(reservation: Reservation) -> Amount:
    return Amount(usd=reservation.usd or Decimal(0), tokens=reservation.tokens, steps=1)


def settled_amount(reservation: Reservation, usd: Decimal | None, tokens: int | None, steps: int) -> Amount:
    """What a call came to; all that was set aside, where nobody can tell."""
    whole = reserved_amount(reservation)
    return Amount(
        usd=whole.usd if usd is None else usd, tokens=whole.tokens if tokens is None else tokens, steps=steps
    )


def offer_reservation(
    wanted: Reservation, fit: FitReservation, left: RemainingBudget, *, alone: bool
) -> Reservation | str | None:
    """What to set aside; `LATER` when others have to settle first; None when there never will be enough."""
    if left.can_cover(wanted):
        return wanted
    if not alone:
        return RETRY_LATER
    smaller = fit(left.usd, left.tokens)
    return smaller if smaller is not None and left.can_cover(smaller) else None


def explain_tool_calls_used(limits: Limits, used: Amount, name: str) -> str:
    """How many calls of tools were made of a budget, when no more may be."""
    if limits.tool_calls is None or used.tool_calls < limits.tool_calls:
        return ""
    return f"{used.tool_calls:,} of the {limits.tool_calls:,} tool calls of {name}"


def budget_warning(limits: Limits, used: Amount, name: str) -> str:
    """What is used of a budget, when that is so much that the model is to be told."""
    if limits.wrap_up is None:
        return ""
    shares: list[tuple[Decimal | int, Decimal | int | None, str]] = [
        (used.usd, limits.usd, f"${used.usd:.4f} of the ${limits.usd}"),
        (used.tokens, limits.tokens, f"{used.tokens:,} of the {limits.tokens} tokens"),
        (used.steps, limits.steps, f"{used.steps:,} of the {limits.steps} steps"),
        (used.tool_calls, limits.tool_calls, f"{used.tool_calls:,} of the {limits.tool_calls} tool calls"),
    ]
    for part, limit, words in shares:
        if limit and float(part) / float(limit) >= limits.wrap_up:
            return f"{words} of {name}"
    return ""


class BudgetAccount:
    """What the records of a budget's line add up to."""

    def __init__(self, carried: BudgetSnapshot | None = None) -> None:
        self.spent = carried.spent if carried else Amount()
        self.excess = carried.excess if carried else Amount()
        """What calls came to beyond what was set aside for them."""
        self.open_reservations = {each.id: each for each in carried.open_reservations} if carried else {}
        self._presumed = {each.id: each for each in carried.presumed} if carried else {}
        self.limits = carried.limits if carried else Limits()
        """What was last held against."""
        self.continued_in: BudgetSnapshot | None = None
        """Where the line goes on."""

    @property
    def reserved(self) -> Amount:
        total = Amount()
        for each in self.open_reservations.values():
            total += each.amount
        return total

    def apply_event(self, event: e.Event) -> None:
        match event:
            case BudgetReserved():
                self.open_reservations[event.id], self.limits = event, event.limits
            case BudgetSettled():
                self._settle(event)
            case BudgetSnapshot():
                self.continued_in = event

    def make_snapshot(self, generation: int) -> BudgetSnapshot:
        return BudgetSnapshot(
            generation=generation,
            spent=self.spent,
            excess=self.excess,
            open_reservations=tuple(self.open_reservations.values()),
            limits=self.limits,
            presumed=tuple(self._presumed.values()),
        )

    def _settle(self, event: BudgetSettled) -> None:
        """What was only presumed gives way to what its caller says, if it turns out to be alive."""
        before = self._presumed.pop(event.id, None)
        if before is not None:
            self.spent -= before.amount
        set_aside = self.open_reservations.pop(event.id, None)
        self.spent += event.amount
        if set_aside is not None:
            self.excess += event.amount.excess_over(set_aside.amount)
        if event.source == "presumed":
            self._presumed[event.id] = event


def settle_from_log(reserved: BudgetReserved, own: Iterable[Record], its: Iterable[Record]) -> BudgetSettled:
    """What became of a call whose caller is gone: `own` is the log it was set aside under, `its` that of
    the session that asked, when that is another one and in reach."""
    told = list(its) if reserved.nested_session else list(own)
    asked = False
    for record in told:
        event = record.event
        if not asked:
            asked = isinstance(event, e.ModelAsked) and _has_id(event.reservation, reserved.id)
        elif isinstance(event, e.ModelReplied):
            return _make_settlement(
                reserved, event.reply.usage, event.usd, steps=int(not event.summarizes_until)
            )
        elif isinstance(event, e.ModelFailed | e.RunEnded):
            if event.usage is None:
                return BudgetSettled(id=reserved.id, source="by its log")
            return _make_settlement(reserved, event.usage, event.usd, steps=0)
        elif isinstance(event, e.Resumed | e.Prompted | e.ModelAsked):
            break
    for record in own if reserved.nested_session else ():
        event = record.event
        if isinstance(event, SubrunCharged) and event.id == reserved.id:
            return _make_settlement(reserved, event.usage, event.usd, steps=event.steps)
    if told and not asked:
        return BudgetSettled(id=reserved.id, source="never sent")
    return BudgetSettled(id=reserved.id, amount=reserved.amount, source="presumed")


def _has_id(reservation: Reservation | None, id_: str) -> bool:
    return reservation is not None and reservation.id == id_


def _make_settlement(
    reserved: BudgetReserved, usage: Usage, usd: Decimal | None, steps: int
) -> BudgetSettled:
    """What nobody counted is taken to be all of it."""
    if not usage.prompt:
        return BudgetSettled(id=reserved.id, amount=reserved.amount, source="presumed")
    dollars = reserved.amount.usd if usd is None else usd
    amount = Amount(usd=dollars, tokens=usage.total, steps=steps)
    return BudgetSettled(id=reserved.id, amount=amount, source="by its log")
