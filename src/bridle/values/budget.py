"""Budget amounts, the events of a shared budget's log, and the spending of nested runs.

A shared budget has a log of its own beside the sessions (`budget_log_name`): the reservation made before each
call, and its settlement. core/budget/shared.py folds it, run/budget/stored.py writes it.

A run inside a tool (a subrun) has a full log of its own. The parent's log records only that it started and
what it charged.
"""

import operator
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Literal

from .base import EventBase, Value
from .usage import LIMIT_PERIODS, Limits, Usage

BUDGET_LOG_PREFIX = "budget:"
"""Prefix of the names of budget logs; session ids must not start with it."""
TENANT_BUDGET_PREFIX = "tenant:"
"""Prefix of the names of tenant budgets; other budgets must not start with it."""
CALLER_BUDGET_PREFIX = "caller:"
"""Prefix of the names of caller budgets."""
PERIOD_BUDGET_PREFIXES = tuple(f"{period}:" for period in LIMIT_PERIODS)
"""Prefixes of the names of budgets in one period."""
RESERVED_BUDGET_PREFIXES = (TENANT_BUDGET_PREFIX, CALLER_BUDGET_PREFIX, *PERIOD_BUDGET_PREFIXES)
GENERATION_MARK = "~"
"""Separates a budget's name from the generation number of its log."""

SettlementSource = Literal["", "by its log", "never sent", "presumed"]
"""Basis of a settlement: the caller itself (empty) or, after a crash, the log of its session."""


class Amount(Value, kw_only=True):
    """Amounts counted against a budget."""

    usd: Decimal = Decimal(0)
    tokens: int = 0
    steps: int = 0
    tool_calls: int = 0

    @property
    def requests(self) -> int:
        """Calls of models and tools, as a rate limit counts them."""
        return self.steps + self.tool_calls

    def __add__(self, other: "Amount") -> "Amount":
        return self._combine(other, operator.add)

    def __sub__(self, other: "Amount") -> "Amount":
        return self._combine(other, operator.sub)

    def excess_over(self, other: "Amount") -> "Amount":
        """Each amount by which this exceeds `other`, or 0."""
        return self._combine(other, lambda own, others: max(type(own)(0), own - others))

    def _combine(self, other: "Amount", operation: Callable[[Any, Any], Any]) -> "Amount":
        """Apply an operation to every kind."""
        kinds = self.__struct_fields__
        return Amount(**{kind: operation(getattr(self, kind), getattr(other, kind)) for kind in kinds})


class BudgetReserved(EventBase, kw_only=True, tag="budget_reserved"):
    """The worst-case amount of a call was reserved, before anything was sent."""

    id: str
    """Id of the call, repeated on its `ModelAsked`."""
    session: str
    """Session whose driver holds the reservation; its log determines the charge after a crash."""
    driver_start: int
    """Length of that log when its driver took over; the calls of any earlier driver have ended."""
    amount: Amount
    nested_session: str = ""
    """Session that makes the call, if it is a subrun of `session`."""
    limits: Limits = Limits()
    """Limits that the reservation was checked against."""


class BudgetSettled(EventBase, kw_only=True, tag="budget_settled"):
    """A call ended, or was found to have ended, and cost this amount."""

    id: str
    amount: Amount = Amount()
    source: SettlementSource = ""


class BudgetSnapshot(EventBase, kw_only=True, tag="budget_snapshot"):
    """Totals carried over to a new generation of the log, so that readers need not start at generation 0."""

    generation: int
    spent: Amount
    excess: Amount
    open_reservations: tuple[BudgetReserved, ...] = ()
    limits: Limits = Limits()
    presumed: tuple[BudgetSettled, ...] = ()


def tenant_budget_name(tenant: str) -> str:
    return f"{TENANT_BUDGET_PREFIX}{tenant}"


def caller_budget_name(tenant: str, caller: str) -> str:
    """Name of a caller's budget, `caller:TENANT/CALLER`: callers of two tenants may have the same name."""
    names = (tenant, caller) if tenant else (caller,)
    return CALLER_BUDGET_PREFIX + "/".join(each.replace("%", "%25").replace("/", "%2F") for each in names)


