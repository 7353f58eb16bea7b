"""agno: agents on five wires, whole and streamed."""

import pydantic
from agno.agent import Agent
from agno.models.anthropic import Claude
from agno.models.aws import AwsBedrock
from agno.models.google import Gemini
from agno.models.openai import OpenAIChat, OpenAIResponses
from task import KEY, SCRIPTS, URL, look, model_for, run_columns


class Answer(pydantic.BaseModel):
    city: str
    sunny: bool


def build_model(feature, wire):
    name = model_for(feature, wire)
    if wire == "messages":
        thinking = {"type": "enabled", "budget_tokens": 2000} if feature == "thinking" else None
        return Claude(id=name, max_tokens=4000, thinking=thinking)
    if wire == "gemini":
        return Gemini(id=name, api_key=KEY, client_params={"http_options": {"base_url": URL}})
    if wire == "converse":
        return AwsBedrock(id=name)
    return (OpenAIChat if wire == "chat" else OpenAIResponses)(id=name, base_url=f"{URL}/v1", api_key=KEY)


def run(feature, wire, streamed):
    agent = Agent(
        model=build_model(feature, wire),
        tools=[look],
        telemetry=False,
        output_schema=Answer if feature == "shape" else None,
    )
    if not streamed:
        said = agent.run(SCRIPTS[feature]).content
    else:
        pieces = list(agent.run(SCRIPTS[feature], stream=True, stream_events=True))
        said = pieces[-1].content
    if feature == "shape":
        return said.model_dump()
    return said.removeprefix("Let me look.").strip()


run_columns(run)
