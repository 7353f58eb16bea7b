"""openai-agents: its runner on Responses and Chat, two turns, output types."""

import agents
import pydantic
from openai import AsyncOpenAI
from task import KEY, SCRIPTS, URL, look, model_for, run_columns

agents.set_tracing_disabled(True)
client = AsyncOpenAI(base_url=f"{URL}/v1", api_key=KEY, max_retries=0)


class Answer(pydantic.BaseModel):
    city: str
    sunny: bool


async def run(feature, wire, streamed):
    kind = agents.OpenAIResponsesModel if wire == "responses" else agents.OpenAIChatCompletionsModel
    if feature == "handoff":
        return await run_handoff(kind(model=model_for(feature, wire), openai_client=client), streamed)
    agent = agents.Agent(
        name="Scout",
        model=kind(model=model_for(feature, wire), openai_client=client),
        tools=[agents.function_tool(look)],
        output_type=Answer if feature == "shape" else None,
    )
    first = await run_once(agent, SCRIPTS[feature], streamed)
    if feature == "shape":
        return first.final_output.model_dump()
    again = [*first.to_input_list(), {"role": "user", "content": "!say Still Rome."}]
    return [first.final_output, (await run_once(agent, again, streamed)).final_output]


async def run_handoff(model, streamed):
    """The result of `transfer_to_billing` comes with the tools and instructions of the other agent."""
    billing = agents.Agent(
        name="Billing", instructions="You do bills.", model=model, tools=[agents.function_tool(look)]
    )
    triage = agents.Agent(name="Triage", instructions="You sort.", model=model, handoffs=[billing])
    return (await run_once(triage, SCRIPTS["handoff"], streamed)).final_output


async def run_once(agent, asked, streamed):
    if not streamed:
        return await agents.Runner.run(agent, asked)
    running = agents.Runner.run_streamed(agent, asked)
    async for _ in running.stream_events():
        pass
    return running


run_columns(run)
