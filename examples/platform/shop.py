"""The shop behind the platform: orders, and the books with every payment, letter and address that was written.

The books are a SQLite file that all programs of the platform share ($PLATFORM_BOOKS, else books.db). They refuse
nothing, so that an entry that was made twice would be seen.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Annotated, NamedTuple

import msgspec

from bridle import ModelRetry, RunContext, tool

TABLE = "entries (key TEXT, kind TEXT, tenant TEXT, customer TEXT, subject TEXT, cents INTEGER)"
BUSY_SECONDS = 60


class Order(NamedTuple):
    tenant: str
    customer: str
    goods: str
    cents: int
    is_late: bool = False


ORDERS = {
    4411: Order("acme", "ada", "brake pads", 1800),
    4412: Order("acme", "ada", "two tubes", 2400),
    4413: Order("acme", "bob", "a saddle", 5900),
    4414: Order("acme", "ada", "a lamp", 3200),
    5511: Order("globex", "eve", "a frame", 48000),
    **{n: Order(("acme", "globex")[n % 2], f"customer-{n}", "a bell", 900, True) for n in range(6000, 6024)},
}


class Desk(NamedTuple):
    """The context of a run: the tenant and the customer that it works for, and no others."""

    tenant: str
    customer: str

    def find_order(self, number: int) -> Order:
        order = ORDERS.get(number)
        if order is None or order[:2] != self:
            raise ModelRetry(f"{self.customer} has no order {number}; ask for the number")
        return order

    def write(self, kind: str, key: str, subject: object, cents: int = 0) -> None:
        with open_books() as books:
            books.execute("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?)", (key, kind, *self, subject, cents))


@contextmanager
def open_books() -> Iterator[sqlite3.Connection]:
    """Open the books for one transaction."""
    path = os.environ.get("PLATFORM_BOOKS", "books.db")
    with closing(sqlite3.connect(path, timeout=BUSY_SECONDS)) as books, books:
        books.execute(f"CREATE TABLE IF NOT EXISTS {TABLE}")
        yield books


def find_entry(ctx: RunContext[Desk]) -> str | None:
    """What the books have for the key of a call whose process ended; None if it never took effect."""
    with open_books() as books:
        query = "SELECT kind, subject FROM entries WHERE key = ?"
        found = books.execute(query, (ctx.idempotency_key,)).fetchone()
    return f"{found[0]} for {found[1]} was made before" if found else None


@tool(effect="read")
def find_order(ctx: RunContext[Desk], order: int) -> str:
    """Goods and price of an order of this customer."""
    found = ctx.context.find_order(order)
    return f"{found.goods}, {found.cents} cents"


@tool(
    effect="write", approve=True, on_unknown="probe", probe=find_entry, aliases=["refund"],
    upgrade=lambda old: {"order": old["order"], "cents": round(old["usd"] * 100)},
)  # fmt: skip
def pay_back(ctx: RunContext[Desk], order: int, cents: Annotated[int, msgspec.Meta(gt=0)]) -> str:
    """Pay an order back, at most at its price."""
    if cents > (price := ctx.context.find_order(order).cents):
        raise ModelRetry(f"order {order} cost {price} cents; pay back at most that")
    ctx.context.write("payment", ctx.idempotency_key, order, cents)
    return f"Paid back {cents} cents for order {order}."


@tool(name="refund", effect="write", approve=True, on_unknown="probe", probe=find_entry)
def refund_dollars(ctx: RunContext[Desk], order: int, usd: float) -> str:
    """Refund an order, in dollars: `pay_back` as release 1 had it."""
    ctx.context.write("payment", ctx.idempotency_key, order, round(usd * 100))
    return f"Refunded ${usd:.2f} for order {order}."


@tool(effect="write", on_unknown="probe", probe=find_entry)
def change_address(ctx: RunContext[Desk], address: str) -> str:
    """Change the postal address of this customer."""
    ctx.context.write("address", ctx.idempotency_key, address)
    return f"The address is now: {address}."


@tool(effect="write", on_unknown="probe", probe=find_entry)
def send_letter(ctx: RunContext[Desk], order: int) -> str:
    """Tell this customer that an order is late."""
    ctx.context.find_order(order)
    ctx.context.write("letter", ctx.idempotency_key, order)
    return f"{ctx.context.customer} was told about order {order}."
