"""crewai: an agent with its native model clients; it streams when its model is told to."""

from crewai import LLM, Agent
from crewai.tools import tool
from task import KEY, SCRIPTS, URL, look, model_for, run_columns

ADDRESSES = {"messages": ("anthropic", URL), "chat": ("openai", f"{URL}/v1")}


def run(feature, wire, streamed):
    provider, address = ADDRESSES[wire]
    llm = LLM(
        model=f"{provider}/{model_for(feature, wire)}",
        base_url=address,
        api_key=KEY,
        stream=streamed,
        max_tokens=4000 if wire == "messages" else None,
    )
    agent = Agent(
        role="Scout",
        goal="Look at cities",
        backstory="You travel.",
        llm=llm,
        tools=[tool("look")(look)],
        verbose=False,
    )
    return agent.kickoff(SCRIPTS[feature]).raw.removeprefix("Let me look.").strip()


run_columns(run)
