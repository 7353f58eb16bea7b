"""The tools of the refund desk. The bank is a file: every line of ledger.txt is a payment, or one that was taken back.

An order is paid back once, and at most at its price. The file is in the folder that the run has as its context, or in
the current one.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import msgspec

from bridle import ModelRetry, RunContext, tool

LEDGER = "ledger.txt"
ORDERS = {4411: ("brake pads", 18), 4412: ("two tubes", 24), 4413: ("a saddle", 59), 4414: ("a frame", 480)}


@tool(effect="read")
def find_order(number: int) -> str:
    """Goods and price of an order."""
    if number not in ORDERS:
        raise ModelRetry(f"there is no order {number}; ask the customer for the number")
    goods, usd = ORDERS[number]
    return f"{goods}, ${usd}, photograph of the damage"


def find_file(ctx: RunContext[object], name: str) -> Path:
    """A file of the desk: in the folder that is the context of the run, or in the current one."""
    return (ctx.context if isinstance(ctx.context, Path) else Path()) / name


def read_lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


@contextmanager
def lock_file(path: Path) -> Iterator[None]:
    """Hold a file of the desk against other threads and processes."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def append_line(path: Path, line: str) -> None:
    with path.open("a") as file:
        file.write(f"{line}\n")
        file.flush()
        os.fsync(file.fileno())


def find_line(path: Path, ctx: RunContext[object]) -> str | None:
    """The line that was written with the key of this call."""
    return next((line for line in read_lines(path) if line.split()[-1] == ctx.idempotency_key), None)


def list_open_payments(lines: list[str], order: int) -> list[int]:
    """Payments for an order that were not taken back."""
    found: list[int] = []
    for words in map(str.split, lines):
        usd = int(words[2].replace("$", ""))
        if words[1] == str(order) and usd > 0:
            found.append(usd)
        elif words[1] == str(order) and -usd in found:
            found.remove(-usd)
    return found


def find_payment(ctx: RunContext[object]) -> str | None:
    """Look a payment up by the key of its call; None if it was not made."""
    line = find_line(find_file(ctx, LEDGER), ctx)
    return f"paid {line}" if line else None


@tool(effect="write", resource="bank", on_unknown="retry", errors=[ValueError])
def take_back(ctx: RunContext[object], order: int, usd: int) -> str:
    """Undo a payment by a line with the negative amount, once for each key; the ledger is never rewritten."""
    ledger = find_file(ctx, LEDGER)
    with lock_file(ledger):
        line = find_line(ledger, ctx)
        if line is None:
            if usd not in list_open_payments(read_lines(ledger), order):
                raise ValueError(f"order {order} has no payment of ${usd} that could be taken back")
            line = f"order {order} ${-usd} key {ctx.idempotency_key}"
            append_line(ledger, line)
    return f"took back {line}"


@tool(
    effect="write", resource="bank", once_per="session", on_unknown="probe", probe=find_payment, compensate=take_back,
)  # fmt: skip
def refund(ctx: RunContext[object], order: int, usd: Annotated[int, msgspec.Meta(gt=0)]) -> str:
    """Pay an order back, in dollars: at most its price, and once."""
    if order not in ORDERS:
        raise ModelRetry(f"there is no order {order}; ask the customer for the number")
    price = ORDERS[order][1]
    if not 0 < usd <= price:
        raise ModelRetry(f"order {order} cost ${price}; refund at most that")
    ledger = find_file(ctx, LEDGER)
    with lock_file(ledger):
        others = [line for line in read_lines(ledger) if line.split()[-1] != ctx.idempotency_key]
        if list_open_payments(others, order):
            raise ModelRetry(f"order {order} was refunded already; tell the customer so")
        line = f"order {order} ${usd} key {ctx.idempotency_key}"
        append_line(ledger, line)
    while os.environ.get("BANK_IS_SILENT_AT") == str(order):  # the payment is made, and no answer comes
        time.sleep(0.1)
    return f"paid {line}"


@tool(effect="read")
def read_statement(month: str) -> str:
    """All payments of a month."""
    return "\n".join(f"{month} {1 + n // 4}: order {3900 + 4 * n}, ${5 + 37 * n % 90}" for n in range(110))


TOOLS = [find_order, refund, read_statement]
