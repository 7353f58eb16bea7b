"""Charges runs inside a tool to the budget of the run that called the tool, at any depth.

A context variable identifies the outer run; tasks and threads that the tool starts inherit it.  The nested run
reserves the worst case of each of its calls here as well as in its own sources, so both runs' limits hold.

    ParentBudget    of one driver: what is left for the runs inside its tools
    NestedRun       of one call of it: what a run inside that call reserves from

A call that was started early spends nothing until its reply is complete.  Once a call has its result, nothing
more is spent for it, even if a run inside it continues.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextvars import ContextVar
from decimal import Decimal
from typing import TYPE_CHECKING, Protocol, TypeVar

from msgspec.structs import replace

from bridle.core.budget.limits import deadline, find_missing_charge
from bridle.core.budget.shared import (
    FitReservation,
    RemainingBudget,
    offer_reservation,
    remaining_of_run,
    reserved_amount,
)
from bridle.core.calls.pending import find_call
from bridle.core.state import State
from bridle.ports.clock import Clock
from bridle.ports.store import Store
from bridle.run.calls.approval import Approver
from bridle.run.cancellation import finish_despite_cancel
from bridle.run.recovery.session_log import WriteEpoch
from bridle.values.budget import Amount, Subrun, SubrunCharged, SubrunStarted, SubrunWaiting
from bridle.values.errors import MisuseError, OutcomeUnknown
from bridle.values.events import Event, Prompted
from bridle.values.message import ToolCall
from bridle.values.record import Record
from bridle.values.result import DELTA_TYPES, Delta, SubrunDelta, SubrunItem
from bridle.values.usage import Budget, Reservation, Usage

from .program_calls import ProgramCalls
from .source import AdmittedCall, BudgetSource, CallCost, OpenReservation, WaitQueue

if TYPE_CHECKING:
    from bridle.run.context.telemetry import Tracing
    from bridle.run.known_secrets import KnownSecrets

T = TypeVar("T")
N = TypeVar("N", int, Decimal)
SourceFactory = Callable[[str], BudgetSource]
"""Makes the source for a session that reserves from it."""
NESTED_RUNS_MAX = 8
"""Runs that may be inside one another, the outermost included."""
LOST_RUN_NOTICE = (
    "the run inside this call (session {session!r}) began earlier and is not in this store, so it is not known what"
    " it did; it was not run again. Check what happened before you repeat the call"
)
CALL_IS_OVER = "the outer run's tool call, inside which it ran, has ended"


class ParentRun(Protocol):
    """The outer run: its driver."""

    session: str
    state: State
    store: Store
    streams: bool
    """True if deltas are requested from models."""
    approver: Approver | None
    tracing: "Tracing | None"
    known_secrets: "KnownSecrets | None"
    fence: WriteEpoch

    @property
    def show(self) -> Callable[[Record | Delta], None]: ...

    async def record(self, event: Event) -> None: ...

    async def check_owned(self) -> None: ...


class SourceLister(Protocol):
    nested_run: "NestedRun | None"
    """Call inside which the run itself runs."""

    def limits_tool_calls(self, state: State, tool: str) -> bool: ...

    async def admit_call(self, state: State, call: ToolCall, *, first: bool) -> AdmittedCall: ...

    def list_sources(self, state: State) -> Sequence[tuple[object, SourceFactory]]: ...


class ParentBudget:
    """The budget of one run, as the runs inside its tools see it."""

    def __init__(self, run: ParentRun, clock: Clock, sources: SourceLister) -> None:
        """`sources` are those of the run's own calls."""
        self.run, self.clock, self._budget_sources = run, clock, sources
        self.reserved, self.open_count = Amount(), 0
        self.wait_queue = WaitQueue()
        self.event_loop: asyncio.AbstractEventLoop | None = None
        self._calls: dict[str, NestedRun] = {}
        self.waiting: dict[str, SubrunWaiting] = {}
        """Calls, by id, inside which a run waits for a person."""

    @property
    def nested_run(self) -> "NestedRun | None":
        return self._budget_sources.nested_run

    @property
    def state(self) -> State:
        return self.run.state

    def list_sources(self) -> Sequence[tuple[object, SourceFactory]]:
        return self._budget_sources.list_sources(self.state)

    def limits_tool_calls(self, tool: str) -> bool:
        return self._budget_sources.limits_tool_calls(self.state, tool)

    def admit_call(self, call: ToolCall, *, first: bool) -> Awaitable[AdmittedCall]:
        """Wait for the rates of a tool call, and count its first attempt in every source of the run."""
        return self._budget_sources.admit_call(self.run.state, call, first=first)

    def begin_call(self, call_id: str, *, early: bool = False) -> "NestedRun":
        """Start a call, and end an earlier one with the same id, whose reply was never completed."""
        self.event_loop = asyncio.get_running_loop()
        if call_id in self._calls:
            self.end_call(call_id)
        nested = self._calls[call_id] = NestedRun(self, call_id)
        nested.is_confirmed = not early
        return nested

    def confirm_call(self, call_id: str) -> None:
        """Allow spending for a call that was started early and is now in the log."""
        self._calls[call_id].is_confirmed = True
        self.wait_queue.wake()

    def end_call(self, call_id: str | None = None) -> None:
        """End a call, which has its result; without an id, all calls."""
        for each in tuple(self._calls) if call_id is None else (call_id,):
            nested = self._calls.pop(each, None)
            if nested is not None:
                nested.end()
        self.wait_queue.wake()

    def finish(self) -> None:
        """End the run: nothing more can be recorded for it."""
        self.end_call()
        self.event_loop = None

    async def run_on_loop(self, work: Coroutine[None, None, T]) -> T:
        """Await `work` on the run's event loop; a run inside a synchronous tool has another one."""
        loop = self.event_loop
        if loop is None or loop is asyncio.get_running_loop() or loop.is_closed():
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))

    def remaining(self) -> RemainingBudget:
        return remaining_of_run(self.state).minus(self.reserved)


