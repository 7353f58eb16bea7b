"""A budget that is kept in a store: it outlives its process, and holds across as many as open the store.

Its line has a record for what is set aside before a call and one for what the call came to.  Whoever wants
to set something aside reads what is new, decides, and appends; a store takes an append only at the end of
a line, so when somebody else was faster, everything is read and decided again.  Nobody is trusted to
remember anything, and no lock is held while a model answers.

A line is read from its beginning once a process, so it is cut: after `LINE_RECORDS_MAX` records it ends with
how things stand, and the next one begins with that.  The line without a number says which is the latest.

Callers die.  What they had set aside is not lost: a session is held by whoever drives it, the kernel lets
go of it for the dead, so what is set aside under a session that nobody holds belongs to nobody, and its
log says what became of it (core/account.py).  This is looked at when there is no room.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import nullcontext, suppress
from decimal import Decimal
from weakref import WeakKeyDictionary, ref

from msgspec.structs import replace

from ..core.account import Account, Fit, amount_of, calls_used, crowded, evidence, left_of, offer, paid
from ..ports.clock import Clock
from ..ports.store import Store
from ..values.errors import Conflict, Corrupt, MisuseError
from ..values.event import Event
from ..values.pooled import TENANT, Amount, Carried, Reserved, Settled, budget_line
from ..values.record import GENESIS, Record, seal
from ..values.text import sound
from ..values.usage import Limits, Reservation
from .pool import Paid, Waiting, pool_limits, story
from .surely import surely

LINE_RECORDS_MAX = 5_000
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
        if name.startswith(TENANT):
            raise MisuseError(
                f"{name!r} is what the budget of a tenant is called; use Budget(tenant=Limits(…))"
            )
        self.name, self.limits = sound(name), pool_limits(usd, tokens, steps, tool_calls, wrap_up)

    @property
    def usd(self) -> Decimal | None:
        return self.limits.usd


class Till:
    """A budget's line in a store, as far as this process has read it."""

    def __init__(self, store: Store, name: str) -> None:
        self.name = name
        self.account = Account()
        self._reach = _weakly(store)
        self._generation, self._length, self._head, self._at = 0, 0, GENESIS, 0.0
        self._lock = threading.Lock()
        self._turnstiles: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()
        self.waiting = Waiting()

    @property
    def _store(self) -> Store:
        store = self._reach()
        assert store is not None, "whoever draws from a till holds its store"
        return store

    def turnstile(self) -> asyncio.Lock:
        """One at a time of those on one event loop: they would only get in one another's way."""
        return self._turnstiles.setdefault(asyncio.get_running_loop(), asyncio.Lock())

    async def write(
        self, decide: Callable[[Account], Event | None], now: Callable[[], float]
    ) -> Event | None:
        """Append what is decided upon how things stand at that very moment; None is for nothing."""
        while True:
            await self.catch_up()
            with self._lock:
                place = self._generation, self._length, self._head
                full = self._length >= LINE_RECORDS_MAX
                event = self.account.carried(self._generation + 1) if full else decide(self.account)
            if event is None:
                return None
            generation, length, head = place
            try:
                record = seal(length + 1, now(), event, head)
                await self._store.append(budget_line(self.name, generation), length, (record,))
            except Conflict:
                continue
            with self._lock:
                self._read(generation, record)
            if not full:
                return event

    async def catch_up(self) -> Account:
        """Read what is new, in this line and in those that follow it."""
        while True:
            if self._generation == 0:
                index = await self._store.read(budget_line(self.name))
                self._begin(index[-1].event if index else None)
            generation, known = self._generation, self._length
            records = await self._store.read(budget_line(self.name, generation), known)
            with self._lock:
                for record in records:
                    self._read(generation, record)
                carried = self.account.next if self._generation == generation else None
            if carried is None:
                return self.account
            await self._go_on(carried)

    def _read(self, generation: int, record: Record) -> None:
        """Once each: several may have read the same."""
        if self._generation == generation and record.seq == self._length + 1:
            self.account.take(record.event)
            self._length, self._head, self._at = record.seq, record.hash, record.at

    async def _go_on(self, carried: Carried) -> None:
        """The line has ended: say where it goes on, if nobody has, and go there."""
        line = budget_line(self.name)
        index = await self._store.read(line)
        known = index[-1].event if index else None
        if not isinstance(known, Carried) or known.generation < carried.generation:
            head, length = (index[-1].hash, index[-1].seq) if index else (GENESIS, 0)
            with suppress(Conflict):  # somebody else has said the same
                await self._store.append(line, length, (seal(length + 1, self._at, carried, head),))
        self._begin(carried)

    def _begin(self, carried: Event | None) -> None:
        with self._lock:
            begun = carried if isinstance(carried, Carried) else None
            generation = begun.generation if begun else 1
            if generation > self._generation:
                self.account = Account(begun)
                self._generation, self._length, self._head = generation, 0, GENESIS

    async def settle_the_dead(self, session: str, since: int, now: Callable[[], float]) -> bool:
        """Settle what was set aside by callers that are gone; whether there was any."""
        found = False
        for reserved in tuple(self.account.open.values()):
            own = reserved.session == session
            if own and reserved.since == since:
                continue
            try:
                with nullcontext() if own else self._store.hold(reserved.session):
                    settled = await self._evidence(reserved)
            except Conflict:
                continue  # it is alive
            await self.write(_if_open(settled), now)
            found = True
        return found

    async def _evidence(self, reserved: Reserved) -> Settled:
        try:
            own = await self._store.read(reserved.session)
            return evidence(reserved, own, await self._store.read(reserved.by) if reserved.by else ())
        except Corrupt:
            # That session's trouble is not to be everybody's; what it may have spent counts as spent.
            return Settled(id=reserved.id, amount=reserved.amount, how="presumed")


