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

from ..core.budget import bill, fitting, room, worst_case
from ..core.context import roomed
from ..core.effects import AskModel
from ..core.state import State
from ..core.summary import asked_now_by
from ..ports.clock import Clock
from ..ports.store import Store
from ..values.delta import Delta
from ..values.errors import MisuseError
from ..values.event import RunEnded
from ..values.message import Reply
from ..values.pooled import TENANT
from ..values.usage import HOURS_AHEAD_SECONDS, Budget, Limits, Reservation, Usage
from .asking import Exchange
from .inside import Inside, Source
from .pool import Hold, Paid, Purse, SharedBudget
from .till import Drawer, StoredBudget, till_of

Pool = SharedBudget | StoredBudget | None
NO_ROOM_IN_TIME = "the run's time was up before there was room for its next call in a shared budget"
PRICE_SECONDS = HOURS_AHEAD_SECONDS / 2
"""How long a worst case may wait for room before it is reckoned anew."""


class Purses:
    """Whatever the calls of one session are drawn from."""

    def __init__(self, store: Store, clock: Clock, pool: Pool, around: Inside | None) -> None:
        self._store, self._clock, self._pool, self._around = store, clock, pool, around
        self._session, self._since = "", 0

    def taken_over(self, session: str, since: int) -> None:
        self._session, self._since = session, since

    def sources(self, state: State) -> list[tuple[object, Source]]:
        """What is around comes first, and the rest by name; nothing is drawn from twice."""
        found = dict(self._around.sources()) if self._around is not None else {}
        tenant, run = state.run.budget.tenant, state.run
        if tenant is not None:
            check_shared(run.budget, run.tenant)
            self._add(found, tenant_pool(run.tenant), tenant)
        if isinstance(self._pool, StoredBudget):
            self._add(found, self._pool.name, self._pool.limits)
        elif self._pool is not None:
            pool = self._pool
            found.setdefault(pool, lambda by: pool)
        return sorted(found.items(), key=lambda item: _order(item[0]))

    def _add(self, found: dict[object, Source], name: str, limits: Limits) -> None:
        till = till_of(self._store, name)
        session, since = self._session, self._since

        def drawer(by: str) -> Purse:
            return Drawer(till, limits, self._clock, session, since, "" if by == session else by)

        found.setdefault(till, drawer)

    def of(self, state: State) -> list[Purse]:
        return [source(self._session) for _, source in self.sources(state)]

    def counts_calls(self, state: State) -> bool:
        """Whether any of them limits the calls of tools."""
        return any(purse.counts_calls for purse in self.of(state))

    async def count(self, state: State, call_id: str) -> str:
        """A call of a tool is about to be made; why it may not be, when it may not."""
        call = f"{self._session}/{call_id}"
        counted: list[Purse] = []
        for purse in self.of(state):
            if used := await purse.count(call):
                # It is not made, so it is nobody's: not of those either that had room for it.
                await _each(each.uncount(call) for each in counted)
                return used
            counted.append(purse)
        return ""

    def now(self) -> float:
        return self._clock.now()

    def call_id(self, length: int) -> str:
        """Of a call that is asked when the log has this many records."""
        return f"{self._session}#{length}"


def tenant_pool(tenant: str) -> str:
    return f"{TENANT}{tenant}"


def check_shared(budget: Budget, tenant: str) -> None:
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
class Held:
    state: State
    """The session as it was when it was set aside."""
    effect: AskModel
    """What to ask, with no more room for the reply than there is money for."""
    holds: Sequence[Hold] = ()
    end: RunEnded | None = None
    """How the run ends instead, when there is not enough left."""

    @property
    def reservation(self) -> Reservation | None:
        """Of several, the one that a person has to hear of, or the last and smallest."""
        each = [hold.reservation for hold in self.holds]
        return next((one for one in each if one.used), each[-1] if each else None)

    async def ask(
        self,
        exchange: Exchange,
        show: Callable[[Delta], None],
        now: float,
        heard: Callable[[], None],
        cost: Callable[[Usage], Decimal | None],
    ) -> Reply:
        """`Exchange.ask`, settled; `cost` is what some usage costs."""
        reply: Reply | None = None
        try:
            reply = await exchange.ask(show, now, heard)
            return reply
        finally:
            used = reply.usage if reply is not None else exchange.usage
            if used is not None and self.holds:
                paid = cost(used)
                if reply is None:
                    used, paid = bill(self.state, used, paid)
                # A summary is no step.
                await self._settle((used, paid, int(reply is not None and not self.effect.summary_of)))

    async def _settle(self, came_to: Paid) -> None:
        await _each(hold.settle(came_to) for hold in self.holds)


@asynccontextmanager
async def set_aside(
    purses: Purses, state: State, effect: AskModel, seconds: float | None, length: int
) -> AsyncIterator[Held]:
    """The worst case of a call, kept from everybody else for as long as the call takes."""
    state = asked_now_by(state, effect.request.model.seat)
    drawn_from = purses.of(state)
    if not drawn_from:
        yield Held(state, effect)
        return
    holds: list[Hold] = []
    end: RunEnded | None = None
    most = effect.request.max_tokens or room(state)
    try:
        try:
            async with asyncio.timeout(seconds):
                while True:
                    state = replace(state, now=max(state.now, purses.now()))
                    wanted = replace(worst_case(state, most, ""), id=purses.call_id(length))
                    with suppress(_Stale):
                        refused = await _taken(drawn_from, state, wanted, holds)
                        break
            if refused is not None:
                end = RunEnded(stop="budget", reason=refused.story, partial=state.run.partial)
        except TimeoutError:
            end = RunEnded(stop="seconds", reason=NO_ROOM_IN_TIME, partial=state.run.partial)
        if end is not None:
            yield Held(state, effect, end=end)
            return
        room_left = holds[-1].reservation.output_tokens
        if room_left < most:
            effect = replace(effect, request=roomed(effect.request, room_left))
        yield Held(state, effect, holds)
    finally:
        await _each(hold.release() for hold in holds)  # what was not settled was never sent


async def _each(closing: Iterator[Coroutine[None, None, None]]) -> None:
    """All of them, whoever is cancelled or fails on the way: what was spent must not pass for never sent."""
    for close in closing:
        try:
            await close
        finally:
            await _each(closing)


class _Stale(Exception):
    """What was asked for was reckoned at the prices of another hour."""


async def _taken(
    drawn_from: Sequence[Purse], state: State, wanted: Reservation, holds: list[Hold]
) -> Purse | None:
    """Set it aside everywhere; the one that has too little, if one has."""
    for purse in drawn_from[len(holds) :]:
        patience = asyncio.timeout(PRICE_SECONDS)
        try:
            async with patience:
                hold = await purse.hold(wanted, _fitting(state, wanted))
        except TimeoutError:
            if not patience.expired():
                raise
            for hold in reversed(holds):
                await hold.release()
            holds.clear()
            raise _Stale from None
        if hold is None:
            return purse
        holds.append(hold)
        wanted = hold.reservation
    return None


def _fitting(state: State, wanted: Reservation) -> Callable[[Decimal | None, int | None], Reservation | None]:
    def fit(usd: Decimal | None, tokens: int | None) -> Reservation | None:
        smaller = fitting(state, wanted, usd, tokens)
        return None if smaller is None else replace(smaller, id=wanted.id)

    return fit


def _order(key: object) -> tuple[int, str, int]:
    """Two may have one name."""
    return (0, "", 0) if isinstance(key, Inside) else (1, str(getattr(key, "name", "")), id(key))
