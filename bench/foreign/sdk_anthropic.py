"""The anthropic SDK: its tool runner, its parse helper, and a chat of several turns with thinking."""

import anthropic
import pydantic
from task import (
    KEY,
    ONLY_SHAPE_SCRIPT,
    SCRIPTS,
    URL,
    look,
    model_for,
    run_columns,
)

client = anthropic.Anthropic(base_url=URL, api_key=KEY, max_retries=0)
tool = anthropic.beta_tool(look)


class Answer(pydantic.BaseModel):
    city: str
    sunny: bool


def run(feature, wire, streamed):
    asked = {"model": model_for(feature, wire), "max_tokens": 4000}
    if feature == "only-shape":
        messages = [{"role": "user", "content": ONLY_SHAPE_SCRIPT}]
        if streamed:
            with client.messages.stream(**asked, messages=messages, output_format=Answer) as events:
                return events.get_final_message().parsed_output.model_dump()
        return client.messages.parse(
            **asked, messages=messages, output_format=Answer
        ).parsed_output.model_dump()
    if feature == "changed":
        return run_changed(asked, streamed)
    if feature == "shape":
        asked["output_format"] = Answer
    if feature == "thinking":
        asked["thinking"] = {"type": "enabled", "budget_tokens": 2000}
    if feature == "threadless":
        asked["thread"] = False
    runner = client.beta.messages.tool_runner(
        **asked,
        tools=[tool],
        messages=[{"role": "user", "content": SCRIPTS.get(feature, SCRIPTS["tools"])}],
        stream=streamed,
    )
    for item in runner:
        last = item.get_final_message() if streamed else item
    if feature == "shape":
        return last.parsed_output.model_dump()
    return last.content[-1].text


def run_changed(asked, streamed):
    """Every request has other tools than the one before; the last has none."""
    transfer = {"name": "transfer_to_billing", "description": "Transfer.", "input_schema": {"type": "object"}}
    messages = [{"role": "user", "content": SCRIPTS["changed"]}]
    for tools in ([transfer], [tool.to_dict()], []):
        given = {**asked, "messages": messages, **({"tools": tools} if tools else {})}
        if streamed:
            with client.messages.stream(**given) as events:
                reply = events.get_final_message()
        else:
            reply = client.messages.create(**given)
        results = [
            {
                "type": "tool_result",
                "tool_use_id": block.id,
                "content": look(**block.input) if block.name == "look" else "transferred",
            }
            for block in reply.content
            if block.type == "tool_use"
        ]
        messages += [{"role": "assistant", "content": reply.content}, {"role": "user", "content": results}]
    return reply.content[-1].text


run_columns(run)
