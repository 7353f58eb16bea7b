"""What one call needs of the budgets it draws from: set aside before it is made, settled when it ends.

A run may draw from several: that of the run whose tool it is inside of, its tenant's, a pool.  What a call
may cost is set aside in all of them, or in none and the run ends.  They are asked in one order everywhere,
so that no two runs wait for each other.  However the call ends, what it came to is settled before anything
else can happen; what was set aside for a call that was never sent is given back.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from decimal import Decimal

from msgspec.structs import replace

from bridle.core.budget.limits import (
    fit_reservation,
    output_tokens_room,
    price_partial_reply,
    worst_case_reservation,
)
from bridle.core.compaction.summary import state_for_summarizer
from bridle.core.context.assemble import limit_output
from bridle.core.effects import AskModel
from bridle.core.state import State
from bridle.ports.clock import Clock
from bridle.ports.store import Store
from bridle.run.model_call import ModelCall
from bridle.values.budget import TENANT_BUDGET_PREFIX
from bridle.values.errors import MisuseError
from bridle.values.events import RunEnded
from bridle.values.message import Reply
from bridle.values.result import Delta
from bridle.values.usage import HOURS_AHEAD_SECONDS, Budget, Limits, Reservation, Usage

from .nested import NestedRun, SourceFactory
from .shared import BudgetSource, CallCost, OpenReservation, SharedBudget
from .stored import BudgetReserver, StoredBudget, open_budget_log

BudgetPool = SharedBudget | StoredBudget | None
NO_ROOM_IN_TIME = "the run's time was up before there was room for its next call in a shared budget"
PRICE_VALID_SECONDS = HOURS_AHEAD_SECONDS / 2
"""How long a worst case may wait for room before it is reckoned anew."""


class BudgetSources:
    """Whatever the calls of one session are drawn from."""

    def __init__(self, store: Store, clock: Clock, pool: BudgetPool, around: NestedRun | None) -> None:
        self._store, self._clock, self._pool, self._nested_run = store, clock, pool, around
        self._session, self._driver_start = "", 0

    def set_session(self, session: str, since: int) -> None:
        self._session, self._driver_start = session, since

    def list_sources(self, state: State) -> list[tuple[object, SourceFactory]]:
        """What is around comes first, and the rest by name; nothing is drawn from twice."""
        found = dict(self._nested_run.list_sources()) if self._nested_run is not None else {}
        tenant, run = state.run.budget.tenant, state.run
        if tenant is not None:
            check_tenant_budget(run.budget, run.tenant)
            self._add_stored(found, tenant_budget_name(run.tenant), tenant)
        if isinstance(self._pool, StoredBudget):
            self._add_stored(found, self._pool.name, self._pool.limits)
        elif self._pool is not None:
            pool = self._pool
            found.setdefault(pool, lambda by: pool)
        return sorted(found.items(), key=lambda item: _source_order(item[0]))

    def _add_stored(self, found: dict[object, SourceFactory], name: str, limits: Limits) -> None:
        till = open_budget_log(self._store, name)
        session, since = self._session, self._driver_start

        def drawer(by: str) -> BudgetSource:
            return BudgetReserver(till, limits, self._clock, session, since, "" if by == session else by)

        found.setdefault(till, drawer)

    def open_sources(self, state: State) -> list[BudgetSource]:
        return [source(self._session) for _, source in self.list_sources(state)]

    def limits_tool_calls(self, state: State) -> bool:
        """Whether any of them limits the calls of tools."""
        return any(purse.limits_tool_calls for purse in self.open_sources(state))

    async def count_call(self, state: State, call_id: str) -> str:
        """A call of a tool is about to be made; why it may not be, when it may not."""
        call = f"{self._session}/{call_id}"
        counted: list[BudgetSource] = []
        for purse in self.open_sources(state):
            if used := await purse.count_call(call):
                # It is not made, so it is nobody's: not of those either that had room for it.
                await _await_each(each.uncount_call(call) for each in counted)
                return used
            counted.append(purse)
        return ""

    def now(self) -> float:
        return self._clock.now()

    def make_call_id(self, length: int) -> str:
        """Of a call that is asked when the log has this many records."""
        return f"{self._session}#{length}"


def tenant_budget_name(tenant: str) -> str:
    return f"{TENANT_BUDGET_PREFIX}{tenant}"


def check_tenant_budget(budget: Budget, tenant: str) -> None:
    """What cannot be held is said before anything is asked."""
    if budget.tenant is None:
        return
    if not tenant:
        raise MisuseError("Budget(tenant=…) limits a tenant; say which one: agent.run(…, tenant=NAME)")
    if budget.tenant.seconds is not None:
        raise MisuseError("Budget(tenant=…) takes no seconds: those of many runs at once are nobody's limit")


def check_pool(pool: object) -> None:
    if pool is not None and not isinstance(pool, SharedBudget | StoredBudget):
        raise MisuseError(f"a pool is a SharedBudget(…) or a StoredBudget(name=…, …), not {pool!r}")


@dataclass(frozen=True)
class ReservedCall:
    state: State
    """The session as it was when it was set aside."""
    effect: AskModel
    """What to ask, with no more room for the reply than there is money for."""
    reservations: Sequence[OpenReservation] = ()
    end: RunEnded | None = None
    """How the run ends instead, when there is not enough left."""

    @property
    def reservation(self) -> Reservation | None:
        """Of several, the one that a person has to hear of, or the last and smallest."""
        each = [hold.reservation for hold in self.reservations]
        return next((one for one in each if one.budget_warning), each[-1] if each else None)

    async def send(
        self,
        exchange: ModelCall,
        show: Callable[[Delta], None],
        now: float,
        heard: Callable[[], None],
        cost: Callable[[Usage], Decimal | None],
    ) -> Reply:
        """`Exchange.ask`, settled; `cost` is what some usage costs."""
        reply: Reply | None = None
        try:
            reply = await exchange.send(show, now, heard)
            return reply
        finally:
            used = reply.usage if reply is not None else exchange.usage
            if used is not None and self.reservations:
                paid = cost(used)
                if reply is None:
                    used, paid = price_partial_reply(self.state, used, paid)
                # A summary is no step.
                await self._settle((used, paid, int(reply is not None and not self.effect.summarizes_until)))

    async def _settle(self, came_to: CallCost) -> None:
        await _await_each(hold.settle(came_to) for hold in self.reservations)


@asynccontextmanager
async def reserve(
    purses: BudgetSources, state: State, effect: AskModel, seconds: float | None, length: int
) -> AsyncIterator[ReservedCall]:
    """The worst case of a call, kept from everybody else for as long as the call takes."""
    state = state_for_summarizer(state, effect.request.model.model_key)
    drawn_from = purses.open_sources(state)
    if not drawn_from:
        yield ReservedCall(state, effect)
        return
    holds: list[OpenReservation] = []
    end: RunEnded | None = None
    most = effect.request.max_tokens or output_tokens_room(state)
    try:
        try:
            async with asyncio.timeout(seconds):
                while True:
                    state = replace(state, now=max(state.now, purses.now()))
                    wanted = replace(worst_case_reservation(state, most, ""), id=purses.make_call_id(length))
                    with suppress(_StalePrice):
                        refused = await _reserve_everywhere(drawn_from, state, wanted, holds)
                        break
            if refused is not None:
                end = RunEnded(
                    stop="budget", reason=refused.shortage_reason, partial_text=state.run.partial_text
                )
        except TimeoutError:
            end = RunEnded(stop="seconds", reason=NO_ROOM_IN_TIME, partial_text=state.run.partial_text)
        if end is not None:
            yield ReservedCall(state, effect, end=end)
            return
        room_left = holds[-1].reservation.output_tokens
        if room_left < most:
            effect = replace(effect, request=limit_output(effect.request, room_left))
        yield ReservedCall(state, effect, holds)
    finally:
        await _await_each(hold.release() for hold in holds)  # what was not settled was never sent


async def _await_each(closing: Iterator[Coroutine[None, None, None]]) -> None:
    """All of them, whoever is cancelled or fails on the way: what was spent must not pass for never sent."""
    for close in closing:
        try:
            await close
        finally:
            await _await_each(closing)


class _StalePrice(Exception):
    """What was asked for was reckoned at the prices of another hour."""


async def _reserve_everywhere(
    drawn_from: Sequence[BudgetSource], state: State, wanted: Reservation, holds: list[OpenReservation]
) -> BudgetSource | None:
    """Set it aside everywhere; the one that has too little, if one has."""
    for purse in drawn_from[len(holds) :]:
        patience = asyncio.timeout(PRICE_VALID_SECONDS)
        try:
            async with patience:
                hold = await purse.reserve(wanted, _make_fit(state, wanted))
        except TimeoutError:
            if not patience.expired():
                raise
            for hold in reversed(holds):
                await hold.release()
            holds.clear()
            raise _StalePrice from None
        if hold is None:
            return purse
        holds.append(hold)
        wanted = hold.reservation
    return None


def _make_fit(
    state: State, wanted: Reservation
) -> Callable[[Decimal | None, int | None], Reservation | None]:
    def fit(usd: Decimal | None, tokens: int | None) -> Reservation | None:
        smaller = fit_reservation(state, wanted, usd, tokens)
        return None if smaller is None else replace(smaller, id=wanted.id)

    return fit


def _source_order(key: object) -> tuple[int, str, int]:
    """Two may have one name."""
    return (0, "", 0) if isinstance(key, NestedRun) else (1, str(getattr(key, "name", "")), id(key))
