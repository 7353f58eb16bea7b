"""Reserves a model call in every budget of its run before it is sent, and settles it afterwards.

A run may have several sources: the outer run, if it runs inside a tool, the budgets of its tenant and its caller,
each in several periods, a pool.  The worst case of a call is reserved in all of them, or in none and the run ends.
All runs use the same order, so that no two wait for each other.  The cost is settled however the call ends;
reservations for a call that was never sent are released.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from dataclasses import replace as replace_fields
from decimal import Decimal
from functools import cached_property, partial
from typing import Any, NamedTuple

from msgspec.structs import replace

from bridle.core.budget.hosted import explain_unpriced_tools
from bridle.core.budget.limits import (
    RATE_LIMIT_NOTICE,
    RATE_LIMIT_RULE,
    SHARED_CALLS_RULE,
    TOOL_CALLS_NOTICE,
    deadline,
    fit_reservation,
    output_tokens_room,
    price_partial_reply,
    worst_case_reservation,
)
from bridle.core.budget.shared import list_model_limits, list_tool_limits
from bridle.core.compaction.summary import state_for_summarizer
from bridle.core.context.assemble import limit_output
from bridle.core.effects import AskModel
from bridle.core.state import State
from bridle.ports.clock import Clock
from bridle.ports.store import Store
from bridle.run.model_call import ModelCall
from bridle.run.model_connection import ModelConnection
from bridle.values.budget import caller_budget_name, tenant_budget_name
from bridle.values.errors import MisuseError
from bridle.values.events import RunEnded
from bridle.values.message import Reply, ToolCall
from bridle.values.result import Delta
from bridle.values.usage import (
    HOURS_AHEAD_SECONDS,
    Budget,
    Limits,
    Reservation,
    Usage,
    merge_limits,
    split_limits,
)

from .nested import NestedRun, SourceFactory
from .periods import load_zone
from .rates import RateLimiter, RateWait
from .shared import SharedBudget
from .source import ADMITTED_CALL, AdmittedCall, BudgetSource, CallCost, OpenReservation
from .stored import BudgetReserver, PeriodReserver, StoredBudget, open_budget_log

BudgetPool = SharedBudget | StoredBudget | None
RATE_TOO_SLOW = "the run's time is up before the rate limit allows the next call"
NO_ROOM_IN_TIME = "the run's time was up before there was room for its next call in a shared budget"
PRICE_VALID_SECONDS = HOURS_AHEAD_SECONDS / 2
"""Time a reservation may wait for room before its price is computed again."""


class BudgetSources:
    """The budget sources of one session."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        pools: Sequence[BudgetPool],
        nested_run: NestedRun | None,
        show: Callable[[Delta], None],
        connections: Mapping[str, ModelConnection],
    ) -> None:
        self._store, self._clock, self.nested_run = store, clock, nested_run
        self._pools = [pool for pool in pools if pool is not None]
        self._show, self._connections = show, connections
        self._session, self._driver_start = "", 0

    @cached_property
    def _rates(self) -> RateLimiter:
        return RateLimiter(self._store, self._clock, self._show)

    def set_session(self, session: str, driver_start: int) -> None:
        self._session, self._driver_start = session, driver_start

    def list_sources(self, state: State) -> list[tuple[object, SourceFactory]]:
        """The outer run first, then the others by name; no source appears twice."""
        limits, origin = state.run.budget.limits, state.run.origin
        check_shared_limits(limits, origin.tenant, origin.caller)
        found = dict(self.nested_run.list_sources()) if self.nested_run is not None else {}
        for each in split_limits(limits.tenant):
            self._add_stored(found, tenant_budget_name(origin.tenant), each)
        for each in split_limits(limits.caller):
            self._add_stored(found, caller_budget_name(origin.tenant, origin.caller), each)
        for pool in self._pools:
            if isinstance(pool, StoredBudget):
                self._add_stored(found, pool.name, pool.limits)
            else:
                found.setdefault(pool, partial(_share_pool, pool))
        return sorted(found.items(), key=lambda item: _source_order(item[0]))

    def _add_stored(self, found: dict[object, SourceFactory], name: str, limits: Limits) -> None:
        key = StoredKey(name, limits.period or "", limits.zone, id(self._store))
        around = found.get(key)
        if isinstance(around, StoredSource):
            found[key] = replace_fields(around, limits=merge_limits(around.limits, limits))
        else:
            found[key] = StoredSource(
                self._store, name, limits, self._clock, self._session, self._driver_start
            )

    def _has_sources(self, state: State) -> bool:
        limits = state.run.budget.limits
        shared = limits.tenant is not None or limits.caller is not None
        return self.nested_run is not None or bool(self._pools) or shared

    def open_sources(self, state: State) -> list[BudgetSource]:
        if not self._has_sources(state):
            return []
        return [source(self._session) for _, source in self.list_sources(state)]

    def limits_tool_calls(self, state: State, tool: str) -> bool:
        """True if any source limits tool calls, or a rate limits this tool."""
        if tool in state.settings.limited_tools:
            return True
        return any(source.limits_tool_calls for source in self.open_sources(state))

    async def admit_call(self, state: State, call: ToolCall, *, first: bool) -> AdmittedCall:
        """Wait for the rates of a tool call; count it in every source if it is the first attempt."""
        waited = 0.0
        if call.name in state.settings.limited_tools:
            rate = await self._wait_for_tool(state, call)
            if rate.too_long:
                return AdmittedCall(
                    rate.waited, RATE_LIMIT_NOTICE.format(wait=rate.too_long), RATE_LIMIT_RULE
                )
            waited = rate.waited
        if (
            first
            and self._has_sources(state)
            and (used := await self._count_call(state, f"{self._session}/{call.id}"))
        ):
            return AdmittedCall(waited, TOOL_CALLS_NOTICE.format(used=used), SHARED_CALLS_RULE)
        return AdmittedCall(waited) if waited else ADMITTED_CALL

    async def _count_call(self, state: State, call: str) -> str:
        """Count a tool call in every source; returns the reason if one refuses it."""
        counted: list[BudgetSource] = []
        for source in self.open_sources(state):
            if used := await source.count_call(call):
                # The call does not run, so the sources that accepted it must not count it.
                await _await_each(each.uncount_call(call) for each in counted)
                return used
            counted.append(source)
        return ""

    async def _wait_for_tool(self, state: State, call: ToolCall) -> RateWait:
        until = deadline(state)
        left = None if until is None else until - self._clock.now()
        limits = list_tool_limits(state, call.name)
        return await self._rates.reserve(limits, f"{self._session}/{call.id}", 0, left, (call.name, call.id))

    async def wait_for_model(
        self, state: State, effect: AskModel, tokens: int, seconds: float | None, call: str
    ) -> float | None:
        """Wait for the provider and for all rates of a model call; returns the seconds, or None if too long."""
        model = effect.request.model
        breakers = self._connections[model.model_key].breakers
        waited = 0.0
        prompt = _count_new_tokens(state)
        while (pause := breakers.find_pause(model, prompt, self._clock.monotonic())) > 0:
            if not await self._rates.sleep(pause, seconds, waited, model.endpoint.name, ("rate limit", "")):
                return None
            waited += pause
        left = None if seconds is None else seconds - waited
        limits = list_model_limits(state, model)
        rate = await self._rates.reserve(limits, call, tokens, left, ("rate limit", ""))
        return None if rate.too_long else waited + rate.waited

    async def settle_rates(self, state: State, effect: AskModel, call: str, difference: int) -> None:
        await self._rates.settle(list_model_limits(state, effect.request.model), call, difference)

    def now(self) -> float:
        return self._clock.now()

    def is_paused(self, state: State, effect: AskModel) -> bool:
        """True if the provider reports that it does not accept this call for now."""
        model = effect.request.model
        breakers = self._connections[model.model_key].breakers
        if not breakers.provider_limits:
            return False
        return breakers.find_pause(model, _count_new_tokens(state), self._clock.monotonic()) > 0

    def make_call_id(self, length: int) -> str:
        """The id of a model call sent when the log has this many records."""
        return f"{self._session}#{length}"


