"""pydantic-ai: agents on five wires, two turns, thinking, native output."""

import pydantic
import pydantic_ai
from task import SCRIPTS, look, model_for, run_columns

PROVIDERS = {
    "messages": "anthropic",
    "responses": "openai-responses",
    "chat": "openai-chat",
    "gemini": "google",
    "converse": "bedrock",
}


class Answer(pydantic.BaseModel):
    city: str
    sunny: bool


async def listen(_, events):
    async for _ in events:
        pass


async def run(feature, wire, streamed):
    output = pydantic_ai.NativeOutput(Answer) if feature == "shape" else str
    settings = {"max_tokens": 4000}
    if feature == "thinking" and wire == "messages":
        settings["anthropic_thinking"] = {"type": "enabled", "budget_tokens": 2000}
    if feature == "thinking" and wire == "converse":
        thinking = {"type": "enabled", "budget_tokens": 2000}
        settings["bedrock_additional_model_requests_fields"] = {"thinking": thinking}
    agent = pydantic_ai.Agent(
        f"{PROVIDERS[wire]}:{model_for(feature, wire)}",
        tools=[look],
        output_type=output,
        model_settings=settings,
    )
    # Its `run_stream` takes the first words for the answer; a handler makes it stream to the end.
    handler = {"event_stream_handler": listen} if streamed else {}
    first = await agent.run(SCRIPTS[feature], **handler)
    if feature == "shape":
        return first.output.model_dump()
    second = await agent.run("!say Still Rome.", message_history=first.all_messages(), **handler)
    return [first.output, second.output]


run_columns(run)
