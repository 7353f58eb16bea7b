"""strands-agents: agents on five wires, two turns. It always streams unless the model is told not to."""

from strands import Agent, tool
from strands.models.anthropic import AnthropicModel
from strands.models.bedrock import BedrockModel
from strands.models.gemini import GeminiModel
from strands.models.openai import OpenAIModel
from strands.models.openai_responses import OpenAIResponsesModel
from task import KEY, SCRIPTS, URL, look, model_for, run_columns


def build_model(feature, wire, streamed):
    name = model_for(feature, wire)
    if wire == "messages":
        params = {"thinking": {"type": "enabled", "budget_tokens": 2000}} if feature == "thinking" else {}
        return AnthropicModel(
            client_args={"base_url": URL, "api_key": KEY}, model_id=name, max_tokens=4000, params=params
        )
    if wire == "gemini":
        return GeminiModel(client_args={"api_key": KEY, "http_options": {"base_url": URL}}, model_id=name)
    if wire == "converse":
        fields = {"thinking": {"type": "enabled", "budget_tokens": 2000}} if feature == "thinking" else {}
        return BedrockModel(
            model_id=name,
            endpoint_url=URL,
            region_name="us-east-1",
            streaming=streamed,
            max_tokens=4000,
            additional_request_fields=fields,
        )
    kind = OpenAIModel if wire == "chat" else OpenAIResponsesModel
    return kind(client_args={"base_url": f"{URL}/v1", "api_key": KEY}, model_id=name)


async def run(feature, wire, streamed):
    agent = Agent(model=build_model(feature, wire, streamed), tools=[tool(look)], callback_handler=None)
    first = str(await agent.invoke_async(SCRIPTS[feature])).strip()
    return [first, str(await agent.invoke_async("!say Still Rome.")).strip()]


run_columns(run)
