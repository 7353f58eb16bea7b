"""llama-index: its function agent on four wires, streamed and not."""

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.llms.anthropic import Anthropic
from llama_index.llms.bedrock_converse import BedrockConverse
from llama_index.llms.google_genai import GoogleGenAI
from llama_index.llms.openai import OpenAI, OpenAIResponses
from task import KEY, SCRIPTS, URL, look, model_for, run_columns


def build_model(feature, wire):
    name = model_for(feature, wire)
    if wire == "messages":
        return Anthropic(model=name, base_url=URL, api_key=KEY, max_tokens=4000)
    if wire == "gemini":
        return GoogleGenAI(model=name, api_key=KEY, http_options={"base_url": URL})
    if wire == "converse":
        return BedrockConverse(model=name, endpoint_url=URL, region_name="us-east-1", max_tokens=4000)
    kind = OpenAI if wire == "chat" else OpenAIResponses
    return kind(model=name, api_base=f"{URL}/v1", api_key=KEY)


async def run(feature, wire, streamed):
    agent = FunctionAgent(tools=[look], llm=build_model(feature, wire), streaming=streamed)
    handler = agent.run(SCRIPTS[feature])
    async for _ in handler.stream_events():
        pass
    return str(await handler)


run_columns(run)
