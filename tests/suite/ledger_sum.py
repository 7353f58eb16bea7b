"""The sum of ledger entries, to compare a ledger with the totals of a session."""

from collections.abc import Iterable

from msgspec.structs import replace

from bridle.core.budget.ledger import LedgerEntry
from bridle.core.budget.limits import add_spending
from bridle.values.budget import Spending


def sum_entries(each: Iterable[LedgerEntry]) -> Spending:
    total = Spending()
    for entry in each:
        if entry.outcome != "lost":
            steps = entry.outcome == "answered" and not entry.summary
            total = add_spending(total, entry.usage, entry.usd, steps=steps)
        total = replace(total, tool_calls=total.tool_calls + entry.tool_calls)
    return total
