"""A budget that is kept in a store: it outlives its process, and holds across as many as open the store.

Its line has a record for what is set aside before a call and one for what the call came to.  Whoever wants
to set something aside reads what is new, decides, and appends; a store takes an append only at the end of
a line, so when somebody else was faster, everything is read and decided again.  Nobody is trusted to
remember anything, and no lock is held while a model answers.

A line is read from its beginning once a process, so it is cut: after `LINE_RECORDS_MAX` records it ends with
how things stand, and the next one begins with that.  The line without a number says which is the latest.

Callers die.  What they had set aside is not lost: a session is held by whoever drives it, the kernel lets
go of it for the dead, so what is set aside under a session that nobody holds belongs to nobody, and its
log says what became of it (core/budget/shared.py).  This is looked at when there is no room.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import nullcontext, suppress
from decimal import Decimal
from weakref import WeakKeyDictionary, ref

from msgspec.structs import replace

from bridle.core.budget.shared import (
    BudgetAccount,
    FitReservation,
    budget_warning,
    explain_tool_calls_used,
    offer_reservation,
    remaining_budget,
    reserved_amount,
    settle_from_log,
    settled_amount,
)
from bridle.ports.clock import Clock
from bridle.ports.store import Store
from bridle.run.cancellation import finish_despite_cancel
from bridle.values.budget import (
    TENANT_BUDGET_PREFIX,
    Amount,
    BudgetReserved,
    BudgetSettled,
    BudgetSnapshot,
    budget_log_name,
)
from bridle.values.errors import Conflict, Corrupt, MisuseError
from bridle.values.events import Event
from bridle.values.record import GENESIS, Record, seal_record
from bridle.values.text import repair_surrogates
from bridle.values.usage import Limits, Reservation

from .shared import CallCost, WaitQueue, explain_shortage, make_pool_limits

LOG_RECORDS_MAX = 5_000
"""Read in a tenth of a second."""
POLL_SECONDS = (0.02, 1.0)
"""How often another process is looked at for room: first, and in the long run."""


class StoredBudget:
    """A budget for all runs in one store: `Agent(…, store=PATH, pool=StoredBudget(usd=5, name="q4"))`.

    What was spent is in the store; the limit is what whoever asks says it is: to raise it, say more.
    """

    def __init__(
        self,
        *,
        name: str,
        usd: Decimal | float | str | None = None,
        tokens: int | None = None,
        steps: int | None = None,
        tool_calls: int | None = None,
        wrap_up: float | None = None,
    ) -> None:
        if not isinstance(name, str) or not name.strip():
            raise MisuseError(f"a budget that is kept in a store needs a name, not {name!r}")
        if name.startswith(TENANT_BUDGET_PREFIX):
            raise MisuseError(
                f"{name!r} is what the budget of a tenant is called; use Budget(tenant=Limits(…))"
            )
        self.name, self.limits = (
            repair_surrogates(name),
            make_pool_limits(usd, tokens, steps, tool_calls, wrap_up),
        )

    @property
    def usd(self) -> Decimal | None:
        return self.limits.usd


class BudgetLog:
    """A budget's line in a store, as far as this process has read it."""

    def __init__(self, store: Store, name: str) -> None:
        self.name = name
        self.account = BudgetAccount()
        self._get_store = _weak_reference(store)
        self._generation, self._length, self._head, self._at = 0, 0, GENESIS, 0.0
        self._lock = threading.Lock()
        self._write_locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()
        self.wait_queue = WaitQueue()

    @property
    def _store(self) -> Store:
        store = self._get_store()
        assert store is not None, "whoever draws from a till holds its store"
        return store

    def write_lock(self) -> asyncio.Lock:
        """One at a time of those on one event loop: they would only get in one another's way."""
        return self._write_locks.setdefault(asyncio.get_running_loop(), asyncio.Lock())

    async def append_event(
        self, decide: Callable[[BudgetAccount], Event | None], now: Callable[[], float]
    ) -> Event | None:
        """Append what is decided upon how things stand at that very moment; None is for nothing."""
        while True:
            await self.catch_up()
            with self._lock:
                place = self._generation, self._length, self._head
                full = self._length >= LOG_RECORDS_MAX
                event = self.account.make_snapshot(self._generation + 1) if full else decide(self.account)
            if event is None:
                return None
            generation, length, head = place
            try:
                record = seal_record(length + 1, now(), event, head)
                await self._store.append(budget_log_name(self.name, generation), length, (record,))
            except Conflict:
                continue
            with self._lock:
                self._apply_record(generation, record)
            if not full:
                return event

    async def catch_up(self) -> BudgetAccount:
        """Read what is new, in this line and in those that follow it."""
        while True:
            if self._generation == 0:
                index = await self._store.read(budget_log_name(self.name))
                self._start_log(index[-1].event if index else None)
            generation, known = self._generation, self._length
            records = await self._store.read(budget_log_name(self.name, generation), known)
            with self._lock:
                for record in records:
                    self._apply_record(generation, record)
                carried = self.account.continued_in if self._generation == generation else None
            if carried is None:
                return self.account
            await self._open_next_log(carried)

    def _apply_record(self, generation: int, record: Record) -> None:
        """Once each: several may have read the same."""
        if self._generation == generation and record.seq == self._length + 1:
            self.account.apply_event(record.event)
            self._length, self._head, self._at = record.seq, record.hash, record.at

    async def _open_next_log(self, carried: BudgetSnapshot) -> None:
        """The line has ended: say where it goes on, if nobody has, and go there."""
        line = budget_log_name(self.name)
        index = await self._store.read(line)
        known = index[-1].event if index else None
        if not isinstance(known, BudgetSnapshot) or known.generation < carried.generation:
            head, length = (index[-1].hash, index[-1].seq) if index else (GENESIS, 0)
            with suppress(Conflict):  # somebody else has said the same
                await self._store.append(line, length, (seal_record(length + 1, self._at, carried, head),))
        self._start_log(carried)

    def _start_log(self, carried: Event | None) -> None:
        with self._lock:
            begun = carried if isinstance(carried, BudgetSnapshot) else None
            generation = begun.generation if begun else 1
            if generation > self._generation:
                self.account = BudgetAccount(begun)
                self._generation, self._length, self._head = generation, 0, GENESIS

    async def settle_abandoned(self, session: str, since: int, now: Callable[[], float]) -> bool:
        """Settle what was set aside by callers that are gone; whether there was any."""
        found = False
        for reserved in tuple(self.account.open_reservations.values()):
            own = reserved.session == session
            if own and reserved.driver_start == since:
                continue
            try:
                with nullcontext() if own else self._store.lease(reserved.session):
                    settled = await self._find_settlement(reserved)
            except Conflict:
                continue  # it is alive
            await self.append_event(_settle_if_open(settled), now)
            found = True
        return found

    async def _find_settlement(self, reserved: BudgetReserved) -> BudgetSettled:
        try:
            own = await self._store.read(reserved.session)
            return settle_from_log(
                reserved,
                own,
                await self._store.read(reserved.nested_session) if reserved.nested_session else (),
            )
        except Corrupt:
            # That session's trouble is not to be everybody's; what it may have spent counts as spent.
            return BudgetSettled(id=reserved.id, amount=reserved.amount, source="presumed")