class NestedRun:
    """One tool call of the outer run, inside which other runs may run; in its context, new runs belong to it."""

    def __init__(self, parent_budget: ParentBudget, call_id: str) -> None:
        self.parent_budget, self.call_id, self._over = parent_budget, call_id, False
        self.is_confirmed = self.has_lost_run = False
        self.traceparent = ""
        """Position of the call in a trace."""
        self.program: ProgramCalls | None = None
        """The tool calls of the program that this call runs."""

    def __enter__(self) -> None:
        self._token = _current_nested_run.set(self)

    def __exit__(self, *raised: object) -> None:
        _current_nested_run.reset(self._token)

    def is_over(self) -> bool:
        return self._over

    def end(self) -> None:
        self._over = True

    @property
    def session(self) -> str:
        return self.parent_budget.run.session

    @property
    def tenant(self) -> str:
        return self.parent_budget.state.run.origin.tenant

    @property
    def caller(self) -> str:
        return self.parent_budget.state.run.origin.caller

    @property
    def tool(self) -> tuple[str, str]:
        """Name of the tool and arguments of the call; both empty before its reply is complete."""
        pending = self.parent_budget.state.calls.batch.pending
        place = find_call(pending, self.call_id)
        return (pending[place].call.name, pending[place].arguments) if place is not None else ("", "")

    def list_outer(self) -> "list[NestedRun]":
        """This call and those around it, innermost first."""
        outer = self.parent_budget.nested_run
        return [self, *(outer.list_outer() if outer is not None else ())]

    def forward(self, session: str, happening: Record | Delta) -> None:
        """Show something that happened in a run inside this call to the viewers of the outer run."""
        item = happening.event if isinstance(happening, Record) else happening
        make = SubrunDelta if isinstance(item, DELTA_TYPES) else SubrunItem
        shown = make(call_id=self.call_id, session=session, item=item)
        parent = self.parent_budget
        if parent.event_loop is None or self._over:
            return
        if parent.event_loop is _running_loop():
            parent.run.show(shown)
        elif not parent.event_loop.is_closed():
            parent.event_loop.call_soon_threadsafe(parent.run.show, shown)

    def wait_for_person(self, session: str, reason: str) -> None:
        """Keep this call without a result, because a run inside it waits for a person."""
        name, arguments = self.tool
        self.parent_budget.waiting[self.call_id] = SubrunWaiting(
            call_id=self.call_id, session=session, reason=reason, name=name, arguments=arguments
        )

    def claim_takeover(self, session: str) -> bool:
        """True once for a session of this call that must be taken over, because a run around it was.

        A process that was replaced may hold its lease, even if no log names it. Its name belongs to this call.
        """
        fences = (each.parent_budget.run.fence for each in self.list_outer())
        fence = next((each for each in fences if each.was_taken_over), None)
        if fence is None or session in fence.taken_subruns:
            return False
        fence.taken_subruns.add(session)
        return True

    async def check_owned(self) -> None:
        """Raise `Conflict` if another process took over one of the runs around; called with the inner lease held."""
        for each in self.list_outer():
            await each.parent_budget.run_on_loop(each.parent_budget.run.check_owned())

    async def charge_missing(self, session: str, state: State) -> None:
        """Charge what an earlier driver of this session spent and could not charge before it crashed."""
        used = state.run.budget
        steps = 0 if state.settings.model.endpoint.is_program else used.spent.steps
        own = Subrun(session=session, call_id="", usage=used.spent.usage, usd=used.spent.usd, steps=steps)
        if self.program is not None and self.program.session == session:
            self.program.note_started(state)
        for nested in self.list_outer():
            for subrun in (own, *used.subruns):
                await nested.charge_subrun(subrun)

    async def charge_subrun(self, subrun: Subrun) -> None:
        """Record the part of a subrun's spending that the outer run has not recorded."""
        missing = find_missing_charge(subrun, self.find_subrun(subrun.session))
        if missing is None:
            return
        await self.record_start(subrun.session)
        await self.parent_budget.run.record(replace(missing, call_id=self.call_id))

    async def record_start(self, session: str) -> None:
        """Record once that a run inside this call starts."""
        if self.find_subrun(session) is None:
            name, arguments = self.tool
            started = SubrunStarted(call_id=self.call_id, session=session, name=name, arguments=arguments)
            await self.parent_budget.run.record(started)

    async def record_program(self, session: str) -> None:
        """Record that a program starts, which has prompted its session: it reserves nothing that would record it."""
        if self.program is not None and self.program.session == session:
            await self.record_start(session)

    def check_stored(self, session: str) -> None:
        """Raise `OutcomeUnknown` if a run that is not in the store has begun: its effects would happen twice."""
        if self.find_subrun(session) is not None:
            self.has_lost_run = True
            raise OutcomeUnknown(LOST_RUN_NOTICE.format(session=session))

    def find_subrun(self, session: str) -> Subrun | None:
        subruns = self.parent_budget.state.run.budget.subruns
        return next((each for each in subruns if each.session == session), None)

    def list_sources(self) -> Sequence[tuple[object, SourceFactory]]:
        return ((self, lambda by: NestedBudgetSource(self, by)), *self.parent_budget.list_sources())

    def limit_seconds(self, budget: Budget) -> Budget:
        """The budget with no more seconds than the outer run has left."""
        ends = deadline(self.parent_budget.state)
        if ends is None:
            return budget
        left = max(0.0, ends - self.parent_budget.clock.now())
        return replace(budget, seconds=left if budget.seconds is None else min(budget.seconds, left))


