from bridle import Agent, Budget


def order_status(order: int) -> str:
    """Status of an order."""
    return {4: "sent on Monday"}[order]


agent = Agent(
    "openai:gpt-6.1-sol",
    instructions="You are a shop assistant.",
    tools=[order_status],
    budget=Budget(steps=5),
    store="shop.db",
)
first = agent.run_sync("Call order_status for order 4.", session="ann")
second = agent.run_sync("What is 17 * 23?", session="ann")
print(first.text, second.text, sep="\n")
