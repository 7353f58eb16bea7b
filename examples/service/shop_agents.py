"""The agents of the service: a shop assistant and a writer.

`bridle serve examples/service/shop_agents.py` serves them without FastAPI:

    curl -s localhost:8420/api/sessions -d '{"agent": "shop", "prompt": "Where is order 4411?"}' \
        -H 'content-type: application/json'
"""

import asyncio
import os
import re
from typing import Any

from bridle import Agent, Model, ModelConnection, ModelRetry, Reply, RunContext, tool
from bridle.testing import ConversationFacts, call_reply, simulated

ORDERS = {4411: ("brake pads", 18.0), 4412: ("two tubes", 24.0)}
STOCK_SECONDS = 30
NUMBER = re.compile(r"\b\d{4}\b")


@tool(effect="read")
def find_order(order: int) -> str:
    """Look up an order."""
    if order not in ORDERS:
        raise ModelRetry(f"there is no order {order}; ask the customer for the number")
    return f"Order {order} ({ORDERS[order][0]}) was shipped on Monday."


@tool(effect="write", resource="order:{order}", approve=True, once_per="session")
def refund(order: int, usd: float) -> str:
    """Refund an order; a person has to approve it."""
    return f"Refunded {usd:.2f} USD for order {order}."


@tool(effect="read")
async def count_stock(ctx: RunContext[object]) -> str:
    """Count everything in the warehouse. It takes half a minute."""
    for second in range(STOCK_SECONDS):
        ctx.progress(f"shelf {second + 1} of {STOCK_SECONDS}", second / STOCK_SECONDS)
        await asyncio.sleep(1)
    return "1,204 parts"


def answer_customer(facts: ConversationFacts) -> str | Reply:
    """The offline model: it calls the tool that the prompt is about, and repeats the result."""
    if facts.exchanges:
        return " ".join(each.text for each in facts.exchanges)
    found = NUMBER.search(facts.prompt)
    if "stock" in facts.prompt:
        return call_reply(("count_stock", {}), text="I ask the warehouse. ")
    if found and "refund" in facts.prompt.lower():
        usd = ORDERS.get(int(found.group()), ("", 0.0))[1]
        return call_reply(
            ("refund", {"order": int(found.group()), "usd": usd}), text="I prepare the refund. "
        )
    if found:
        return call_reply(("find_order", {"order": int(found.group())}), text="I look it up. ")
    return "I know orders, refunds and the stock. Which order is it about?"


def choose_model(name: str) -> str | ModelConnection:
    """The offline model for `sim:…`, else the model of that name."""
    return simulated(answer_customer, model=name) if name.startswith("sim:") else name


def make_shop(model: str | Model | ModelConnection, **options: Any) -> Agent[object, str]:
    """Build the agent; `options` are further ones of `Agent`."""
    return Agent(
        choose_model(model) if isinstance(model, str) else model,
        name="shop",
        tools=[find_order, refund, count_stock],
        instructions="You help customers of a bicycle shop. Look orders up; never guess.",
        **options,
    )


MODEL = os.environ.get("BRIDLE_MODEL", "sim:")
shop = make_shop(MODEL)
writer = Agent(MODEL, name="writer", instructions="You write short, plain texts.")
