"""A run inside a tool of another run draws from the other's budget, as deep as they are nested.

Which run it is inside of is known from the context the tool runs in: tasks and threads that the tool starts
inherit it, so nothing has to be passed on.  The inner run sets the worst case of each of its calls aside
here, beside whatever it draws from itself, and settles it here; both runs' limits hold.

    Allowance   of one driver: what is left for the runs inside its tools
    Inside      of one call of its: what a run in there can draw from

A call that was started early waits here before it spends anything: until the reply is complete, the call is
no fact.  When a call has its result, nothing more is spent for it, whoever still runs in there.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from decimal import Decimal
from typing import Protocol, TypeVar

from msgspec.structs import replace

from ..core.account import Fit, Left, amount_of, offer
from ..core.limits import deadline, scopes
from ..core.state import State
from ..ports.clock import Clock
from ..values.event import Event, Prompted
from ..values.pooled import Amount
from ..values.subrun import SubrunCharged, SubrunStarted
from ..values.usage import Budget, Reservation, Usage
from .pool import Paid, Purse, Waiting
from .surely import surely

T = TypeVar("T")
N = TypeVar("N", int, Decimal)
Source = Callable[[str], Purse]
"""What can be drawn from, given the session that draws."""
OVER = "the call of the run around it, in which it ran, is over"


class Around(Protocol):
    """The run around: its driver."""

    session: str
    state: State

    async def record(self, event: Event) -> None: ...


class Sources(Protocol):
    def counts_calls(self, state: State) -> bool: ...

    async def count(self, state: State, call_id: str) -> str: ...

    def sources(self, state: State) -> Sequence[tuple[object, Source]]: ...


class Allowance:
    def __init__(self, run: Around, clock: Clock, purses: Sources) -> None:
        """`purses` are what the run's own calls are drawn from."""
        self.run, self.clock, self._purses = run, clock, purses
        self.reserved, self.holds = Amount(), 0
        self.waiting = Waiting()
        self.home: asyncio.AbstractEventLoop | None = None
        self._calls: dict[str, Inside] = {}

    @property
    def state(self) -> State:
        return self.run.state

    def sources(self) -> Sequence[tuple[object, Source]]:
        return self._purses.sources(self.state)

    def counts_calls(self) -> bool:
        return self._purses.counts_calls(self.state)

    async def count(self, call_id: str) -> str:
        """One more call of a tool, in every budget the run draws from; why not, when no more may be made."""
        return await self._purses.count(self.state, call_id)

    def inside(self, call_id: str, *, early: bool = False) -> "Inside":
        """A call is run.  Whatever ran under its name before was for a reply that never came."""
        self.home = asyncio.get_running_loop()
        self.over(call_id)
        inside = self._calls[call_id] = Inside(self, call_id)
        inside.begun = not early
        return inside

    def started(self, call_id: str) -> None:
        """A call that was run early stands in the log: what is in there may spend."""
        self._calls[call_id].begun = True
        self.waiting.wake()

    def over(self, call_id: str | None = None) -> None:
        """It has its result; without a call, all of them."""
        for each in tuple(self._calls) if call_id is None else (call_id,):
            inside = self._calls.pop(each, None)
            if inside is not None:
                inside.end()
        self.waiting.wake()

    def finish(self) -> None:
        """The run has ended: nothing more can be written for it."""
        self.over()
        self.home = None

    def left(self) -> Left:
        found = Left()
        for scope in scopes(self.state):
            limits, spent = scope.limits, scope.spent
            known = Decimal(0) if spent.usd is None else (limits.usd or Decimal(0)) - spent.usd
            found = Left(
                _least(found.usd, None if limits.usd is None else known),
                _least(found.tokens, None if limits.tokens is None else limits.tokens - spent.usage.total),
                _least(found.steps, None if limits.steps is None else limits.steps - spent.steps),
            )
        return found.minus(self.reserved)


class Inside:
    """Where a run is that was started by a tool."""

    def __init__(self, allowance: Allowance, call_id: str) -> None:
        self.allowance, self.call_id, self._over = allowance, call_id, False
        self.begun = False

    def over(self) -> bool:
        return self._over

    def end(self) -> None:
        self._over = True

    @property
    def session(self) -> str:
        return self.allowance.run.session

    @property
    def tenant(self) -> str:
        return self.allowance.state.run.tenant

    @property
    def caller(self) -> str:
        return self.allowance.state.run.caller

    def sources(self) -> Sequence[tuple[object, Source]]:
        return ((self, lambda by: InnerPurse(self, by)), *self.allowance.sources())

    def narrowed(self, budget: Budget) -> Budget:
        """With no more time than there is left around it."""
        ends = deadline(self.allowance.state)
        if ends is None:
            return budget
        left = max(0.0, ends - self.allowance.clock.now())
        return replace(budget, seconds=left if budget.seconds is None else min(budget.seconds, left))