class NestedBudgetSource:
    """The outer run's budget as a source for one nested session."""

    def __init__(self, nested_run: NestedRun, session: str) -> None:
        self._nested_run, self._session, self._cancelled = nested_run, session, False
        self._parent_budget, program = nested_run.parent_budget, nested_run.program
        self._program = program if program is not None and program.session == session else None
        self.name = f"outer run, {nested_run.session}"
        self.shortage_reason = (
            f"the outer run (session {nested_run.session}) has too little budget left for the next call"
        )

    @property
    def limits_tool_calls(self) -> bool:
        return self._program is not None

    async def count_call(self, call: str) -> str:
        return await self._parent_budget.run_on_loop(self._program.charge(call)) if self._program else ""

    async def uncount_call(self, call: str) -> None:
        if self._program is not None:
            self._program.release()

    async def reserve(self, wanted: Reservation, fit: FitReservation) -> OpenReservation | None:
        if self._nested_run.is_over():
            self.shortage_reason = CALL_IS_OVER
            return None
        task = asyncio.ensure_future(self._parent_budget.run_on_loop(self._reserve(wanted, fit)))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            # Work on another event loop cannot be cancelled safely: signal it to stop, and wait for it.
            self._cancelled = True
            if self._parent_budget.event_loop is not None:
                self._parent_budget.event_loop.call_soon_threadsafe(self._parent_budget.wait_queue.wake)
            reserved = await finish_despite_cancel(_await_future(task))
            if reserved is not None:
                await reserved.release()
            raise

    async def _reserve(self, wanted: Reservation, fit: FitReservation) -> OpenReservation | None:
        parent = self._parent_budget
        while not self._nested_run.is_over() and not self._cancelled:
            if self._nested_run.is_confirmed:
                taken = offer_reservation(wanted, fit, parent.remaining(), alone=not parent.open_count)
                if taken is None:
                    return None
                if isinstance(taken, Reservation):
                    reserved = OpenReservation(replace(taken, pool=self.name), self._close)
                    await self._record_reservation(reserved)
                    return reserved
            turn = parent.wait_queue.join()
            try:
                await turn
            finally:
                parent.wait_queue.leave(turn)
        self.shortage_reason = CALL_IS_OVER
        return None

    async def _record_reservation(self, reserved: OpenReservation) -> None:
        parent = self._parent_budget
        parent.open_count += 1
        parent.reserved += reserved_amount(reserved.reservation)
        try:
            await self._nested_run.record_start(self._session)
        except BaseException:
            await reserved.release()
            raise

    async def _close(self, reservation: Reservation, cost: CallCost | None) -> None:
        await finish_despite_cancel(self._parent_budget.run_on_loop(self._charge(reservation, cost)))

    async def _charge(self, reservation: Reservation, cost: CallCost | None) -> None:
        parent = self._parent_budget
        try:
            if cost is not None and parent.event_loop is not None:
                charged = SubrunCharged(
                    call_id=self._nested_run.call_id,
                    session=self._session,
                    id=reservation.id,
                    usage=cost.usage if cost.usage.total else _usage_of_reservation(reservation),
                    usd=cost.usd,
                    steps=cost.steps,
                )
                await parent.run.record(charged)
        finally:
            parent.open_count -= 1
            parent.reserved -= reserved_amount(reservation)
            parent.wait_queue.wake()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _usage_of_reservation(reservation: Reservation) -> Usage:
    """Usage for a call without counts: everything that was reserved."""
    output = reservation.output_tokens
    return Usage(input=reservation.tokens - output, output=output, incomplete=True)


