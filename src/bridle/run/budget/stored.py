"""`StoredBudget`: a budget in a store, shared by all processes that open the store.

Its log has one record for each reservation and one for each settlement.  To reserve, a process reads the new
records, decides, and appends; a store accepts an append only at the end of a log, so after a conflict it reads
and decides again.  No process relies on memory, and no lock is held during a model call.

Each process reads a log from its start, so logs are split: after `LOG_RECORDS_MAX` records a log ends with a
snapshot, and the next generation starts from it.  The log without a generation number names the latest one.

If a process crashes, its session log determines the charge.  The lease of its session is free then, so a
reservation under a session without a lease is abandoned, and core/budget/shared.py settles it from the log.
This check runs when there is no room.
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
)
from bridle.ports.clock import Clock
from bridle.ports.store import Store
from bridle.run.cancellation import finish_despite_cancel
from bridle.values.budget import (
    RESERVED_BUDGET_PREFIXES,
    Amount,
    BudgetReserved,
    BudgetSettled,
    BudgetSnapshot,
    budget_log_name,
    period_budget_name,
)
from bridle.values.errors import Conflict, Corrupt, MisuseError
from bridle.values.events import Event
from bridle.values.record import GENESIS, Record, seal_record
from bridle.values.text import repair_surrogates
from bridle.values.usage import BUDGET_SCOPES, LimitPeriod, Limits, Reservation

from .periods import Period, find_period, load_zone
from .shared import explain_shortage, make_pool_limits
from .source import CallCost, OpenReservation, WaitQueue, amount_to_settle

# not from outside: our own records and queues
LOG_RECORDS_MAX = 5_000
"""As many as are read in a tenth of a second."""
POLL_SECONDS = (0.02, 1.0)
"""First and longest interval between checks for room made by another process."""


class StoredBudget:
    """A budget for all runs in one store: `Agent(…, store=PATH, pool=StoredBudget(usd=5, name="q4"))`.

    The store holds the amount spent; the limit is the one passed here, so pass a higher one to raise it.
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
        period: LimitPeriod | None = None,
        zone: str = "",
    ) -> None:
        """`period`: the limits begin again with each hour, day or month of the calendar in this time zone."""
        if not isinstance(name, str) or not name.strip():
            raise MisuseError(f"StoredBudget(name=…) must be a non-empty string, not {name!r}")
        if name.startswith(RESERVED_BUDGET_PREFIXES):
            kind = name.partition(":")[0]
            instead = f"StoredBudget(…, period={kind!r})"
            if kind in BUDGET_SCOPES:
                instead = f"Budget({kind}=Limits(…))"
            raise MisuseError(f"{name!r} is reserved for the budget of a {kind}; use {instead}")
        load_zone(zone)
        self.name, self.limits = (
            repair_surrogates(name),
            make_pool_limits(usd, tokens, steps, tool_calls, wrap_up, period, zone),
        )

    @property
    def usd(self) -> Decimal | None:
        return self.limits.usd


class BudgetLog:
    """The log of a budget in a store, as far as this process has read it."""

    def __init__(self, store: Store, name: str) -> None:
        self.name = name
        self.account = BudgetAccount()
        self._get_store = _weak_reference(store)
        self._generation, self._length, self._head, self._at = 0, 0, GENESIS, 0.0
        self._lock = threading.Lock()
        self._write_locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()
        self.wait_queue = WaitQueue()
        self.has_settled_previous = False
        """True once this process has settled what crashed processes left in the period before."""

    @property
    def _store(self) -> Store:
        store = self._get_store()
        assert store is not None, "the caller holds a reference to the store"
        return store

    def write_lock(self) -> asyncio.Lock:
        """One lock per event loop: concurrent writers would only cause conflicts."""
        return self._write_locks.setdefault(asyncio.get_running_loop(), asyncio.Lock())

    async def append_event(
        self, decide: Callable[[BudgetAccount], Event | None], now: Callable[[], float]
    ) -> Event | None:
        """Append the event that `decide` returns for the current account; None appends nothing."""
        while True:
            await self.catch_up()
            with self._lock:
                generation, length, head = self._generation, self._length, self._head
                full = length >= LOG_RECORDS_MAX
                event = self.account.make_snapshot(generation + 1) if full else decide(self.account)
            if event is None:
                return None
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
        """Read the new records of this generation and of later ones."""
        while True:
            if self._generation == 0:
                index = await self._store.read(budget_log_name(self.name))
                self._start_log(index[-1].event if index else None)
            generation, known = self._generation, self._length
            records = await self._store.read(budget_log_name(self.name, generation), known)
            with self._lock:
                for record in records:
                    self._apply_record(generation, record)
                snapshot = self.account.continued_in if self._generation == generation else None
            if snapshot is None:
                return self.account
            await self._open_next_log(snapshot)

    def _apply_record(self, generation: int, record: Record) -> None:
        """Apply a record once, even if several tasks have read it."""
        if self._generation == generation and record.seq == self._length + 1:
            self.account.apply_event(record.event)
            self._length, self._head, self._at = record.seq, record.hash, record.at

    async def _open_next_log(self, snapshot: BudgetSnapshot) -> None:
        """Record the next generation in the index, unless it is there, and start reading it."""
        index_name = budget_log_name(self.name)
        index = await self._store.read(index_name)
        known = index[-1].event if index else None
        if not isinstance(known, BudgetSnapshot) or known.generation < snapshot.generation:
            head, length = (index[-1].hash, index[-1].seq) if index else (GENESIS, 0)
            record = seal_record(length + 1, self._at, snapshot, head)
            with suppress(Conflict):  # another process has recorded it
                await self._store.append(index_name, length, (record,))
        self._start_log(snapshot)

    def _start_log(self, event: Event | None) -> None:
        with self._lock:
            snapshot = event if isinstance(event, BudgetSnapshot) else None
            generation = snapshot.generation if snapshot else 1
            if generation > self._generation:
                self.account = BudgetAccount(snapshot)
                self._generation, self._length, self._head = generation, 0, GENESIS

    async def settle_abandoned(self, session: str, driver_start: int, now: Callable[[], float]) -> bool:
        """Settle the reservations of crashed processes; True if there were any."""
        found = False
        for reserved in tuple(self.account.open_reservations.values()):
            own = reserved.session == session
            if own and reserved.driver_start == driver_start:
                continue
            try:
                async with nullcontext() if own else self._store.lease(reserved.session):
                    settled = await self._find_settlement(reserved)
            except Conflict:
                continue  # its process is running
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
            # A corrupt session must not block the budget: its whole reservation counts as spent.
            return BudgetSettled(id=reserved.id, amount=reserved.amount, source="presumed")


