import json

from openai import OpenAI


def order_status(order: int) -> str:
    """Status of an order."""
    return {4: "sent on Monday"}[order]


parameters = {"type": "object", "properties": {"order": {"type": "integer"}}, "required": ["order"]}
function = {"name": "order_status", "description": "Status of an order.", "parameters": parameters}
messages = [{"role": "system", "content": "You are a shop assistant."}]
client = OpenAI()


def ask(prompt: str) -> str:
    messages.append({"role": "user", "content": prompt})
    for _ in range(5):
        reply = client.chat.completions.create(
            model="gpt-6.1-sol", messages=messages, tools=[{"type": "function", "function": function}]
        )
        message = reply.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            return message.content
        for call in message.tool_calls:
            result = order_status(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    raise RuntimeError("too many steps")


print(ask("Call order_status for order 4."), ask("What is 17 * 23?"), sep="\n")
