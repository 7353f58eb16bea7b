"""Shared parts of all budget sources: the protocol, open reservations, and the queue of waiting runs."""

import asyncio
from collections.abc import Awaitable, Callable
from decimal import Decimal
from typing import NamedTuple, Protocol

from bridle.core.budget.shared import FitReservation, reserved_amount, settled_amount
from bridle.values.budget import Amount
from bridle.values.usage import Reservation, Usage


class AdmittedCall(NamedTuple):
    """A tool call that may run after its wait, or the reason why it may not."""

    waited: float = 0.0
    """Seconds for which it waited for its rate limits."""
    refusal: str = ""
    """Notice to the model; empty if the call may run."""
    rule: str = ""


ADMITTED_CALL = AdmittedCall()


class CallCost(NamedTuple):
    """Actual cost of a model call."""

    usage: Usage
    usd: Decimal | None
    """None if unknown."""
    steps: int
    """Replies it produced: 0 or 1."""


CloseReservation = Callable[[Reservation, CallCost | None], Awaitable[None]]
"""Settles a reservation in its source with the actual cost, or releases it (None)."""


class OpenReservation:
    """The amount reserved for one call in one source; only the first `settle` or `release` counts."""

    def __init__(self, reservation: Reservation, close: CloseReservation) -> None:
        self.reservation, self._close, self._open = reservation, close, True

    async def settle(self, cost: CallCost) -> None:
        await self._close_once(cost)

    async def release(self) -> None:
        """Give the amount back: nothing was sent."""
        await self._close_once(None)

    async def _close_once(self, cost: CallCost | None) -> None:
        if self._open:
            self._open = False
            await self._close(self.reservation, cost)


class BudgetSource(Protocol):
    """A budget that calls are reserved in."""

    @property
    def name(self) -> str: ...

    @property
    def shortage_reason(self) -> str:
        """Reason recorded when the run ends because too little is left."""
        ...

    @property
    def limits_tool_calls(self) -> bool: ...

    async def count_call(self, call: str) -> str:
        """Count a tool call that is about to run; returns the reason if it may not run."""
        ...

    async def uncount_call(self, call: str) -> None:
        """Undo `count_call`: the call does not run after all."""
        ...

    async def reserve(self, wanted: Reservation, fit: FitReservation) -> OpenReservation | None:
        """Reserve the worst case of a call, waiting for room if needed; None if it can never fit."""
        ...


class WaitQueue:
    """Runs, on any event loop, that wait for other runs to settle."""

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


def amount_to_settle(reservation: Reservation, cost: CallCost | None) -> Amount:
    """The amount a call is charged with; nothing if it was released."""
    if cost is None:
        return Amount()
    return settled_amount(reserved_amount(reservation), cost.usage, cost.usd, cost.steps)


def _wake_future(turn: "asyncio.Future[None]") -> None:
    if not turn.done():
        turn.set_result(None)