def period_budget_name(name: str, period: str, label: str, zone: str) -> str:
    """Name of a budget in one period, such as `day:2026-11-18:Europe/Berlin:tenant:acme`."""
    return ":".join((period, label, zone or "UTC", name))


def strip_period(name: str) -> str:
    """Name of a budget without its period."""
    return name.split(":", 3)[3] if name.startswith(PERIOD_BUDGET_PREFIXES) else name


def budget_log_name(name: str, generation: int = 0) -> str:
    """Name of a budget's log; generation 0 is the log that names the current generation.

    The mark is doubled where it is part of the budget's name, so that no name collides with another budget's
    log.
    """
    line = f"{BUDGET_LOG_PREFIX}{name.replace(GENERATION_MARK, 2 * GENERATION_MARK)}"
    return f"{line}{GENERATION_MARK}{generation}" if generation else line


def parse_budget_log_name(line: str) -> str | None:
    """Budget whose records this log has; None for a generation-0 log, which only points to the current one."""
    escaped_name, mark, number = line.removeprefix(BUDGET_LOG_PREFIX).rpartition(GENERATION_MARK)
    trailing_marks = len(escaped_name) - len(escaped_name.rstrip(GENERATION_MARK))
    if not (line.startswith(BUDGET_LOG_PREFIX) and mark and number.isdecimal()) or trailing_marks % 2:
        return None
    return escaped_name.replace(2 * GENERATION_MARK, GENERATION_MARK)


class SubrunStarted(EventBase, kw_only=True, tag="subrun_started"):
    """A run inside a tool is about to draw on this run's budget."""

    call_id: str
    session: str
    name: str = ""
    arguments: str = ""
    """Tool that it runs in, and the arguments of that call as JSON text."""


class SubrunCharged(EventBase, kw_only=True, tag="subrun_charged"):
    """A model call of a subrun ended; its cost counts against this run too."""

    call_id: str
    session: str
    id: str
    """Id of its reservation."""
    usage: Usage = Usage()
    usd: Decimal | None = None
    steps: int = 0
    tool_calls: int = 0
    """1 for a tool call of a program, which is recorded before it runs if the run limits its tool calls."""


class SubrunWaiting(EventBase, kw_only=True, tag="subrun_waiting"):
    """A run inside a tool waits for a person. Its call has no result yet; a resumed run runs it again."""

    call_id: str
    session: str
    """Session of the run that waits; its pending approvals are there."""
    reason: str = ""
    name: str = ""
    arguments: str = ""
    """As in `SubrunStarted`."""


REMAINDER_SUFFIX = "#unrecorded"
"""Ends the id of the charge for what a subrun spent before a crash, and which its own log counts call by call."""


class Subrun(Value, kw_only=True):
    """Total spending of a run inside a tool."""

    session: str
    call_id: str
    tool: str = ""
    usage: Usage = Usage()
    usd: Decimal | None = Decimal(0)
    steps: int = 0
    tool_calls: int = 0
    """Tool calls of a program that were charged to the outer run."""


class Spending(Value, kw_only=True):
    """Accumulated spending of a run, a session, or the subruns of a tool."""

    steps: int = 0
    usage: Usage = Usage()
    usd: Decimal | None = Decimal(0)
    """None as soon as one reply has no known price."""
    tool_calls: int = 0

    def __add__(self, other: "Spending") -> "Spending":
        """Sum of every kind; the price is unknown (None) if one of the two is."""
        return Spending(
            steps=self.steps + other.steps,
            usage=self.usage + other.usage,
            usd=None if self.usd is None or other.usd is None else self.usd + other.usd,
            tool_calls=self.tool_calls + other.tool_calls,
        )

    @property
    def tokens(self) -> int:
        return self.usage.total

    def as_amount(self, unknown: Amount) -> Amount:
        """The amount of every kind; that of `unknown` for an unknown price and for a call without counts."""
        missing = {"usd": self.usd is None, "tokens": not self.tokens}
        kinds = unknown.__struct_fields__
        return Amount(**{kind: getattr(unknown if missing.get(kind) else self, kind) for kind in kinds})
