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

from bridle.core.budget.limits import deadline, limit_scopes
from bridle.core.budget.shared import FitReservation, RemainingBudget, offer_reservation, reserved_amount
from bridle.core.state import State
from bridle.ports.clock import Clock
from bridle.run.cancellation import finish_despite_cancel
from bridle.values.budget import Amount, SubrunCharged, SubrunStarted
from bridle.values.events import Event, Prompted
from bridle.values.usage import Budget, Reservation, Usage

from .shared import BudgetSource, CallCost, WaitQueue

T = TypeVar("T")
N = TypeVar("N", int, Decimal)
SourceFactory = Callable[[str], BudgetSource]
"""What can be drawn from, given the session that draws."""
CALL_IS_OVER = "the call of the run around it, in which it ran, is over"


class ParentRun(Protocol):
    """The run around: its driver."""

    session: str
    state: State

    async def record(self, event: Event) -> None: ...


class SourceLister(Protocol):
    def limits_tool_calls(self, state: State) -> bool: ...

    async def count_call(self, state: State, call_id: str) -> str: ...

    def list_sources(self, state: State) -> Sequence[tuple[object, SourceFactory]]: ...


class ParentBudget:
    def __init__(self, run: ParentRun, clock: Clock, purses: SourceLister) -> None:
        """`purses` are what the run's own calls are drawn from."""
        self.run, self.clock, self._budget_sources = run, clock, purses
        self.reserved, self.open_count = Amount(), 0
        self.wait_queue = WaitQueue()
        self.event_loop: asyncio.AbstractEventLoop | None = None
        self._calls: dict[str, NestedRun] = {}

    @property
    def state(self) -> State:
        return self.run.state

    def list_sources(self) -> Sequence[tuple[object, SourceFactory]]:
        return self._budget_sources.list_sources(self.state)

    def limits_tool_calls(self) -> bool:
        return self._budget_sources.limits_tool_calls(self.state)

    async def count_call(self, call_id: str) -> str:
        """One more call of a tool, in every budget the run draws from; why not, when no more may be made."""
        return await self._budget_sources.count_call(self.state, call_id)

    def begin_call(self, call_id: str, *, early: bool = False) -> "NestedRun":
        """A call is run.  Whatever ran under its name before was for a reply that never came."""
        self.event_loop = asyncio.get_running_loop()
        self.end_call(call_id)
        inside = self._calls[call_id] = NestedRun(self, call_id)
        inside.is_confirmed = not early
        return inside

    def confirm_call(self, call_id: str) -> None:
        """A call that was run early stands in the log: what is in there may spend."""
        self._calls[call_id].is_confirmed = True
        self.wait_queue.wake()

    def end_call(self, call_id: str | None = None) -> None:
        """It has its result; without a call, all of them."""
        for each in tuple(self._calls) if call_id is None else (call_id,):
            inside = self._calls.pop(each, None)
            if inside is not None:
                inside.end()
        self.wait_queue.wake()

    def finish(self) -> None:
        """The run has ended: nothing more can be written for it."""
        self.end_call()
        self.event_loop = None

    def remaining(self) -> RemainingBudget:
        found = RemainingBudget()
        for scope in limit_scopes(self.state):
            limits, spent = scope.limits, scope.spent
            known = Decimal(0) if spent.usd is None else (limits.usd or Decimal(0)) - spent.usd
            found = RemainingBudget(
                _smaller_limit(found.usd, None if limits.usd is None else known),
                _smaller_limit(
                    found.tokens, None if limits.tokens is None else limits.tokens - spent.usage.total
                ),
                _smaller_limit(found.steps, None if limits.steps is None else limits.steps - spent.steps),
            )
        return found.minus(self.reserved)


class NestedRun:
    """Where a run is that was started by a tool."""

    def __init__(self, allowance: ParentBudget, call_id: str) -> None:
        self.parent_budget, self.call_id, self._over = allowance, call_id, False
        self.is_confirmed = False

    def is_over(self) -> bool:
        return self._over

    def end(self) -> None:
        self._over = True

    @property
    def session(self) -> str:
        return self.parent_budget.run.session

    @property
    def tenant(self) -> str:
        return self.parent_budget.state.run.tenant

    @property
    def caller(self) -> str:
        return self.parent_budget.state.run.caller

    def list_sources(self) -> Sequence[tuple[object, SourceFactory]]:
        return ((self, lambda by: NestedBudgetSource(self, by)), *self.parent_budget.list_sources())

    def limit_seconds(self, budget: Budget) -> Budget:
        """With no more time than there is left around it."""
        ends = deadline(self.parent_budget.state)
        if ends is None:
            return budget
        left = max(0.0, ends - self.parent_budget.clock.now())
        return replace(budget, seconds=left if budget.seconds is None else min(budget.seconds, left))