class InnerPurse:
    """What one inner run draws from the run around it."""

    def __init__(self, inside: Inside, by: str) -> None:
        self._inside, self._allowance, self._by, self._given_up = inside, inside.allowance, by, False
        self.name = f"run around it, {inside.session}"
        self.story = f"of the run around it (session {inside.session}), too little is left for the next call"

    @property
    def counts_calls(self) -> bool:
        return False  # they are limited where they are made

    async def count(self, call: str) -> str:
        return ""

    async def uncount(self, call: str) -> None:
        return None

    async def hold(self, wanted: Reservation, fit: Fit) -> "InnerHold | None":
        if self._inside.over():
            self.story = OVER
            return None
        holding = asyncio.ensure_future(self._at_home(self._hold(wanted, fit)))
        try:
            held = await asyncio.shield(holding)
        except asyncio.CancelledError:
            # Between two event loops nothing is torn off half-way: it is told to stop, and waited for.
            self._given_up = True
            if self._allowance.home is not None:
                self._allowance.home.call_soon_threadsafe(self._allowance.waiting.wake)
            held = await surely(_result(holding))
            if held is not None:
                await held.release()
            raise
        return held

    async def _hold(self, wanted: Reservation, fit: Fit) -> "InnerHold | None":
        allowance = self._allowance
        while not self._inside.over() and not self._given_up:
            if self._inside.begun:
                taken = offer(wanted, fit, allowance.left(), alone=not allowance.holds)
                if taken is None:
                    return None
                if isinstance(taken, Reservation):
                    held = InnerHold(self, replace(taken, pool=self.name))
                    await self._begin(held)
                    return held
            turn = allowance.waiting.queue()
            try:
                await turn
            finally:
                allowance.waiting.leave(turn)
        self.story = OVER
        return None

    async def _begin(self, held: "InnerHold") -> None:
        allowance = self._allowance
        allowance.holds += 1
        allowance.reserved += amount_of(held.reservation)
        if any(each.session == self._by for each in allowance.state.run.subruns):
            return
        try:
            await allowance.run.record(SubrunStarted(call_id=self._inside.call_id, session=self._by))
        except BaseException:
            await held.close(None)
            raise

    async def close(self, reservation: Reservation, came_to: Paid | None) -> None:
        await surely(self._at_home(self._close(reservation, came_to)))

    async def _close(self, reservation: Reservation, came_to: Paid | None) -> None:
        allowance = self._allowance
        try:
            if came_to is not None and allowance.home is not None:
                usage, usd, steps = came_to
                if not usage.total:
                    usage = _all_of(reservation)
                charged = SubrunCharged(
                    call_id=self._inside.call_id,
                    session=self._by,
                    id=reservation.id,
                    usage=usage,
                    usd=usd,
                    steps=steps,
                )
                await allowance.run.record(charged)
        finally:
            allowance.holds -= 1
            allowance.reserved -= amount_of(reservation)
            allowance.waiting.wake()

    async def _at_home(self, work: Coroutine[None, None, T]) -> T:
        """On the event loop of the run around it: an ordinary function's inner run is on another."""
        home = self._allowance.home
        if home is None or home is asyncio.get_running_loop() or home.is_closed():
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, home))


class InnerHold:
    def __init__(self, purse: InnerPurse, reservation: Reservation) -> None:
        self._purse, self.reservation, self._open = purse, reservation, True

    async def settle(self, came_to: Paid) -> None:
        await self.close(came_to)

    async def release(self) -> None:
        await self.close(None)

    async def close(self, came_to: Paid | None) -> None:
        if self._open:
            self._open = False
            await self._purse.close(self.reservation, came_to)


def _all_of(reservation: Reservation) -> Usage:
    """What nobody counted is taken to be all that was set aside."""
    written = reservation.output_tokens
    return Usage(input=reservation.tokens - written, output=written, incomplete=True)


async def _result(task: "asyncio.Future[InnerHold | None]") -> InnerHold | None:
    return await task


_inside: ContextVar[Inside | None] = ContextVar("bridle_inside", default=None)


def here() -> Inside | None:
    """The call that this code runs in, when it is part of a tool of some run."""
    return _inside.get()


@contextmanager
def entered(inside: Inside) -> Iterator[None]:
    token = _inside.set(inside)
    try:
        yield
    finally:
        _inside.reset(token)


def placed(prompted: Prompted) -> Prompted:
    """A prompt as it is said inside a tool: on behalf of the same people, in the time that is left there."""
    inside = here()
    if inside is None:
        return prompted
    return replace(
        prompted,
        budget=inside.narrowed(prompted.budget),
        caller=prompted.caller or inside.caller,
        tenant=prompted.tenant or inside.tenant,
        within=inside.session,
    )


def _least(one: N | None, other: N | None) -> N | None:
    return other if one is None else one if other is None else min(one, other)
