"""What several runs draw from: amounts, and the records of a budget that is kept in a store.

A budget in a store is a line of its own beside the sessions (`budget_line`): what was set aside before
each call and what it came to.  It is added up by core/account.py and written by run/till.py.
"""

from decimal import Decimal
from typing import Literal

from .quiet import Quiet
from .usage import Limits
from .value import Value

LINE = "budget:"
"""How the names of such lines begin; no session's may."""
TENANT = "tenant:"
"""How the names of tenants' budgets begin; no other's may."""
GENERATION = "~"
"""What stands between the name of a budget and the number of one of its lines."""

How = Literal["", "by its log", "never sent", "presumed"]
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

    def beyond(self, other: "Amount") -> "Amount":
        """What this is more than the other."""
        return Amount(
            usd=max(Decimal(0), self.usd - other.usd),
            tokens=max(0, self.tokens - other.tokens),
            steps=max(0, self.steps - other.steps),
        )


class Reserved(Quiet, tag="reserved"):
    """The worst case of a call was set aside, before anything was sent."""

    id: str
    """Of the call; it is on its `ModelAsked` too."""
    session: str
    """Who is driven as long as this is wanted, and whose log tells what became of it."""
    since: int
    """How long that log was when its driver took over: another driver's calls are over."""
    amount: Amount
    by: str = ""
    """The session that asks, when it is a run inside a tool of the other."""
    limits: Limits = Limits()
    """What it was held against."""


class Settled(Quiet, tag="settled"):
    """A call has ended, or was found to have: it came to this."""

    id: str
    amount: Amount = Amount()
    how: How = ""


class Carried(Quiet, tag="carried"):
    """The line goes on in another one, so that nobody has to read all of it to know how things stand."""

    generation: int
    spent: Amount
    excess: Amount
    open: tuple[Reserved, ...] = ()
    limits: Limits = Limits()
    presumed: tuple[Settled, ...] = ()


def budget_line(name: str, generation: int = 0) -> str:
    """0 is the line that says which one is written now.

    The mark between name and number is doubled where it is part of a name: no budget may be called like
    the line of another.
    """
    line = f"{LINE}{name.replace(GENERATION, 2 * GENERATION)}"
    return f"{line}{GENERATION}{generation}" if generation else line


def budget_of(line: str) -> str | None:
    """Whose records a line has; None for one that only says where they are."""
    named, mark, number = line.removeprefix(LINE).rpartition(GENERATION)
    between = len(named) - len(named.rstrip(GENERATION))
    if not (line.startswith(LINE) and mark and number.isdecimal()) or between % 2:
        return None
    return named.replace(2 * GENERATION, GENERATION)
