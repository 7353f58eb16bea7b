"""smolagents: a tool-calling agent; it ends with a call of `final_answer`, so the script has one."""

from smolagents import LiteLLMModel, LogLevel, OpenAIServerModel, ToolCallingAgent, tool
from task import KEY, OWN_TOOL_SCRIPT, URL, model_for, run_columns
from task import look as note_city

SCRIPT = OWN_TOOL_SCRIPT + '!say Let me look.\n!call look {"city": "Oslo"}\n!call look {"city": "Rome"}'
NEXT = {
    "Rome": '\n!call look {"city": "Bonn"}',
    "Bonn": '\n!call final_answer {"answer": "Rome it is."}',
}
"""It sends results as words of the user, so the rest of the script comes with them."""


@tool
def look(city: str) -> str:
    """Look at a city.

    Args:
        city: the name of the city
    """
    return note_city(city) + NEXT.get(city, "")


def run(feature, wire, streamed):
    # It forces a call in every step, which litellm refuses to send to newer models.
    name = model_for("thinking", wire)
    if wire == "chat":
        model = OpenAIServerModel(name, api_base=f"{URL}/v1", api_key=KEY)
    else:
        model = LiteLLMModel(f"anthropic/{name}", api_base=URL, api_key=KEY, max_tokens=4000)
    agent = ToolCallingAgent(
        tools=[look], model=model, verbosity_level=LogLevel.OFF, max_steps=6, stream_outputs=streamed
    )
    if not streamed:
        return agent.run(SCRIPT)
    *_, last = agent.run(SCRIPT, stream=True)
    return last.output


run_columns(run)
