"""What one call needs of a shared budget: set aside before it is made, settled when it ends.

However the call ends, what it came to is settled before anything else can happen; what was set aside for
a call that was never sent is given back.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal

from msgspec.structs import replace

from ..core.budget import bill, fitting, room, worst_case
from ..core.context import roomed
from ..core.effects import AskModel
from ..core.state import State
from ..core.summary import asked_now_by
from ..values.delta import Delta
from ..values.event import RunEnded
from ..values.message import Reply
from ..values.usage import Reservation, Usage
from .asking import Exchange
from .pool import Hold, SharedBudget

Pool = SharedBudget | None
NO_ROOM_IN_TIME = "the run's time was up before there was room for its next call in a shared budget"


@dataclass(frozen=True)
class Held:
    state: State
    """The session as it was when it was set aside."""
    effect: AskModel
    """What to ask, with no more room for the reply than there is money for."""
    hold: Hold | None = None
    end: RunEnded | None = None
    """How the run ends instead, when there is not enough left."""

    @property
    def reservation(self) -> Reservation | None:
        return self.hold.reservation if self.hold else None

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
            if self.hold is not None and used is not None:
                paid = cost(used)
                if reply is None:
                    used, paid = bill(self.state, used, paid)
                self.hold.settle(paid, used.total or None)


@asynccontextmanager
async def set_aside(pool: Pool, state: State, effect: AskModel, seconds: float | None) -> AsyncIterator[Held]:
    """The worst case of a call, kept from everybody else for as long as the call takes."""
    state = asked_now_by(state, effect.request.model.seat)
    if pool is None:
        yield Held(state, effect)
        return
    wanted = worst_case(state, effect.request.max_tokens or room(state), pool.name)
    end = RunEnded(stop="seconds", reason=NO_ROOM_IN_TIME, partial=state.run.partial)
    hold: Hold | None = None
    try:
        async with asyncio.timeout(seconds):
            hold = await pool.hold(wanted, lambda usd, tokens: fitting(state, wanted, usd, tokens))
        end = replace(end, stop="budget", reason=pool.story)
    except TimeoutError:
        pass  # `end` says so
    if hold is None:
        yield Held(state, effect, end=end)
        return
    most = hold.reservation.output_tokens
    if most < wanted.output_tokens:
        effect = replace(effect, request=roomed(effect.request, most))
    try:
        yield Held(state, effect, hold)
    finally:
        hold.release()  # what was not settled was never sent