class PeriodEnded(Exception):
    """The period of a budget ended while a call waited for room in it."""


class BudgetReserver:
    """Reserves in a budget log for one driver, under its session and limits; not after `ends_at`, if it is set."""

    def __init__(
        self,
        log: BudgetLog,
        limits: Limits,
        clock: Clock,
        session: str,
        driver_start: int,
        nested_session: str = "",
        ends_at: float | None = None,
    ) -> None:
        self.name, self._ends_at = log.name, ends_at
        self._budget_log, self._limits, self._clock = log, limits, clock
        self._session, self._driver_start, self._nested_session = session, driver_start, nested_session

    @property
    def shortage_reason(self) -> str:
        return explain_shortage(self.name, self._limits, self._budget_log.account.spent)

    @property
    def limits_tool_calls(self) -> bool:
        return self._limits.tool_calls is not None

    async def count_call(self, call: str) -> str:
        """Charge one tool call at once; a call that starts counts even if it fails."""
        if not self.limits_tool_calls:
            return ""
        refusal = ""

        def decide(account: BudgetAccount) -> BudgetSettled | None:
            nonlocal refusal
            refusal = explain_tool_calls_used(self._limits, account.spent, self.name)
            return None if refusal else BudgetSettled(id=call, amount=Amount(tool_calls=1))

        async with self._budget_log.write_lock():
            await finish_despite_cancel(self._append(decide))
        return refusal

    async def uncount_call(self, call: str) -> None:
        if self.limits_tool_calls:
            refund = BudgetSettled(id=call, amount=Amount(tool_calls=-1))
            async with self._budget_log.write_lock():
                await finish_despite_cancel(self._append(lambda account: refund))

    async def reserve(self, wanted: Reservation, fit: FitReservation) -> OpenReservation | None:
        log, pause = self._budget_log, POLL_SECONDS[0]
        while True:
            if self._ends_at is not None and self._clock.now() >= self._ends_at:
                raise PeriodEnded
            taken: list[Reservation | str | None] = []

            def decide(
                account: BudgetAccount, taken: list[Reservation | str | None] = taken
            ) -> BudgetReserved | None:
                left = remaining_budget(self._limits).minus(account.spent).minus(account.reserved)
                taken[:] = [offer_reservation(wanted, fit, left, alone=not account.open_reservations)]
                return self._make_reserved_event(taken[0]) if isinstance(taken[0], Reservation) else None

            try:
                async with log.write_lock():
                    await finish_despite_cancel(self._append(decide))
            except asyncio.CancelledError:
                if taken and isinstance(taken[0], Reservation):
                    await self._make_reservation(taken[0]).release()
                raise
            if taken[0] is None:
                return None
            if isinstance(taken[0], Reservation):
                return self._make_reservation(taken[0])
            if not await log.settle_abandoned(self._session, self._driver_start, self._clock.now):
                left = pause if self._ends_at is None else max(0.0, self._ends_at - self._clock.now())
                await self._wait_for_change(min(pause, left))
                pause = min(2 * pause, POLL_SECONDS[1])

    async def _append(self, decide: Callable[[BudgetAccount], Event | None]) -> None:
        await self._budget_log.append_event(decide, self._clock.now)

    def _make_reservation(self, taken: Reservation) -> OpenReservation:
        account = self._budget_log.account
        used = budget_warning(self._limits, account.spent + account.reserved, self.name)
        return OpenReservation(replace(taken, pool=self.name, budget_warning=used), self._close)

    async def _close(self, reservation: Reservation, cost: CallCost | None) -> None:
        amount = amount_to_settle(reservation, cost)
        await finish_despite_cancel(self._settle(BudgetSettled(id=reservation.id, amount=amount)))

    async def _settle(self, settled: BudgetSettled) -> None:
        async with self._budget_log.write_lock():
            await self._append(lambda account: settled)
        self._budget_log.wait_queue.wake()

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
        """Wait until a run of this process settles, or `seconds` have passed."""
        turn = self._budget_log.wait_queue.join()
        timer = asyncio.ensure_future(self._clock.sleep(seconds))
        try:
            await asyncio.wait((turn, timer), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._budget_log.wait_queue.leave(turn)
            timer.cancel()
            await asyncio.gather(timer, return_exceptions=True)


class PeriodReserver:
    """Reserves in the log of the period in which a call is reserved, for a budget with a period."""

    def __init__(
        self,
        store: Store,
        name: str,
        limits: Limits,
        clock: Clock,
        session: str,
        driver_start: int,
        nested_session: str = "",
    ) -> None:
        self._store, self._name, self._limits, self._clock = store, name, limits, clock
        self._session, self._driver_start, self._nested_session = session, driver_start, nested_session
        self._zone = load_zone(limits.zone)
        self._counted: dict[str, BudgetReserver] = {}
        """Tool calls, with the period in which they count."""
        self._current = self._open()

    @property
    def name(self) -> str:
        return self._current.name

    @property
    def shortage_reason(self) -> str:
        return self._current.shortage_reason

    @property
    def limits_tool_calls(self) -> bool:
        return self._limits.tool_calls is not None

    async def count_call(self, call: str) -> str:
        self._counted[call] = self._open()
        return await self._counted[call].count_call(call)

    async def uncount_call(self, call: str) -> None:
        await self._counted[call].uncount_call(call)

    async def reserve(self, wanted: Reservation, fit: FitReservation) -> OpenReservation | None:
        while True:
            self._current = self._open()
            await self._settle_previous()
            try:
                return await self._current.reserve(wanted, fit)
            except PeriodEnded:
                continue  # there is room in the next one

    async def _settle_previous(self) -> None:
        """Settle what crashed processes left in the period before: no call looks for room there any more."""
        period = self._find_period(self._clock.now())
        log = open_budget_log(self._store, self._period_name(period))
        if log.has_settled_previous:
            return
        log.has_settled_previous = True
        before = take_budget_log(self._store, self._period_name(self._find_period(period.start - 1)))
        with suppress(Corrupt):  # `bridle store verify` reports it; it must not stop this period's calls
            await before.catch_up()
            await before.settle_abandoned(self._session, self._driver_start, self._clock.now)

    def _open(self) -> BudgetReserver:
        period = self._find_period(self._clock.now())
        return BudgetReserver(
            open_budget_log(self._store, self._period_name(period)),
            self._limits,
            self._clock,
            self._session,
            self._driver_start,
            self._nested_session,
            ends_at=period.end,
        )

    def _find_period(self, at: float) -> Period:
        assert self._limits.period is not None
        return find_period(self._limits.period, at, self._zone)

    def _period_name(self, period: Period) -> str:
        return period_budget_name(self._name, self._limits.period or "", period.label, self._limits.zone)


_budget_logs: WeakKeyDictionary[Store, dict[str, BudgetLog]] = WeakKeyDictionary()
_budget_logs_lock = threading.Lock()


def open_budget_log(store: Store, name: str) -> BudgetLog:
    """The process's shared `BudgetLog` of this name, so that records are read only once."""
    with _budget_logs_lock:
        try:
            return _budget_logs.setdefault(store, {}).setdefault(name, BudgetLog(store, name))
        except TypeError:
            return BudgetLog(store, name)  # a custom store that cannot be hashed or weakly referenced


def take_budget_log(store: Store, name: str) -> BudgetLog:
    """The log as `open_budget_log` returns it, which the process then forgets: a server outlives many periods."""
    log = open_budget_log(store, name)
    with _budget_logs_lock, suppress(TypeError):  # as in `open_budget_log`
        _budget_logs.get(store, {}).pop(name, None)
    return log


def _weak_reference(store: Store) -> Callable[[], Store | None]:
    """A weak reference where possible: a strong one would keep the store in `_budget_logs` forever."""
    try:
        return ref(store)
    except TypeError:
        return lambda: store


def _settle_if_open(settled: BudgetSettled) -> Callable[[BudgetAccount], Event | None]:
    return lambda account: settled if settled.id in account.open_reservations else None