class StoredKey(NamedTuple):
    """What tells the budgets of one run apart. Its order is that in which all runs reserve."""

    name: str
    period: str
    zone: str
    store: int


@dataclass(frozen=True, slots=True)
class StoredSource:
    """A budget in the store, with the limits of all runs and agents that name it."""

    store: Store
    name: str
    limits: Limits
    clock: Clock
    session: str
    driver_start: int

    def __call__(self, by: str) -> BudgetSource:
        nested_session = "" if by == self.session else by
        given = self.limits, self.clock, self.session, self.driver_start, nested_session
        if self.limits.period is not None:
            return PeriodReserver(self.store, self.name, *given)
        return BudgetReserver(open_budget_log(self.store, self.name), *given)


def _share_pool(pool: SharedBudget, by: str) -> BudgetSource:
    """The pool itself, for every session that reserves from it."""
    return pool


def _count_new_tokens(state: State) -> int:
    """Tokens of the next prompt that no provider has read yet: cached ones often do not count against a limit."""
    return max(0, state.estimate.prompt_tokens - state.estimate.counted_tokens)


def check_shared_limits(budget: Budget, tenant: str, caller: str) -> None:
    """Raise `MisuseError` for limits of a tenant or caller that cannot be enforced."""
    for scope, shared, owner in (("tenant", budget.tenant, tenant), ("caller", budget.caller, caller)):
        if shared is not None and not owner:
            raise MisuseError(f"Budget({scope}=…) needs a {scope}: agent.run(…, {scope}=NAME)")
        for limits in split_limits(shared):
            load_zone(limits.zone)
            if limits.seconds is None:
                continue
            raise MisuseError(
                f"Budget({scope}=…) does not support seconds: its runs may run at the same time"
            )


