"""Shared budgets: what may be reserved, the account folded from the log, and settlement after a crash.

    offer_reservation   reserve now, reserve less, retry later, or never
    BudgetAccount       totals of a budget's log
    settle_from_log     cost of a call whose process crashed, according to its session's log

If a process crashed, its session log determines the charge. A call that ended is settled by the log; a call
that was never sent is refunded; a call that was sent and has no end may have been billed, so the whole
reservation counts as spent.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, NamedTuple

from bridle.core.state import State
from bridle.values import events as e
from bridle.values.budget import (
    Amount,
    BudgetReserved,
    BudgetSettled,
    BudgetSnapshot,
    SubrunCharged,
)
from bridle.values.model import Model
from bridle.values.record import Record
from bridle.values.usage import Limits, RateLimit, Reservation, Usage

from .limits import limit_scopes, model_call_spending

FitReservation = Callable[[Decimal | None, int | None], Reservation | None]
"""Returns a smaller reservation for what is left (dollars, tokens); None if that is useless."""
RETRY_LATER: Final = "later"


class RemainingBudget(NamedTuple):
    left: Mapping[str, Any]
    """What is left of each kind that a model call uses; kinds without a limit are missing."""

    def minus(self, amount: Amount) -> "RemainingBudget":
        return RemainingBudget({kind: left - getattr(amount, kind) for kind, left in self.left.items()})

    def can_cover(self, wanted: Reservation) -> bool:
        if "usd" in self.left and wanted.usd is None:
            return False  # the cost of the call is unknown
        amount = reserved_amount(wanted)
        return all(getattr(amount, kind) <= left for kind, left in self.left.items())


MODEL_CALL_KINDS = tuple(kind for kind in Amount.__struct_fields__ if kind != "tool_calls")


def remaining_budget(limits: Limits) -> RemainingBudget:
    return RemainingBudget({kind: getattr(limits, kind) for kind in limits.kinds if kind in MODEL_CALL_KINDS})


def remaining_of_run(state: State) -> RemainingBudget:
    """What a run leaves to the runs inside its tools."""
    left: dict[str, Any] = {}
    for scope in limit_scopes(state):
        for kind in scope.limits.kinds:
            if kind in MODEL_CALL_KINDS:
                limit, used = getattr(scope.limits, kind), scope.used(kind)
                rest = type(limit)(0) if used is None else limit - used
                left[kind] = min(left.get(kind, rest), rest)
    return RemainingBudget(left)


def reserved_amount(reservation: Reservation) -> Amount:
    """Worst case of a call; an unknown price counts as 0 dollars."""
    worst_case = model_call_spending(Usage(input=reservation.tokens), reservation.usd, steps=1)
    return worst_case.as_amount(unknown=Amount())


def settled_amount(reserved: Amount, usage: Usage, usd: Decimal | None, steps: int) -> Amount:
    """Amount of a finished call; as reserved where it is unknown."""
    return model_call_spending(usage, usd, steps).as_amount(unknown=reserved)


def offer_reservation(
    wanted: Reservation, fit: FitReservation, remaining: RemainingBudget, *, alone: bool
) -> Reservation | str | None:
    """Reservation to make; `RETRY_LATER` until others settle; None if there will never be enough."""
    if remaining.can_cover(wanted):
        return wanted
    if not alone:
        return RETRY_LATER
    smaller = fit(remaining.left.get("usd"), remaining.left.get("tokens"))
    return smaller if smaller is not None and remaining.can_cover(smaller) else None


def explain_tool_calls_used(limits: Limits, used: Amount, name: str) -> str:
    """Description of a used-up limit of tool calls; empty if calls are left."""
    if limits.tool_calls is None or used.tool_calls < limits.tool_calls:
        return ""
    return f"{used.tool_calls:,} of the {limits.tool_calls:,} tool calls of {name}"


def budget_warning(limits: Limits, used: Amount, name: str) -> str:
    """Description of the budget's use once it passes the wrap-up threshold; empty before."""
    if limits.wrap_up is None:
        return ""
    for kind in limits.kinds:
        part, limit = getattr(used, kind, 0), getattr(limits, kind)
        if limit and float(part) / float(limit) >= limits.wrap_up:
            amounts = f"${part:.4f} of the ${limit}" if kind == "usd" else f"{part:,} of the {limit}"
            unit = "" if kind == "usd" else f" {kind.replace('_', ' ')}"
            return f"{amounts}{unit} of {name}"
    return ""


