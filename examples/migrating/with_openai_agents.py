from agents import Agent, Runner, SQLiteSession, function_tool


@function_tool
def order_status(order: int) -> str:
    """Status of an order."""
    return {4: "sent on Monday"}[order]


agent = Agent(
    name="Shop",
    model="gpt-6.1-sol",
    instructions="You are a shop assistant.",
    tools=[order_status],
)
session = SQLiteSession("ann", "shop.db")
first = Runner.run_sync(agent, "Call order_status for order 4.", session=session, max_turns=5)
second = Runner.run_sync(agent, "What is 17 * 23?", session=session, max_turns=5)
print(first.final_output, second.final_output, sep="\n")
