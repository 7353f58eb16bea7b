"""Makes calls wait for their rate limits, which all runs of one store share.

Each limit has `RATE_LOGS` logs, used in turn, one for each period.  A call reads them, appends itself to that of this
period, or waits.  Two processes that append at the same time get a conflict, and one of
them reads again.  A log whose records are all older than the period starts again, so that the store does not
grow; a store that cannot start a log again (`RestartableStore`) has one log for each period.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from bridle.core.budget.shared import list_rate_uses
from bridle.ports.clock import Clock
from bridle.ports.store import RestartableStore, Store, supports
from bridle.values.budget import BUDGET_LOG_PREFIX, Amount, BudgetSettled
from bridle.values.errors import Conflict
from bridle.values.record import GENESIS, Record, seal_record
from bridle.values.result import Delta, Progress
from bridle.values.usage import RateLimit

RATE_WAIT = "waits {wait:.3g} s for the rate limit of {key}"
RATE_LOGS = 3
"""This period, the one before, and one more for the calls of a process whose clock is late."""

LimitedKey = tuple[RateLimit, str]
"""A limit, and the name of what it counts: an endpoint, a tenant or a tool."""


class RateWait(NamedTuple):
    waited: float = 0.0
    """Seconds for which the call waited."""
    too_long: float = 0.0
    """Seconds that it would have to wait longer, if that exceeds the run's time.

    Limits that were reserved before keep the reservation until their period is over.
    """


class RateLimiter:
    """The rate limits of one session's calls."""

    def __init__(self, store: Store, clock: Clock, show: Callable[[Delta], None]) -> None:
        self._store, self._clock, self._show = store, clock, show
        self._seen_ahead: dict[tuple[float, int, int], float] = {}
        """Uses of a time that has not come yet, with the moment when each was first seen."""

    async def reserve(
        self,
        limits: Sequence[LimitedKey],
        call: str,
        tokens: int,
        seconds: float | None,
        shown_as: tuple[str, str],
    ) -> RateWait:
        """Reserve a call in every limit, in order, waiting at most `seconds`."""
        waited = 0.0
        for limit, key in limits:
            while wait := await self._reserve(limit, key, call, tokens):
                if not await self.sleep(wait, seconds, waited, key, shown_as):
                    return RateWait(waited, wait)
                waited += wait
        return RateWait(waited)

    async def sleep(
        self, wait: float, seconds: float | None, waited: float, key: str, shown_as: tuple[str, str]
    ) -> bool:
        """Show the wait, then wait; False if the run's time would be up before."""
        if seconds is not None and waited + wait > seconds:
            return False
        name, call_id = shown_as
        self._show(Progress(name=name, message=RATE_WAIT.format(wait=wait, key=key), call_id=call_id))
        await self._clock.sleep(wait)
        return True

    async def settle(self, limits: Sequence[LimitedKey], call: str, difference: int) -> None:
        """Replace the reserved tokens of a call with the actual ones, by their difference."""
        for limit, key in limits:
            if limit.tokens is not None:
                settled = BudgetSettled(id=call, amount=Amount(tokens=difference))
                while True:
                    now = self._clock.now()
                    name = self._name_logs(limit, key, now)[-1]
                    if await self._append(limit, name, await self._store.read(name), settled, now):
                        break

    async def _reserve(self, limit: RateLimit, key: str, call: str, tokens: int) -> float:
        """Append the call to the log of the period, and return 0; or return the seconds until it fits."""
        while True:
            now = self._clock.now()
            names = self._name_logs(limit, key, now)
            *before, current = [await self._store.read(name) for name in names]
            records = [record for log in before for record in log]
            uses = self._date_uses(list_rate_uses((*records, *current)), limit, now)
            wait = limit.find_wait(uses, tokens, now)
            if wait > 0:
                return wait
            used = BudgetSettled(id=call, amount=Amount(steps=1, tokens=tokens))
            if await self._append(limit, names[-1], current, used, now):
                return 0.0

    def _date_uses(
        self, uses: Sequence[tuple[float, int, int]], limit: RateLimit, now: float
    ) -> list[tuple[float, int, int]]:
        """The uses, with those of a time that has not come yet dated to when they were first seen.

        They are from before the clock was set back, by an unknown time: each counts for a whole period from now.
        """
        dated: list[tuple[float, int, int]] = []
        for use in uses:
            if use[0] - now >= limit.seconds:
                moment = self._clock.monotonic()
                seen = self._seen_ahead.setdefault(use, moment)
                dated.append((now - (moment - seen), *use[1:]))
            else:
                dated.append(use)
        return dated

    def _name_logs(self, limit: RateLimit, key: str, now: float) -> list[str]:
        """The logs to read, that of the current period last.

        Of logs that are used in turn all are read: after the clock was set back, any may hold the latest calls.
        """
        period = int(now // limit.seconds)
        if supports(self._store, RestartableStore):
            places = [(period + 1 + each) % RATE_LOGS for each in range(RATE_LOGS)]
        else:
            places = [period - 1, period]
        return [name_rate_log(limit, key, each) for each in places]

    async def _append(
        self, limit: RateLimit, name: str, records: Sequence[Record], event: BudgetSettled, now: float
    ) -> bool:
        """Append the event, or start the log again with it if all its records have expired; False on a conflict."""
        head = records[-1].hash if records else GENESIS
        # guard: rate-record-expiry
        expired = bool(records) and not any(abs(record.at - now) < limit.seconds for record in records)
        try:
            if expired and supports(self._store, RestartableStore):
                await self._store.restart(name, head, seal_record(1, now, event, GENESIS))
            else:
                length = len(records)
                await self._store.append(name, length, (seal_record(length + 1, now, event, head),))
        except Conflict:
            return False
        return True


def name_rate_log(limit: RateLimit, key: str, number: int) -> str:
    """Name of one of the logs in which the calls of `key` are counted."""
    return f"{BUDGET_LOG_PREFIX}rate:{key}/{limit.seconds:g}@{number}"
