from dataclasses import dataclass

from bridle import Agent, RunContext


@dataclass
class Shop:
    orders: dict[int, str]


def order_status(ctx: RunContext[Shop], order: int) -> str:
    """Status of an order."""
    return ctx.context.orders[order]


agent = Agent("openai:gpt-6.1-sol", tools=[order_status])
print(agent.run_sync("Call order_status for order 4.", context=Shop(orders={4: "sent"})).text)
