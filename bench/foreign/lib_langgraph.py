"""langgraph's prebuilt agent on langchain models, two turns, thinking, structured output."""

import pydantic
from langchain_anthropic import ChatAnthropic
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent
from task import KEY, ONLY_SHAPE_SCRIPT, SCRIPTS, URL, look, model_for, run_columns


class Answer(pydantic.BaseModel):
    city: str
    sunny: bool


def run(feature, wire, streamed):
    name = model_for(feature, wire)
    if wire == "messages":
        thinking = {"thinking": {"type": "enabled", "budget_tokens": 2000}} if feature == "thinking" else {}
        model = ChatAnthropic(
            model=name, base_url=URL, api_key=KEY, max_tokens=4000, max_retries=0, **thinking
        )
    else:
        responses = wire == "responses"
        model = ChatOpenAI(
            model=name, base_url=f"{URL}/v1", api_key=KEY, max_retries=0, use_responses_api=responses
        )
    if feature == "only-shape":
        shaped = model.with_structured_output(Answer, method="json_schema")
        if streamed:
            *_, last = shaped.stream(ONLY_SHAPE_SCRIPT)
            return last.model_dump()
        return shaped.invoke(ONLY_SHAPE_SCRIPT).model_dump()
    agent = create_react_agent(model, [look])
    first = run_once(agent, [("user", SCRIPTS[feature])], streamed)
    second = run_once(agent, [*first, ("user", "!say Still Rome.")], streamed)
    return [first[-1].text, second[-1].text]


def run_once(agent, messages, streamed):
    if not streamed:
        return agent.invoke({"messages": messages})["messages"]
    for mode, piece in agent.stream({"messages": messages}, stream_mode=["messages", "values"]):
        if mode == "values":
            last = piece["messages"]
    return last


run_columns(run)