def check_pool(pool: object) -> None:
    if pool is not None and not isinstance(pool, SharedBudget | StoredBudget):
        raise MisuseError(f"`pool` must be a SharedBudget(…) or a StoredBudget(name=…, …), not {pool!r}")


@dataclass(slots=True)
class ReservedCall:
    """A model call with its reservations."""

    state: State
    """The session at the time of the reservation."""
    effect: AskModel
    """The call, with its output limited to what the budgets can pay for."""
    reservations: Sequence[OpenReservation] = ()
    end: RunEnded | None = None
    """Set if the run ends instead, because too little is left."""
    settle_rate: Callable[[int], Awaitable[None]] | None = None
    """Takes the tokens that the call used."""
    cost: CallCost | None = None
    """Cost of the call once it was sent."""

    @property
    def reservation(self) -> Reservation | None:
        """The reservation to log: the first with a warning, otherwise the last and smallest."""
        if not self.reservations:
            return None
        each = [reserved.reservation for reserved in self.reservations]
        return next((one for one in each if one.budget_warning), each[-1])

    def send(
        self,
        call: ModelCall,
        show: Callable[[list[Delta]], None],
        now: float,
        begun: Callable[[], None],
        cost: Callable[[Usage], Decimal | None],
    ) -> Coroutine[Any, Any, Reply]:
        """Send the call and note its cost; `cost` prices a usage.

        The cost is settled when the reply is recorded: a process that is killed in between loses no reply, and its
        log settles the call.
        """
        sending = call.send(show, now, begun)
        is_free = self.settle_rate is None and not self.reservations
        return sending if is_free else self._note_cost(call, sending, cost)

    async def _note_cost(
        self, call: ModelCall, sending: Coroutine[Any, Any, Reply], cost: Callable[[Usage], Decimal | None]
    ) -> Reply:
        reply: Reply | None = None
        try:
            reply = await sending
            return reply
        finally:
            usage = reply.usage if reply is not None else call.usage
            if usage is not None and self.settle_rate is not None:
                await self.settle_rate(usage.total)
            if usage is not None and self.reservations:
                usd = cost(usage)
                if reply is None:
                    usage, usd = price_partial_reply(self.state, usage, usd)
                # A summary does not count as a step.
                steps = int(reply is not None and not self.effect.summarizes_until)
                self.cost = CallCost(usage, usd, steps)

    async def close(self) -> None:
        """Settle the cost; release what was reserved for a call that was never sent."""
        cost = self.cost
        if cost is not None:
            await _await_each(reserved.settle(cost) for reserved in self.reservations)
        else:
            await _await_each(reserved.release() for reserved in self.reservations)


def reserve(
    sources: BudgetSources, state: State, effect: AskModel, seconds: float | None, length: int
) -> ReservedCall | AbstractAsyncContextManager[ReservedCall]:
    """Reserve the worst case of a call in all sources while the context is open; the call itself if it has none."""
    if effect.request.model.endpoint.is_program:
        return ReservedCall(state, effect)
    state = state_for_summarizer(state, effect.request.model.model_key)
    waits = bool(state.settings.rate_limits) or sources.is_paused(state, effect)
    opened = sources.open_sources(state)
    if not waits and not opened:
        return ReservedCall(state, effect)
    return _reserve(sources, opened, state, effect, seconds, length, waits=waits)


