"""The agents of the platform: triage greets customers, and hands over to the agents for refunds and for accounts.

`PLATFORM_RELEASE=1` is the release before the one at hand, for trying an upgrade; its tool `refund` became `pay_back`.
"""

import os
from decimal import Decimal
from typing import Any

from bridle import Agent, Budget, Limits, Memory, PermissionRule, Policy, StoredBudget
from bridle.testing import simulated
from offline_model import answer_customer
from shop import Desk, change_address, find_order, pay_back, refund_dollars, send_letter

STORE = os.environ.get("BRIDLE_STORE", "platform.db")  # a file, or postgresql://USER@HOST/DATABASE
RELEASE = os.environ.get("PLATFORM_RELEASE", "2")
VERSION: dict[str, Any] = {"version": RELEASE, "continues": ["1"] if RELEASE == "2" else []}
NAME = os.environ.get("BRIDLE_MODEL", "sim:")
MODEL = simulated(answer_customer, model=NAME) if NAME.startswith("sim:") else NAME
DAY = Limits(usd=Decimal(os.environ.get("PLATFORM_DAY_USD", "20")), period="day", zone="Europe/Berlin")
BUDGET = Budget(usd=Decimal("0.50"), steps=12, tenant=DAY)
"""Limits of each run, and of each tenant for a day, over all agents and servers."""
OWN_DATA = ("change_address", "send_letter", "remember", "forget", "transfer_to_*")
POLICY = Policy(
    version="2026-11",
    rules=(
        PermissionRule(decision="allow", name="changes of a customer's own data", tools=OWN_DATA),
        PermissionRule(decision="ask", name="everything else", effects=("write", "exclusive", "undeclared")),
    ),
)


def make_agent(name: str, instructions: str, **options: Any) -> Agent[Desk, str]:
    """Build an agent with the model, the policy, the budget and the store of the platform."""
    shared: dict[str, Any] = {"policy": POLICY, "budget": BUDGET, "store": STORE, "context_type": Desk}
    return Agent(MODEL, name=name, instructions=instructions, **shared, **options)


refunds = make_agent(
    "refunds",
    "Look the order up, then pay back what the customer is due.",
    tools=[find_order, pay_back if RELEASE == "2" else refund_dollars],
    **VERSION,
)
account = make_agent("account", "Change the customer's address.", tools=[change_address])
triage = make_agent(
    "triage",
    "Greet the customer. Hand over to refunds or account. Remember what customers ask you to.",
    handover=[refunds, account],
    memory=Memory(handover=True),  # notes belong to one customer; the agents that take over show them too
    **VERSION,
)
letters = make_agent(
    "letters",
    "Tell the customer that an order is late.",
    tools=[send_letter],
    pool=StoredBudget(name="nightly", usd=Decimal(50), period="day", zone="Europe/Berlin"),
)


def open_desk(owner: tuple[str, str]) -> Desk:
    """The context of a run, from the tenant and the caller that the log has for it."""
    return Desk(*owner)