class BudgetReserver:
    """One driver's way into a till: under which session, and against which limits."""

    def __init__(
        self, till: BudgetLog, limits: Limits, clock: Clock, session: str, since: int, by: str = ""
    ) -> None:
        self.name = till.name
        self._budget_log, self._limits, self._clock = till, limits, clock
        self._session, self._driver_start, self._nested_session = session, since, by

    @property
    def shortage_reason(self) -> str:
        return explain_shortage(self.name, self._limits, self._budget_log.account.spent)

    @property
    def limits_tool_calls(self) -> bool:
        return self._limits.tool_calls is not None

    async def count_call(self, call: str) -> str:
        """Spent as it is counted: whether a tool that was started took effect is not the budget's to know."""
        if not self.limits_tool_calls:
            return ""
        told = [""]

        def decide(account: BudgetAccount) -> BudgetSettled | None:
            told[0] = explain_tool_calls_used(self._limits, account.spent, self.name)
            return None if told[0] else BudgetSettled(id=call, amount=Amount(tool_calls=1))

        async with self._budget_log.write_lock():
            await finish_despite_cancel(self._append(decide))
        return told[0]

    async def uncount_call(self, call: str) -> None:
        if self.limits_tool_calls:
            given_back = BudgetSettled(id=call, amount=Amount(tool_calls=-1))
            async with self._budget_log.write_lock():
                await finish_despite_cancel(self._append(lambda account: given_back))

    async def reserve(self, wanted: Reservation, fit: FitReservation) -> "LoggedReservation | None":
        till, pause = self._budget_log, POLL_SECONDS[0]
        while True:
            taken: list[Reservation | str | None] = []

            def decide(
                account: BudgetAccount, taken: list[Reservation | str | None] = taken
            ) -> BudgetReserved | None:
                left = remaining_budget(self._limits).minus(account.spent).minus(account.reserved)
                taken[:] = [offer_reservation(wanted, fit, left, alone=not account.open_reservations)]
                return self._make_reserved_event(taken[0]) if isinstance(taken[0], Reservation) else None

            try:
                async with till.write_lock():
                    await finish_despite_cancel(self._append(decide))
            except asyncio.CancelledError:
                if taken and isinstance(taken[0], Reservation):
                    await self._make_reservation(taken[0]).release()
                raise
            if taken[0] is None:
                return None
            if isinstance(taken[0], Reservation):
                return self._make_reservation(taken[0])
            if not await till.settle_abandoned(self._session, self._driver_start, self._clock.now):
                await self._wait_for_change(pause)
                pause = min(2 * pause, POLL_SECONDS[1])

    async def _append(self, decide: Callable[[BudgetAccount], Event | None]) -> None:
        """Not given up half-way: what is set aside must have an owner who knows of it."""
        await self._budget_log.append_event(decide, self._clock.now)

    def _make_reservation(self, taken: Reservation) -> "LoggedReservation":
        account = self._budget_log.account
        used = budget_warning(self._limits, account.spent + account.reserved, self.name)
        return LoggedReservation(
            self._budget_log, self._clock, replace(taken, pool=self.name, budget_warning=used)
        )

    def _make_reserved_event(self, taken: Reservation) -> BudgetReserved:
        return BudgetReserved(
            id=taken.id,
            session=self._session,
            driver_start=self._driver_start,
            amount=reserved_amount(taken),
            nested_session=self._nested_session,
            limits=self._limits,
        )

    async def _wait_for_change(self, seconds: float) -> None:
        """Until somebody here settles, or it is time to look what others did."""
        turn = self._budget_log.wait_queue.join()
        alarm = asyncio.ensure_future(self._clock.sleep(seconds))
        try:
            await asyncio.wait((turn, alarm), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._budget_log.wait_queue.leave(turn)
            alarm.cancel()
            await asyncio.gather(alarm, return_exceptions=True)


class LoggedReservation:
    """What is set aside in a till for one call."""

    def __init__(self, till: BudgetLog, clock: Clock, reservation: Reservation) -> None:
        self._budget_log, self._clock, self.reservation, self._open = till, clock, reservation, True

    async def settle(self, came_to: CallCost) -> None:
        usage, usd, steps = came_to
        await self._close(settled_amount(self.reservation, usd, usage.total or None, steps))

    async def release(self) -> None:
        await self._close(Amount())

    async def _close(self, amount: Amount) -> None:
        if self._open:
            self._open = False
            await finish_despite_cancel(self._append(BudgetSettled(id=self.reservation.id, amount=amount)))

    async def _append(self, settled: BudgetSettled) -> None:
        async with self._budget_log.write_lock():
            await self._budget_log.append_event(lambda account: settled, self._clock.now)
        self._budget_log.wait_queue.wake()


_budget_logs: WeakKeyDictionary[Store, dict[str, BudgetLog]] = WeakKeyDictionary()
_budget_logs_lock = threading.Lock()


def open_budget_log(store: Store, name: str) -> BudgetLog:
    """The same for everybody in this process: what one has read, nobody reads again."""
    with _budget_logs_lock:
        try:
            return _budget_logs.setdefault(store, {}).setdefault(name, BudgetLog(store, name))
        except TypeError:
            return BudgetLog(store, name)  # a store of somebody's own that cannot be looked up


def _weak_reference(store: Store) -> Callable[[], Store | None]:
    """A till that kept its store alive would be kept alive by it."""
    try:
        return ref(store)
    except TypeError:
        return lambda: store


def _settle_if_open(settled: BudgetSettled) -> Callable[[BudgetAccount], Event | None]:
    return lambda account: settled if settled.id in account.open_reservations else None