class Drawer:
    """One driver's way into a till: under which session, and against which limits."""

    def __init__(
        self, till: Till, limits: Limits, clock: Clock, session: str, since: int, by: str = ""
    ) -> None:
        self.name = till.name
        self._till, self._limits, self._clock = till, limits, clock
        self._session, self._since, self._by = session, since, by

    @property
    def story(self) -> str:
        return story(self.name, self._limits, self._till.account.spent)

    @property
    def counts_calls(self) -> bool:
        return self._limits.tool_calls is not None

    async def count(self, call: str) -> str:
        """Spent as it is counted: whether a tool that was started took effect is not the budget's to know."""
        if not self.counts_calls:
            return ""
        told = [""]

        def decide(account: Account) -> Settled | None:
            told[0] = calls_used(self._limits, account.spent, self.name)
            return None if told[0] else Settled(id=call, amount=Amount(tool_calls=1))

        async with self._till.turnstile():
            await surely(self._written(decide))
        return told[0]

    async def uncount(self, call: str) -> None:
        if self.counts_calls:
            given_back = Settled(id=call, amount=Amount(tool_calls=-1))
            async with self._till.turnstile():
                await surely(self._written(lambda account: given_back))

    async def hold(self, wanted: Reservation, fit: Fit) -> "Drawn | None":
        till, pause = self._till, POLL_SECONDS[0]
        while True:
            taken: list[Reservation | str | None] = []

            def decide(account: Account, taken: list[Reservation | str | None] = taken) -> Reserved | None:
                left = left_of(self._limits).minus(account.spent).minus(account.reserved)
                taken[:] = [offer(wanted, fit, left, alone=not account.open)]
                return self._reserved(taken[0]) if isinstance(taken[0], Reservation) else None

            try:
                async with till.turnstile():
                    await surely(self._written(decide))
            except asyncio.CancelledError:
                if taken and isinstance(taken[0], Reservation):
                    await self._drawn(taken[0]).release()
                raise
            if taken[0] is None:
                return None
            if isinstance(taken[0], Reservation):
                return self._drawn(taken[0])
            if not await till.settle_the_dead(self._session, self._since, self._clock.now):
                await self._wait(pause)
                pause = min(2 * pause, POLL_SECONDS[1])

    async def _written(self, decide: Callable[[Account], Event | None]) -> None:
        """Not given up half-way: what is set aside must have an owner who knows of it."""
        await self._till.write(decide, self._clock.now)

    def _drawn(self, taken: Reservation) -> "Drawn":
        account = self._till.account
        used = crowded(self._limits, account.spent + account.reserved, self.name)
        return Drawn(self._till, self._clock, replace(taken, pool=self.name, used=used))

    def _reserved(self, taken: Reservation) -> Reserved:
        return Reserved(
            id=taken.id,
            session=self._session,
            since=self._since,
            amount=amount_of(taken),
            by=self._by,
            limits=self._limits,
        )

    async def _wait(self, seconds: float) -> None:
        """Until somebody here settles, or it is time to look what others did."""
        turn = self._till.waiting.queue()
        alarm = asyncio.ensure_future(self._clock.sleep(seconds))
        try:
            await asyncio.wait((turn, alarm), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._till.waiting.leave(turn)
            alarm.cancel()
            await asyncio.gather(alarm, return_exceptions=True)


class Drawn:
    """What is set aside in a till for one call."""

    def __init__(self, till: Till, clock: Clock, reservation: Reservation) -> None:
        self._till, self._clock, self.reservation, self._open = till, clock, reservation, True

    async def settle(self, came_to: Paid) -> None:
        usage, usd, steps = came_to
        await self._close(paid(self.reservation, usd, usage.total or None, steps))

    async def release(self) -> None:
        await self._close(Amount())

    async def _close(self, amount: Amount) -> None:
        if self._open:
            self._open = False
            await surely(self._write(Settled(id=self.reservation.id, amount=amount)))

    async def _write(self, settled: Settled) -> None:
        async with self._till.turnstile():
            await self._till.write(lambda account: settled, self._clock.now)
        self._till.waiting.wake()


_tills: WeakKeyDictionary[Store, dict[str, Till]] = WeakKeyDictionary()
_lock = threading.Lock()


def till_of(store: Store, name: str) -> Till:
    """The same for everybody in this process: what one has read, nobody reads again."""
    with _lock:
        try:
            return _tills.setdefault(store, {}).setdefault(name, Till(store, name))
        except TypeError:
            return Till(store, name)  # a store of somebody's own that cannot be looked up


def _weakly(store: Store) -> Callable[[], Store | None]:
    """A till that kept its store alive would be kept alive by it."""
    try:
        return ref(store)
    except TypeError:
        return lambda: store


def _if_open(settled: Settled) -> Callable[[Account], Event | None]:
    return lambda account: settled if settled.id in account.open else None
