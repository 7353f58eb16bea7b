"""The tools of the refund desk. The bank is a file: every line of ledger.txt is a payment."""

import os
import time
from pathlib import Path

from bridle import ModelRetry, RunContext, tool

LEDGER = Path("ledger.txt")
ORDERS = {4411: ("brake pads", 18), 4412: ("two tubes", 24), 4413: ("a saddle", 59), 4414: ("a frame", 480)}


@tool(effect="read")
def find_order(number: int) -> str:
    """Goods and price of an order."""
    if number not in ORDERS:
        raise ModelRetry(f"there is no order {number}; ask the customer for the number")
    goods, usd = ORDERS[number]
    return f"{goods}, ${usd}, photograph of the damage"


def find_payment(ctx: RunContext) -> str | None:
    """Look a payment up by the key of its call; None if it was not made."""
    payments = LEDGER.read_text().splitlines() if LEDGER.exists() else []
    return next((f"paid {line}" for line in payments if line.endswith(ctx.idempotency_key)), None)


@tool(effect="write", resource="bank", on_unknown="probe", probe=find_payment)
def refund(ctx: RunContext, order: int, usd: int) -> str:
    """Pay an order back, in dollars."""
    line = f"order {order} ${usd} key {ctx.idempotency_key}"
    with LEDGER.open("a") as file:
        file.write(f"{line}\n")
    while os.environ.get("BANK_IS_SILENT_AT") == str(order):  # the payment is made, and no answer comes
        time.sleep(0.1)
    return f"paid {line}"


@tool(effect="read")
def read_statement(month: str) -> str:
    """All payments of a month."""
    return "\n".join(f"{month} {1 + n // 4}: order {3900 + 4 * n}, ${5 + 37 * n % 90}" for n in range(110))