class NestedBudgetSource:
    """What one inner run draws from the run around it."""

    def __init__(self, inside: NestedRun, by: str) -> None:
        self._nested_run, self._parent_budget, self._by, self._given_up = (
            inside,
            inside.parent_budget,
            by,
            False,
        )
        self.name = f"run around it, {inside.session}"
        self.shortage_reason = (
            f"of the run around it (session {inside.session}), too little is left for the next call"
        )

    @property
    def limits_tool_calls(self) -> bool:
        return False  # they are limited where they are made

    async def count_call(self, call: str) -> str:
        return ""

    async def uncount_call(self, call: str) -> None:
        return None

    async def reserve(self, wanted: Reservation, fit: FitReservation) -> "NestedReservation | None":
        if self._nested_run.is_over():
            self.shortage_reason = CALL_IS_OVER
            return None
        holding = asyncio.ensure_future(self._run_on_parent_loop(self._reserve(wanted, fit)))
        try:
            held = await asyncio.shield(holding)
        except asyncio.CancelledError:
            # Between two event loops nothing is torn off half-way: it is told to stop, and waited for.
            self._given_up = True
            if self._parent_budget.event_loop is not None:
                self._parent_budget.event_loop.call_soon_threadsafe(self._parent_budget.wait_queue.wake)
            held = await finish_despite_cancel(_await_future(holding))
            if held is not None:
                await held.release()
            raise
        return held

    async def _reserve(self, wanted: Reservation, fit: FitReservation) -> "NestedReservation | None":
        allowance = self._parent_budget
        while not self._nested_run.is_over() and not self._given_up:
            if self._nested_run.is_confirmed:
                taken = offer_reservation(wanted, fit, allowance.remaining(), alone=not allowance.open_count)
                if taken is None:
                    return None
                if isinstance(taken, Reservation):
                    held = NestedReservation(self, replace(taken, pool=self.name))
                    await self._record_reservation(held)
                    return held
            turn = allowance.wait_queue.join()
            try:
                await turn
            finally:
                allowance.wait_queue.leave(turn)
        self.shortage_reason = CALL_IS_OVER
        return None

    async def _record_reservation(self, held: "NestedReservation") -> None:
        allowance = self._parent_budget
        allowance.open_count += 1
        allowance.reserved += reserved_amount(held.reservation)
        if any(each.session == self._by for each in allowance.state.run.subruns):
            return
        try:
            await allowance.run.record(SubrunStarted(call_id=self._nested_run.call_id, session=self._by))
        except BaseException:
            await held.close(None)
            raise

    async def close(self, reservation: Reservation, came_to: CallCost | None) -> None:
        await finish_despite_cancel(self._run_on_parent_loop(self._close(reservation, came_to)))

    async def _close(self, reservation: Reservation, came_to: CallCost | None) -> None:
        allowance = self._parent_budget
        try:
            if came_to is not None and allowance.event_loop is not None:
                usage, usd, steps = came_to
                if not usage.total:
                    usage = _usage_of_reservation(reservation)
                charged = SubrunCharged(
                    call_id=self._nested_run.call_id,
                    session=self._by,
                    id=reservation.id,
                    usage=usage,
                    usd=usd,
                    steps=steps,
                )
                await allowance.run.record(charged)
        finally:
            allowance.open_count -= 1
            allowance.reserved -= reserved_amount(reservation)
            allowance.wait_queue.wake()

    async def _run_on_parent_loop(self, work: Coroutine[None, None, T]) -> T:
        """On the event loop of the run around it: an ordinary function's inner run is on another."""
        home = self._parent_budget.event_loop
        if home is None or home is asyncio.get_running_loop() or home.is_closed():
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, home))


class NestedReservation:
    def __init__(self, purse: NestedBudgetSource, reservation: Reservation) -> None:
        self._source, self.reservation, self._open = purse, reservation, True

    async def settle(self, came_to: CallCost) -> None:
        await self.close(came_to)

    async def release(self) -> None:
        await self.close(None)

    async def close(self, came_to: CallCost | None) -> None:
        if self._open:
            self._open = False
            await self._source.close(self.reservation, came_to)


def _usage_of_reservation(reservation: Reservation) -> Usage:
    """What nobody counted is taken to be all that was set aside."""
    written = reservation.output_tokens
    return Usage(input=reservation.tokens - written, output=written, incomplete=True)


async def _await_future(task: "asyncio.Future[NestedReservation | None]") -> NestedReservation | None:
    return await task


_current_nested_run: ContextVar[NestedRun | None] = ContextVar("bridle_inside", default=None)


def current_nested_run() -> NestedRun | None:
    """The call that this code runs in, when it is part of a tool of some run."""
    return _current_nested_run.get()


@contextmanager
def enter_nested_run(inside: NestedRun) -> Iterator[None]:
    token = _current_nested_run.set(inside)
    try:
        yield
    finally:
        _current_nested_run.reset(token)


def apply_parent_context(prompted: Prompted) -> Prompted:
    """A prompt as it is said inside a tool: on behalf of the same people, in the time that is left there."""
    inside = current_nested_run()
    if inside is None:
        return prompted
    return replace(
        prompted,
        budget=inside.limit_seconds(prompted.budget),
        caller=prompted.caller or inside.caller,
        tenant=prompted.tenant or inside.tenant,
        parent_session=inside.session,
    )


def _smaller_limit(one: N | None, other: N | None) -> N | None:
    return other if one is None else one if other is None else min(one, other)
