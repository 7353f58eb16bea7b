import json

from bridle import Agent, RunContext, ToolCall
from bridle.hooks import Refuse, before_tool


@before_tool(tools=["refund"])
def limit_refund(run: RunContext, call: ToolCall) -> Refuse | None:
    above = json.loads(call.arguments)["amount"] > 500
    return Refuse(reason="refunds above 500 are paid by hand") if above else None


def refund(amount: int) -> str:
    """Pay money back."""
    return f"paid {amount}"


agent = Agent("openai:gpt-6.1-sol", tools=[refund], hooks=[limit_refund])
print(agent.run_sync('Call refund with {"amount": 900}.').text)
