from bridle import Agent


def order_status(order: int) -> str:
    """Status of an order."""
    return {4: "sent on Monday"}[order]


orders = Agent("openai:gpt-6.1-sol", tools=[order_status], name="orders")
agent = Agent("openai:gpt-6.1-sol", tools=[orders.as_tool(description="Knows all orders.")])
print(agent.run_sync("Call orders with the prompt 'Call order_status for order 4.'").text)