@asynccontextmanager
async def _reserve(
    sources: BudgetSources,
    opened: Sequence[BudgetSource],
    state: State,
    effect: AskModel,
    seconds: float | None,
    length: int,
    *,
    waits: bool,
) -> AsyncIterator[ReservedCall]:
    rate: Callable[[int], Awaitable[None]] | None = None
    if waits:
        call = f"{sources.make_call_id(length)}:{effect.attempt}"
        tokens = state.estimate.prompt_tokens + (effect.request.max_tokens or output_tokens_room(state))
        waited = await sources.wait_for_model(state, effect, tokens, seconds, call)
        if waited is None:
            partial = state.run.attempt.partial_text
            late = RunEnded(stop="seconds", reason=RATE_TOO_SLOW, partial_text=partial)
            yield ReservedCall(state, effect, end=late)
            return
        if waited:
            effect = replace(effect, wait_seconds=effect.wait_seconds + waited, wait_source="rate-limit")
            seconds = None if seconds is None else max(0.0, seconds - waited)
        asked = effect

        async def rate(used: int) -> None:
            await sources.settle_rates(state, asked, call, used - tokens)

    if not opened:
        yield ReservedCall(state, effect, settle_rate=rate)
        return
    reservations: list[OpenReservation] = []
    held = ReservedCall(state, effect, reservations, settle_rate=rate)
    end: RunEnded | None = None
    maximum = effect.request.max_tokens or output_tokens_room(state)
    try:
        try:
            async with asyncio.timeout(seconds):
                while True:
                    state = replace(state, now=max(state.now, sources.now()))
                    worst = worst_case_reservation(state, maximum, "")
                    wanted = replace(worst, id=sources.make_call_id(length))
                    with suppress(_StalePrice):
                        short = await _reserve_everywhere(opened, state, wanted, reservations)
                        break
            if short is not None:
                reason = short.shortage_reason + (explain_unpriced_tools(state) if worst.usd is None else "")
                end = RunEnded(stop="budget", reason=reason, partial_text=state.run.attempt.partial_text)
        except TimeoutError:
            end = RunEnded(
                stop="seconds", reason=NO_ROOM_IN_TIME, partial_text=state.run.attempt.partial_text
            )
        if end is not None:
            yield ReservedCall(state, effect, end=end)
            return
        held.state = state
        room = reservations[-1].reservation.output_tokens
        if room < maximum:
            held.effect = replace(effect, request=limit_output(effect.request, room))
        yield held
    finally:
        await held.close()


async def _await_each(closing: Iterator[Coroutine[None, None, None]]) -> None:
    """Await all of them even if one fails or is cancelled, so that no spending is lost."""
    for close in closing:
        try:
            await close
        finally:
            await _await_each(closing)


class _StalePrice(Exception):
    """The reservation was priced too long ago."""


async def _reserve_everywhere(
    sources: Sequence[BudgetSource], state: State, wanted: Reservation, reservations: list[OpenReservation]
) -> BudgetSource | None:
    """Reserve in every source, appending to `reservations`; returns the source with too little left, if any."""
    # guard: pool-reservation
    for source in sources[len(reservations) :]:
        timeout = asyncio.timeout(PRICE_VALID_SECONDS)
        try:
            async with timeout:
                reserved = await source.reserve(wanted, _make_fit(state, wanted))
        except TimeoutError:
            if not timeout.expired():
                raise
            for earlier in reversed(reservations):
                await earlier.release()
            reservations.clear()
            raise _StalePrice from None
        if reserved is None:
            return source
        reservations.append(reserved)
        wanted = reserved.reservation
    return None


def _make_fit(
    state: State, wanted: Reservation
) -> Callable[[Decimal | None, int | None], Reservation | None]:
    def fit(usd: Decimal | None, tokens: int | None) -> Reservation | None:
        smaller = fit_reservation(state, wanted, usd, tokens)
        return None if smaller is None else replace(smaller, id=wanted.id)

    return fit


def _source_order(key: object) -> tuple[int, str, str, int]:
    """The outer run first, then by name and period; the identity separates equal names."""
    if isinstance(key, NestedRun):
        return 0, "", "", 0
    if isinstance(key, StoredKey):
        return 1, key.name, f"{key.period} {key.zone}", key.store
    return 1, str(getattr(key, "name", "")), "", id(key)
