"""Agents for workers that tests start and kill: payments with a ledger outside of the store, and a bill.

The folder in $LEDGER holds one line per effect that really happened.
"""

import os
import re
import time
from pathlib import Path
from typing import Any

from bridle import Agent, tool
from tests.suite.bills import BilledModel

FOLDER = Path(os.environ.get("LEDGER", "."))
VERSION = os.environ.get("VERSION", "1")


def note(name: str, text: str) -> None:
    """Append a line; a line of this length is written at once or not at all."""
    with (FOLDER / name).open("a") as file:
        file.write(f"{text}\n")


@tool(effect="write", on_unknown="report")
def charge(order: str) -> str:
    """Charge an order: never twice."""
    note("charges", order)
    time.sleep(float(os.environ.get("TOOL_SECONDS", "0")))
    return f"charged {order}"


@tool(effect="read")
def look_up(order: str) -> str:
    """Look an order up."""
    return f"order {order} is open"


@tool(effect="write", approve=True, on_unknown="retry")
def refund(order: str) -> str:
    """Refund an order."""
    note("refunds", order)
    return f"refunded {order}"


def find_run(body: bytes) -> str:
    """The name of a run of the campaign, which is in its prompt."""
    found = re.search(rb"r\d+(?=-0)", body)
    return found[0].decode() if found else ""


tools: Any = [charge, look_up, refund]
if VERSION != "1":

    @tool(effect="read")
    def extra() -> str:
        """Something new."""
        return "new"

    tools.append(extra)
cashier = Agent(
    BilledModel(FOLDER / "bill", find_run).connect(),
    name="cashier",
    tools=tools,
    instructions=f"You are cashier number {VERSION}.",
)
