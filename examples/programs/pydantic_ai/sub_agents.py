from pydantic_ai import Agent, RunContext


def order_status(order: int) -> str:
    """Status of an order."""
    return {4: "sent on Monday"}[order]


orders = Agent("openai:gpt-6.1-sol", tools=[order_status])
agent = Agent("openai:gpt-6.1-sol")


@agent.tool
async def ask_orders(ctx: RunContext, prompt: str) -> str:
    """Knows all orders."""
    result = await orders.run(prompt, usage=ctx.usage)
    return result.output


print(agent.run_sync("Call ask_orders with the prompt 'Call order_status for order 4.'").output)
