"""`SharedBudget`: a budget in memory that several runs use at once.  stored.py has persistent ones.

Each run reserves the worst case of its next call.  If that does not fit next to the reservations of other
runs, it waits until one of them is settled.  If it does not fit even alone, it is reduced to what is left, and
if no useful reply fits, the run ends.  So the amount spent plus reserved never exceeds the limit, with any
number of runs and threads.

The exception is a call that costs more than its worst case, because the provider counted more prompt tokens
than estimated.  `excess` is the sum of such differences, and the limit is never exceeded by more than that.
"""

import threading
from decimal import Decimal

from msgspec.structs import replace

from bridle.core.budget.shared import (
    FitReservation,
    RemainingBudget,
    budget_warning,
    explain_tool_calls_used,
    offer_reservation,
    remaining_budget,
    reserved_amount,
)
from bridle.values.budget import Amount
from bridle.values.usage import LimitPeriod, Limits, Reservation

from .source import CallCost, OpenReservation, WaitQueue, amount_to_settle


class SharedBudget:
    """The limit of several agents' runs together: `Agent(..., pool=SharedBudget(usd=5))`."""

    def __init__(
        self,
        *,
        usd: Decimal | float | str | None = None,
        tokens: int | None = None,
        steps: int | None = None,
        tool_calls: int | None = None,
        wrap_up: float | None = None,
        name: str = "shared",
    ) -> None:
        self.name, self.limits = name, make_pool_limits(usd, tokens, steps, tool_calls, wrap_up)
        self.spent, self.reserved, self.excess = Amount(), Amount(), Amount()
        self._open_count = 0
        self._lock = threading.Lock()
        self._wait_queue = WaitQueue()

    @property
    def usd(self) -> Decimal | None:
        return self.limits.usd

    @property
    def overshoot_usd(self) -> Decimal:
        """Amount by which the limit was exceeded: 0 unless calls cost more than their worst case."""
        return Decimal(0) if self.usd is None else max(Decimal(0), self.spent.usd - self.usd)

    @property
    def shortage_reason(self) -> str:
        return explain_shortage(self.name, self.limits, self.spent)

    @property
    def limits_tool_calls(self) -> bool:
        return self.limits.tool_calls is not None

    async def count_call(self, call: str) -> str:
        with self._lock:
            used = explain_tool_calls_used(self.limits, self.spent, self.name)
            if self.limits_tool_calls and not used:
                self.spent += Amount(tool_calls=1)
            return used

    async def uncount_call(self, call: str) -> None:
        if self.limits_tool_calls:
            with self._lock:
                self.spent -= Amount(tool_calls=1)

    def remaining(self) -> RemainingBudget:
        return remaining_budget(self.limits).minus(self.spent).minus(self.reserved)

    async def reserve(self, wanted: Reservation, fit: FitReservation) -> OpenReservation | None:
        while True:
            with self._lock:
                taken = offer_reservation(wanted, fit, self.remaining(), alone=not self._open_count)
                if taken is None:
                    return None
                if isinstance(taken, Reservation):
                    self._open_count += 1
                    # defect: pool-reservation
                    self.reserved += reserved_amount(taken)
                    used = budget_warning(self.limits, self.spent + self.reserved, self.name)
                    return OpenReservation(replace(taken, pool=self.name, budget_warning=used), self._close)
                turn = self._wait_queue.join()
            try:
                await turn
            finally:
                with self._lock:
                    self._wait_queue.leave(turn)

    async def _close(self, reservation: Reservation, cost: CallCost | None) -> None:
        amount = amount_to_settle(reservation, cost)
        with self._lock:
            self._open_count -= 1
            self.reserved -= reserved_amount(reservation)
            self.spent += amount
            self.excess += amount.excess_over(reserved_amount(reservation))
            self._wait_queue.wake()


def make_pool_limits(
    usd: Decimal | float | str | None,
    tokens: int | None,
    steps: int | None,
    tool_calls: int | None,
    wrap_up: float | None,
    period: LimitPeriod | None = None,
    zone: str = "",
) -> Limits:
    """The limits of a pool; `Limits` converts numbers given as strings or floats."""
    return Limits(
        usd=usd, tokens=tokens, steps=steps, tool_calls=tool_calls, wrap_up=wrap_up, period=period, zone=zone
    )


def explain_shortage(name: str, limits: Limits, spent: Amount) -> str:
    used = []
    for kind in remaining_budget(limits).left:
        part, limit = getattr(spent, kind), getattr(limits, kind)
        if kind == "usd":
            used.append(f"${part:.4f} of ${limit:f} spent")
        else:
            used.append(
                f"{part} of {limit} {kind.replace('_', ' ')} {'taken' if kind == 'steps' else 'used'}"
            )
    return f"of the budget {name!r}, {' and '.join(used)}; the next call would not fit"
