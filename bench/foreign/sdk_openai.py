"""The openai SDK: its parse helpers on both wires, its streams, and the Responses socket."""

import json

import openai
import pydantic
from task import KEY, SCRIPTS, URL, look, model_for, run_columns

client = openai.OpenAI(base_url=f"{URL}/v1", api_key=KEY, max_retries=0)


class Answer(pydantic.BaseModel):
    city: str
    sunny: bool


class Look(pydantic.BaseModel):
    """Look at a city."""

    city: str


def run(feature, wire, streamed):
    return (run_responses if wire == "responses" else run_chat)(feature, model_for(feature, wire), streamed)


def run_responses(feature, model, streamed):
    asked = {
        "model": model,
        "tools": [openai.pydantic_function_tool(Look, name="look")["function"] | {"type": "function"}],
    }
    if feature in ("shape", "only-shape"):
        asked["text_format"] = Answer
    if feature == "only-shape":
        del asked["tools"]
    items = [{"role": "user", "content": SCRIPTS[feature]}]
    previous = {}
    while True:
        if streamed:
            with client.responses.stream(**asked, **previous, input=items) as events:
                for _ in events:
                    pass
                reply = events.get_final_response()
        else:
            reply = client.responses.parse(**asked, **previous, input=items)
        calls = [item for item in reply.output if item.type == "function_call"]
        if not calls:
            return reply.output_parsed.model_dump() if "text_format" in asked else reply.output_text
        items = [
            {
                "type": "function_call_output",
                "call_id": call.call_id,
                "output": look(**json.loads(call.arguments)),
            }
            for call in calls
        ]
        previous = {"previous_response_id": reply.id}


def run_chat(feature, model, streamed):
    asked = {"model": model, "tools": [openai.pydantic_function_tool(Look, name="look")]}
    if feature in ("shape", "only-shape"):
        asked["response_format"] = Answer
    if feature == "only-shape":
        del asked["tools"]
    messages = [{"role": "user", "content": SCRIPTS[feature]}]
    while True:
        if streamed:
            with client.chat.completions.stream(**asked, messages=messages) as events:
                for _ in events:
                    pass
                message = events.get_final_completion().choices[0].message
        else:
            message = client.chat.completions.parse(**asked, messages=messages).choices[0].message
        messages.append(message)
        if not message.tool_calls:
            return message.parsed.model_dump() if "response_format" in asked else message.content
        for call in message.tool_calls:
            arguments = call.function.parsed_arguments
            messages.append({"role": "tool", "tool_call_id": call.id, "content": look(arguments.city)})


run_columns(run)
