"""Tools of the warehouse: goods are set aside in stock.txt, and a courier brings them."""

from bridle import RunContext, tool
from tools import append_line, find_file, find_line, lock_file

STOCK = "stock.txt"
NO_COURIER = frozenset({4413})
"""Orders to addresses that no courier serves."""


@tool(effect="write", resource="stock:{order}", on_unknown="retry")
def release_goods(ctx: RunContext[object], order: int) -> str:
    """Undo a reservation."""
    return write_once(ctx, f"order {order} released")


def find_reservation(ctx: RunContext[object]) -> str | None:
    return find_line(find_file(ctx, STOCK), ctx)


@tool(
    effect="write", resource="stock:{order}", once_per="session",
    on_unknown="probe", probe=find_reservation, compensate=release_goods,
)  # fmt: skip
def reserve_replacement(ctx: RunContext[object], order: int) -> str:
    """Set the goods of an order aside once more."""
    return write_once(ctx, f"order {order} reserved")


@tool(effect="write", resource="courier:{order}", on_unknown="ask", errors=[RuntimeError])
def book_courier(order: int) -> str:
    """Send the goods that are set aside."""
    if order in NO_COURIER:
        raise RuntimeError(f"no courier serves the address of order {order}")
    return f"order {order} arrives on Friday"


def write_once(ctx: RunContext[object], text: str) -> str:
    """Append a line with the key of this call; a repeated call finds its line."""
    stock = find_file(ctx, STOCK)
    with lock_file(stock):
        line = find_line(stock, ctx)
        if line is None:
            line = f"{text} key {ctx.idempotency_key}"
            append_line(stock, line)
    return line
