from pydantic_ai import Agent, UsageLimits


def order_status(order: int) -> str:
    """Status of an order."""
    return {4: "sent on Monday"}[order]


agent = Agent(
    "openai:gpt-6.1-sol",
    instructions="You are a shop assistant.",
    tools=[order_status],
)
limits = UsageLimits(request_limit=5)
first = agent.run_sync("Call order_status for order 4.", usage_limits=limits)
second = agent.run_sync("What is 17 * 23?", message_history=first.all_messages(), usage_limits=limits)
print(first.output, second.output, sep="\n")
