from langchain.agents import create_agent
from langgraph.checkpoint.memory import InMemorySaver


def order_status(order: int) -> str:
    """Status of an order."""
    return {4: "sent on Monday"}[order]


agent = create_agent(
    "openai:gpt-6.1-sol",
    system_prompt="You are a shop assistant.",
    tools=[order_status],
    checkpointer=InMemorySaver(),
)
config = {"configurable": {"thread_id": "ann"}, "recursion_limit": 10}
first = agent.invoke({"messages": [("user", "Call order_status for order 4.")]}, config)
second = agent.invoke({"messages": [("user", "What is 17 * 23?")]}, config)
print(first["messages"][-1].text, second["messages"][-1].text, sep="\n")
