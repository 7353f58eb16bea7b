import asyncio
import sys

from bridle import Agent, tool


@tool(approve=True)
def refund(order: int) -> str:
    """Refund an order."""
    return f"refunded order {order}"


agent = Agent("openai:gpt-6.1-sol", tools=[refund], store="orders.db")
if sys.argv[1] == "ask":
    print(agent.run_sync('Call refund with {"order": 4}.', session="order-4").stop)
else:
    for question in asyncio.run(agent.approvals("order-4")):
        asyncio.run(agent.approve("order-4", question.id))
    print(agent.resume_sync("order-4").text)
