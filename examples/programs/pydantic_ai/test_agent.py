from pydantic_ai import Agent, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel


def in_stock(article: str) -> int:
    """Count the articles in stock."""
    return {"tea": 12}[article]


def answer(messages, info):
    if len(messages) == 1:
        return ModelResponse(parts=[ToolCallPart("in_stock", {"article": "tea"})])
    return ModelResponse(parts=[TextPart("There are twelve.")])


def test_it_looks_before_it_answers():
    result = Agent(FunctionModel(answer), tools=[in_stock]).run_sync("Is there tea?")
    assert result.output == "There are twelve."
    assert result.all_messages()[2].parts[0].content == 12
