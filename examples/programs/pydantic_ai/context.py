from dataclasses import dataclass

from pydantic_ai import Agent, RunContext


@dataclass
class Shop:
    orders: dict[int, str]


def order_status(ctx: RunContext[Shop], order: int) -> str:
    """Status of an order."""
    return ctx.deps.orders[order]


agent = Agent("openai:gpt-6.1-sol", deps_type=Shop, tools=[order_status])
print(agent.run_sync("Call order_status for order 4.", deps=Shop(orders={4: "sent"})).output)
