"""What several runs draw from: amounts, and the records of a budget that is kept in a store.

A budget in a store is a line of its own beside the sessions (`budget_line`): what was set aside before
each call and what it came to.  It is added up by core/budget/shared.py and written by run/budget/stored.py.
"""

from decimal import Decimal
from typing import Literal

from .base import EventBase, Value
from .usage import Limits, Usage

BUDGET_LOG_PREFIX = "budget:"
"""How the names of such lines begin; no session's may."""
TENANT_BUDGET_PREFIX = "tenant:"
"""How the names of tenants' budgets begin; no other's may."""
GENERATION_MARK = "~"
"""What stands between the name of a budget and the number of one of its lines."""

SettlementSource = Literal["", "by its log", "never sent", "presumed"]
"""Who says so: whoever made the call; or, for one that is gone, the log of its session."""


class Amount(Value):
    usd: Decimal = Decimal(0)
    tokens: int = 0
    steps: int = 0
    tool_calls: int = 0

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(
            usd=self.usd + other.usd,
            tokens=self.tokens + other.tokens,
            steps=self.steps + other.steps,
            tool_calls=self.tool_calls + other.tool_calls,
        )

    def __sub__(self, other: "Amount") -> "Amount":
        return Amount(
            usd=self.usd - other.usd,
            tokens=self.tokens - other.tokens,
            steps=self.steps - other.steps,
            tool_calls=self.tool_calls - other.tool_calls,
        )

    def excess_over(self, other: "Amount") -> "Amount":
        """What this is more than the other."""
        return Amount(
            usd=max(Decimal(0), self.usd - other.usd),
            tokens=max(0, self.tokens - other.tokens),
            steps=max(0, self.steps - other.steps),
        )


class BudgetReserved(EventBase, tag="reserved"):
    """The worst case of a call was set aside, before anything was sent."""

    id: str
    """Of the call; it is on its `ModelAsked` too."""
    session: str
    """Who is driven as long as this is wanted, and whose log tells what became of it."""
    driver_start: int
    """How long that log was when its driver took over: another driver's calls are over."""
    amount: Amount
    nested_session: str = ""
    """The session that asks, when it is a run inside a tool of the other."""
    limits: Limits = Limits()
    """What it was held against."""


class BudgetSettled(EventBase, tag="settled"):
    """A call has ended, or was found to have: it came to this."""

    id: str
    amount: Amount = Amount()
    source: SettlementSource = ""


class BudgetSnapshot(EventBase, tag="carried"):
    """The line goes on in another one, so that nobody has to read all of it to know how things stand."""

    generation: int
    spent: Amount
    excess: Amount
    open_reservations: tuple[BudgetReserved, ...] = ()
    limits: Limits = Limits()
    presumed: tuple[BudgetSettled, ...] = ()


def budget_log_name(name: str, generation: int = 0) -> str:
    """0 is the line that says which one is written now.

    The mark between name and number is doubled where it is part of a name: no budget may be called like
    the line of another.
    """
    line = f"{BUDGET_LOG_PREFIX}{name.replace(GENERATION_MARK, 2 * GENERATION_MARK)}"
    return f"{line}{GENERATION_MARK}{generation}" if generation else line


def parse_budget_log_name(line: str) -> str | None:
    """Whose records a line has; None for one that only says where they are."""
    named, mark, number = line.removeprefix(BUDGET_LOG_PREFIX).rpartition(GENERATION_MARK)
    between = len(named) - len(named.rstrip(GENERATION_MARK))
    if not (line.startswith(BUDGET_LOG_PREFIX) and mark and number.isdecimal()) or between % 2:
        return None
    return named.replace(2 * GENERATION_MARK, GENERATION_MARK)


# A run inside a tool of another run, as the other one's log tells of it.
#
# The inner run has a log of its own, with everything in it; here stands that it was, and what it drew.


class SubrunStarted(EventBase, tag="subrun_started"):
    """A run inside a tool is about to spend something of this run's budget."""

    call_id: str
    session: str


class SubrunCharged(EventBase, tag="subrun_charged"):
    """A call of a run inside a tool has ended: it came to this, and it is this run's too."""

    call_id: str
    session: str
    id: str
    """Of what was set aside for it."""
    usage: Usage = Usage()
    usd: Decimal | None = None
    steps: int = 0


class Subrun(Value):
    """What a run inside a tool has come to."""

    session: str
    call_id: str
    tool: str = ""
    usage: Usage = Usage()
    usd: Decimal | None = Decimal(0)
    """None when a price is unknown."""
    steps: int = 0


# What was spent, added up: by a run, by a session, by the runs inside a tool.


class Spending(Value):
    steps: int = 0
    usage: Usage = Usage()
    usd: Decimal | None = Decimal(0)
    """None as soon as one reply could not be priced: a sum with an unknown in it is unknown."""
    tool_calls: int = 0