async def _await_future(task: "asyncio.Future[OpenReservation | None]") -> OpenReservation | None:
    return await task


_current_nested_run: ContextVar[NestedRun | None] = ContextVar("bridle_inside", default=None)


def current_nested_run() -> NestedRun | None:
    """The tool call inside which this code runs, if any."""
    return _current_nested_run.get()


def forwarding_watcher() -> "tuple[SubrunWatcher, ...]":
    """The watcher that shows a run to the viewers of the run around it; none if there is no such run."""
    outer = current_nested_run()
    return () if outer is None else (SubrunWatcher(outer),)


class SubrunWatcher:
    def __init__(self, nested_run: NestedRun) -> None:
        self._nested_run = nested_run

    def on_event(self, session: str, happening: Record | Delta) -> None:
        self._nested_run.forward(session, happening)


def apply_parent_context(prompted: Prompted) -> Prompted:
    """A prompt inside a tool inherits caller, tenant and remaining time of the outer run.

    Raises `MisuseError` if too many runs are nested: an agent that calls itself would never end.
    """
    outer = current_nested_run()
    if outer is None:
        return prompted
    around = outer.list_outer()
    if len(around) >= NESTED_RUNS_MAX:
        names = " > ".join(each.tool[0] or "?" for each in reversed(around))
        raise MisuseError(
            f"{len(around)} runs are inside one another ({names}) and at most {NESTED_RUNS_MAX} may be;"
            " an agent probably calls itself through its tools"
        )
    return replace(
        prompted,
        budget=outer.limit_seconds(prompted.budget),
        caller=prompted.caller or outer.caller,
        tenant=prompted.tenant or outer.tenant,
        parent_session=outer.session,
        parent_call_id=outer.call_id,
        traceparent=prompted.traceparent or outer.traceparent,
    )
