"""Agents of a support desk in two versions, for `bridle serve`: BRIDLE_TEST_VERSION is 1, or 2 with each tool changed.

The desk pays itself, hands over to an agent that pays, or has one as a tool. A payment is a line that is appended to a file
outside of Bridle, so that one that was made twice is seen.
"""

import json
import os
from pathlib import Path

from bridle import Agent
from tests.campaigns.upgraded_tools import CHANGES, make_tool, name_tool

PAYMENTS = Path("payments")
VERSION = os.environ.get("BRIDLE_TEST_VERSION", "1")


class PaymentFile:
    """Payments that outlive the process: one line each, written at once."""

    def pay(self, call, order, amount, note):
        line = json.dumps([call.idempotency_key, order, amount, note, VERSION]) + "\n"
        descriptor = os.open(PAYMENTS, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)
        return f"paid {amount}"

    def find(self, call):
        return next(
            (f"paid {amount}" for key, _, amount, *_ in read_payments() if key == call.idempotency_key), None
        )


def read_payments(folder="."):
    path = Path(folder) / PAYMENTS
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def make_tools():
    ledger = PaymentFile()
    return [make_tool(change if VERSION == "2" else "none", ledger, name_tool(change)) for change in CHANGES]


payer = Agent("sim:", name="payer", tools=make_tools())
clerk = Agent("sim:", name="clerk", tools=make_tools())
desk = Agent(
    "sim:", name="desk", tools=[*make_tools(), clerk.as_tool("ask_clerk", "Ask the clerk.")], handover=[payer]
)
