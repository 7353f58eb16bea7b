"""A budget that several runs share: the worst case is set aside before a call, and settled after it.

Each run asks for what its next call may cost at most.  What does not fit beside what others have set
aside waits until one of them is settled; what would not fit even if nobody else was there is cut down
to what is left, and when nothing useful is left, the run ends.  So the sum of what was spent and what
is set aside never exceeds the limit, however many runs there are, on however many threads.

The one thing that can: a call that comes dearer than its worst case, because the provider counted more
tokens in its prompt than were estimated.  `excess` is what such calls came to beyond what was set aside
for them, and the limit is never exceeded by more than that.
"""

import asyncio
import threading
from collections.abc import Callable
from decimal import Decimal

from ..values.usage import Budget, Reservation


class Amount:
    """Dollars and tokens, added up."""

    def __init__(self) -> None:
        self.usd = Decimal(0)
        self.tokens = 0

    def add(self, usd: Decimal, tokens: int) -> None:
        self.usd += usd
        self.tokens += tokens


Fit = Callable[[Decimal | None, int | None], Reservation | None]
"""What to set aside instead, when this much is left at most; None when that is of no use."""


class SharedBudget:
    """Dollars and tokens for all runs of some agents: `Agent(..., pool=SharedBudget(usd=5))`."""

    def __init__(
        self, *, usd: Decimal | float | str | None = None, tokens: int | None = None, name: str = "shared"
    ) -> None:
        limits = Budget(usd=usd, tokens=tokens, steps=None)  # type: ignore[arg-type]  # it takes numbers and words
        self.name, self.usd, self.tokens = name, limits.usd, limits.tokens
        self.spent, self.reserved, self.excess = Amount(), Amount(), Amount()
        self._holds = 0
        self._lock = threading.Lock()
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []

    @property
    def overshoot_usd(self) -> Decimal:
        """By how much the limit was exceeded: nought, unless calls came dearer than their worst case."""
        return Decimal(0) if self.usd is None else max(Decimal(0), self.spent.usd - self.usd)

    @property
    def story(self) -> str:
        told = []
        if self.usd is not None:
            told.append(f"${self.spent.usd:.4f} of ${self.usd:f} spent")
        if self.tokens is not None:
            told.append(f"{self.spent.tokens} of {self.tokens} tokens used")
        return f"of the budget {self.name!r}, {' and '.join(told)}; the next call would not fit"

    async def hold(self, wanted: Reservation, fit: Fit) -> "Hold | None":
        """Set the worst case of a call aside, when there is room; None when there never will be."""
        while True:
            turn = asyncio.get_running_loop().create_future()
            with self._lock:
                usd = None if self.usd is None else self.usd - self.spent.usd - self.reserved.usd
                tokens = (
                    None if self.tokens is None else self.tokens - self.spent.tokens - self.reserved.tokens
                )
                taken = wanted if _fits(wanted, usd, tokens) else None
                if taken is None and not self._holds:
                    taken = fit(usd, tokens)
                    if taken is None or not _fits(taken, usd, tokens):
                        return None
                if taken is not None:
                    self._holds += 1
                    self.reserved.add(taken.usd or Decimal(0), taken.tokens)
                    return Hold(self, taken)
                waiter = (turn.get_loop(), turn)
                self._waiting.append(waiter)
            try:
                await turn
            finally:
                with self._lock:
                    if waiter in self._waiting:
                        self._waiting.remove(waiter)

    def close(self, reservation: Reservation, usd: Decimal | None, tokens: int | None) -> None:
        """A call has ended: it came to this much, or to all that was set aside where nobody can tell."""
        set_aside = reservation.usd or Decimal(0)
        paid = set_aside if usd is None else usd
        used = reservation.tokens if tokens is None else tokens
        with self._lock:
            self._holds -= 1
            self.reserved.add(-set_aside, -reservation.tokens)
            self.spent.add(paid, used)
            self.excess.add(max(Decimal(0), paid - set_aside), max(0, used - reservation.tokens))
            waiting, self._waiting = self._waiting, []
        for loop, turn in waiting:
            if not loop.is_closed():
                loop.call_soon_threadsafe(_wake, turn)


class Hold:
    """What is set aside for one call, until it is closed; closing it again does nothing."""

    def __init__(self, pool: SharedBudget, reservation: Reservation) -> None:
        self._pool, self.reservation, self._open = pool, reservation, True

    def settle(self, usd: Decimal | None, tokens: int | None) -> None:
        if self._open:
            self._open = False
            self._pool.close(self.reservation, usd, tokens)

    def release(self) -> None:
        self.settle(Decimal(0), 0)


def _fits(wanted: Reservation, usd: Decimal | None, tokens: int | None) -> bool:
    if usd is not None and (wanted.usd is None or wanted.usd > usd):
        return False  # what a call costs is unknown, or too much
    return tokens is None or wanted.tokens <= tokens


def _wake(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)
