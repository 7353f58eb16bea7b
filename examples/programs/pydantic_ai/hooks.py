from typing import Any

from pydantic_ai import Agent, RunContext, SkipToolExecution, ToolCallPart, ToolDefinition
from pydantic_ai.capabilities import Hooks

hooks = Hooks()


@hooks.on.before_tool_execute(tools=["refund"])
def limit_refund(
    ctx: RunContext, *, call: ToolCallPart, tool_def: ToolDefinition, args: dict[str, Any]
) -> dict[str, Any]:
    if args["amount"] > 500:
        raise SkipToolExecution("refunds above 500 are paid by hand")
    return args


def refund(amount: int) -> str:
    """Pay money back."""
    return f"paid {amount}"


agent = Agent("openai:gpt-6.1-sol", tools=[refund], capabilities=[hooks])
print(agent.run_sync('Call refund with {"amount": 900}.').output)
