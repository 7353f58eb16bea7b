"""litellm as a library: one loop in Chat's form over five backends, and its Responses function."""

import json

import litellm
from task import KEY, SCHEMA, SCRIPTS, URL, look, model_for, run_columns

litellm.suppress_debug_info = True
litellm.telemetry = False
TOOLS = [{"type": "function", "function": {"name": "look", "description": "Look.", "parameters": SCHEMA}}]
ROUTES = {
    "messages": ("anthropic/", URL),
    "chat": ("openai/", f"{URL}/v1"),
    "gemini": ("gemini/", f"{URL}/v1beta"),
    "converse": ("bedrock/converse/", None),
}
SHAPE = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "sunny": {"type": "boolean"}},
    "required": ["city", "sunny"],
    "additionalProperties": False,
}


async def run(feature, wire, streamed):
    if wire == "responses":
        return await run_responses(feature, model_for(feature, wire), streamed)
    name = model_for(feature, wire)
    prefix, address = ROUTES[wire]
    asked = {"model": prefix + name, "tools": TOOLS, "num_retries": 0}
    if address:
        asked |= {"api_base": address, "api_key": KEY}
    else:
        asked["aws_bedrock_runtime_endpoint"] = URL
    if feature == "thinking":
        asked |= {"thinking": {"type": "enabled", "budget_tokens": 2000}, "max_tokens": 4000}
    if feature == "shape":
        schema = {"name": "answer", "schema": SHAPE, "strict": True}
        asked["response_format"] = {"type": "json_schema", "json_schema": schema}
    messages = [{"role": "user", "content": SCRIPTS[feature]}]
    while True:
        if streamed:
            chunks = [
                chunk async for chunk in await litellm.acompletion(**asked, messages=messages, stream=True)
            ]
            message = litellm.stream_chunk_builder(chunks, messages=messages).choices[0].message
        else:
            message = (await litellm.acompletion(**asked, messages=messages)).choices[0].message
        messages.append(message)
        if not message.tool_calls:
            return json.loads(message.content) if feature == "shape" else message.content
        for call in message.tool_calls:
            result = look(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})


async def run_responses(feature, name, streamed):
    tools = [{"type": "function", "name": "look", "description": "Look.", "parameters": SCHEMA}]
    items = [{"role": "user", "content": SCRIPTS[feature]}]
    asked = {
        "model": f"openai/{name}",
        "api_base": f"{URL}/v1",
        "api_key": KEY,
        "tools": tools,
        "store": False,
    }
    while True:
        if streamed:
            async for event in await litellm.aresponses(**asked, input=items, stream=True):
                if event.type == "response.completed":
                    reply = event.response
        else:
            reply = await litellm.aresponses(**asked, input=items)
        output = [
            item if isinstance(item, dict) else item.model_dump(exclude_none=True) for item in reply.output
        ]
        calls = [item for item in output if item["type"] == "function_call"]
        if not calls:
            return reply.output_text
        items += output
        for call in calls:
            result = look(**json.loads(call["arguments"]))
            items.append({"type": "function_call_output", "call_id": call["call_id"], "output": result})


run_columns(run)
