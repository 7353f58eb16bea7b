"""Budgets that several runs draw from at once: the worst case is set aside before a call, and settled after.

Each run asks for what its next call may cost at most.  What does not fit beside what others have set
aside waits until one of them is settled; what would not fit even if nobody else was there is cut down
to what is left, and when nothing useful is left, the run ends.  So the sum of what was spent and what
is set aside never exceeds the limit, however many runs there are, on however many threads.

The one thing that can: a call that comes dearer than its worst case, because the provider counted more
tokens in its prompt than were estimated.  `excess` is what such calls came to beyond what was set aside
for them, and the limit is never exceeded by more than that.

    Purse           what a run can draw from, whatever it is
    SharedBudget    one in this process, for as long as it lives; run/budget/stored.py has those that outlive it
"""

import asyncio
import threading
from decimal import Decimal
from typing import Protocol

from msgspec.structs import replace

from bridle.core.budget.shared import (
    FitReservation,
    RemainingBudget,
    budget_warning,
    explain_tool_calls_used,
    offer_reservation,
    remaining_budget,
    reserved_amount,
    settled_amount,
)
from bridle.values.budget import Amount
from bridle.values.usage import Limits, Reservation, Usage

CallCost = tuple[Usage, Decimal | None, int]
"""What a call came to: tokens, dollars or None when nobody knows, and how many replies it brought."""


class OpenReservation(Protocol):
    """What is set aside for one call, until it is settled; settling it again does nothing."""

    @property
    def reservation(self) -> Reservation: ...

    async def settle(self, came_to: CallCost) -> None: ...

    async def release(self) -> None:
        """Nothing was sent."""
        ...


class BudgetSource(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def shortage_reason(self) -> str:
        """Why a run ends when there is not enough left."""
        ...

    @property
    def limits_tool_calls(self) -> bool:
        """Whether it limits the calls of tools."""
        ...

    async def count_call(self, call: str) -> str:
        """One call of a tool is about to be made; why it may not be, when it may not."""
        ...

    async def uncount_call(self, call: str) -> None:
        """It was counted, and is not made after all."""
        ...

    async def reserve(self, wanted: Reservation, fit: FitReservation) -> OpenReservation | None:
        """Set the worst case of a call aside, when there is room; None when there never will be."""
        ...


class WaitQueue:
    """Runs that wait for others to settle, on whatever event loops."""

    def __init__(self) -> None:
        self._waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []

    def join(self) -> "asyncio.Future[None]":
        turn = asyncio.get_running_loop().create_future()
        self._waiters.append((turn.get_loop(), turn))
        return turn

    def leave(self, turn: "asyncio.Future[None]") -> None:
        self._waiters = [each for each in self._waiters if each[1] is not turn]

    def wake(self) -> None:
        turns, self._waiters = self._waiters, []
        for loop, turn in turns:
            if not loop.is_closed():
                loop.call_soon_threadsafe(_wake_future, turn)


class SharedBudget:
    """What all runs of some agents may use together: `Agent(..., pool=SharedBudget(usd=5))`."""

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
        """By how much the limit was exceeded: nought, unless calls came dearer than their worst case."""
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

    async def reserve(self, wanted: Reservation, fit: FitReservation) -> "PoolReservation | None":
        while True:
            with self._lock:
                taken = offer_reservation(wanted, fit, self.remaining(), alone=not self._open_count)
                if taken is None:
                    return None
                if isinstance(taken, Reservation):
                    self._open_count += 1
                    self.reserved += reserved_amount(taken)
                    used = budget_warning(self.limits, self.spent + self.reserved, self.name)
                    return PoolReservation(self, replace(taken, pool=self.name, budget_warning=used))
                turn = self._wait_queue.join()
            try:
                await turn
            finally:
                with self._lock:
                    self._wait_queue.leave(turn)

    def settle_reservation(self, reservation: Reservation, came_to: Amount) -> None:
        """A call has ended."""
        with self._lock:
            self._open_count -= 1
            self.reserved -= reserved_amount(reservation)
            self.spent += came_to
            self.excess += came_to.excess_over(reserved_amount(reservation))
            self._wait_queue.wake()


class PoolReservation:
    def __init__(self, pool: SharedBudget, reservation: Reservation) -> None:
        self._pool, self.reservation, self._open = pool, reservation, True

    async def settle(self, came_to: CallCost) -> None:
        usage, usd, steps = came_to
        self._close(settled_amount(self.reservation, usd, usage.total or None, steps))

    async def release(self) -> None:
        self._close(Amount())

    def _close(self, amount: Amount) -> None:
        if self._open:
            self._open = False
            self._pool.settle_reservation(self.reservation, amount)


def make_pool_limits(
    usd: Decimal | float | str | None,
    tokens: int | None,
    steps: int | None,
    tool_calls: int | None,
    wrap_up: float | None,
) -> Limits:
    """It takes numbers and words for them."""
    return Limits(usd=usd, tokens=tokens, steps=steps, tool_calls=tool_calls, wrap_up=wrap_up)  # type: ignore[arg-type]


def explain_shortage(name: str, limits: Limits, spent: Amount) -> str:
    told = []
    if limits.usd is not None:
        told.append(f"${spent.usd:.4f} of ${limits.usd:f} spent")
    if limits.tokens is not None:
        told.append(f"{spent.tokens} of {limits.tokens} tokens used")
    if limits.steps is not None:
        told.append(f"{spent.steps} of {limits.steps} steps taken")
    return f"of the budget {name!r}, {' and '.join(told)}; the next call would not fit"


def _wake_future(turn: "asyncio.Future[None]") -> None:
    if not turn.done():
        turn.set_result(None)
