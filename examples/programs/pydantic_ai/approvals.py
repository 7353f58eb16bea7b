import sys
from pathlib import Path

from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, ModelMessagesTypeAdapter

agent = Agent("openai:gpt-6.1-sol", output_type=[str, DeferredToolRequests])


@agent.tool_plain(requires_approval=True)
def refund(order: int) -> str:
    """Refund an order."""
    return f"refunded order {order}"


file = Path("order-4.json")
if sys.argv[1] == "ask":
    result = agent.run_sync('Call refund with {"order": 4}.')
    file.write_bytes(result.all_messages_json())
    print("waiting" if isinstance(result.output, DeferredToolRequests) else "done")
else:
    messages = ModelMessagesTypeAdapter.validate_json(file.read_bytes())
    approvals = {part.tool_call_id: True for part in messages[-1].parts if part.part_kind == "tool-call"}
    answers = DeferredToolResults(approvals=approvals)
    result = agent.run_sync(message_history=messages, deferred_tool_results=answers)
    file.write_bytes(result.all_messages_json())
    print(result.output)