class BudgetAccount:
    """Totals of a budget's log."""

    def __init__(self, carried: BudgetSnapshot | None = None) -> None:
        self.spent = carried.spent if carried else Amount()
        self.excess = carried.excess if carried else Amount()
        """Amount by which calls exceeded their reservations."""
        self.open_reservations = {each.id: each for each in carried.open_reservations} if carried else {}
        self._presumed = {each.id: each for each in carried.presumed} if carried else {}
        self.limits = carried.limits if carried else Limits()
        """Limits of the latest reservation."""
        self.continued_in: BudgetSnapshot | None = None
        """Set if the log continues in another generation."""

    @property
    def reserved(self) -> Amount:
        total = Amount()
        for each in self.open_reservations.values():
            total += each.amount
        return total

    def apply_event(self, event: e.Event) -> None:
        match event:
            case BudgetReserved():
                self.open_reservations[event.id], self.limits = event, event.limits
            case BudgetSettled():
                self._settle(event)
            case BudgetSnapshot():
                self.continued_in = event

    def make_snapshot(self, generation: int) -> BudgetSnapshot:
        return BudgetSnapshot(
            generation=generation,
            spent=self.spent,
            excess=self.excess,
            open_reservations=tuple(self.open_reservations.values()),
            limits=self.limits,
            presumed=tuple(self._presumed.values()),
        )

    def _settle(self, event: BudgetSettled) -> None:
        """Settle a reservation; a presumed settlement is replaced if its caller turns out to be alive."""
        presumed = self._presumed.pop(event.id, None)
        if presumed is not None:
            self.spent -= presumed.amount
        reserved = self.open_reservations.pop(event.id, None)
        self.spent += event.amount
        if reserved is not None:
            self.excess += event.amount.excess_over(reserved.amount)
        if event.source == "presumed":
            self._presumed[event.id] = event


def settle_from_log(
    reserved: BudgetReserved, own_log: Iterable[Record], nested_log: Iterable[Record]
) -> BudgetSettled:
    """Settle a call whose process is gone.

    `own_log` is the log that the reservation was made under; `nested_log` is that of the session that made
    the call, if it is another one and available.
    """
    records = list(nested_log) if reserved.nested_session else list(own_log)
    was_sent = False
    for record in records:
        event = record.event
        if not was_sent:
            was_sent = isinstance(event, e.ModelAsked) and _has_id(event.reservation, reserved.id)
        elif isinstance(event, e.ModelReplied):
            return _make_settlement(
                reserved, event.reply.usage, event.usd, steps=int(not event.summarizes_until)
            )
        elif isinstance(event, e.ModelFailed | e.RunEnded):
            if event.usage is None:
                return BudgetSettled(id=reserved.id, source="by its log")
            return _make_settlement(reserved, event.usage, event.usd, steps=0)
        elif isinstance(event, e.Resumed | e.Prompted | e.ModelAsked):
            break
    for record in own_log if reserved.nested_session else ():
        event = record.event
        if isinstance(event, SubrunCharged) and event.id == reserved.id:
            return _make_settlement(reserved, event.usage, event.usd, steps=event.steps)
    if records and not was_sent:
        return BudgetSettled(id=reserved.id, source="never sent")
    return BudgetSettled(id=reserved.id, amount=reserved.amount, source="presumed")


def _has_id(reservation: Reservation | None, id_: str) -> bool:
    return reservation is not None and reservation.id == id_


def _make_settlement(
    reserved: BudgetReserved, usage: Usage, usd: Decimal | None, steps: int
) -> BudgetSettled:
    """Settlement with the reported usage; the whole reservation if none was reported."""
    if not usage.prompt:
        return BudgetSettled(id=reserved.id, amount=reserved.amount, source="presumed")
    amount = settled_amount(reserved.amount, usage, usd, steps)
    return BudgetSettled(id=reserved.id, amount=amount, source="by its log")


def list_model_limits(state: State, model: Model) -> list[tuple[RateLimit, str]]:
    """The limits of model calls, each with the name of what it counts."""
    keys = {"endpoint": f"endpoint:{model.endpoint.name}", "tenant": f"tenant:{state.run.origin.tenant}"}
    return [(limit, keys[limit.per]) for limit in state.settings.rate_limits if not limit.tool]


def list_tool_limits(state: State, tool: str) -> list[tuple[RateLimit, str]]:
    """The limits of one tool's calls, those of its own definition last."""
    limits = [limit for limit in state.settings.rate_limits if limit.tool == tool]
    spec = state.settings.find_tool(tool)
    if spec is not None and spec.rate is not None:
        limits.append(spec.rate)
    return [(limit, f"tool:{tool}") for limit in limits]


def list_rate_uses(records: Sequence[Record]) -> list[tuple[float, int, int]]:
    """Time, requests and tokens of each call: its reservation and the correction after its reply."""
    uses: dict[str, tuple[float, int, int]] = {}
    for record in records:
        if isinstance(record.event, BudgetSettled):
            amount = record.event.amount
            at, requests, tokens = uses.get(record.event.id, (record.at, 0, 0))
            uses[record.event.id] = at, requests + amount.requests, max(0, tokens + amount.tokens)
    return list(uses.values())
