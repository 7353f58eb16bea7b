from bridle import Agent
from bridle.testing import call_reply, scripted


def in_stock(article: str) -> int:
    """Count the articles in stock."""
    return {"tea": 12}[article]


def test_it_looks_before_it_answers():
    model = scripted(call_reply(("in_stock", {"article": "tea"})), "There are twelve.")
    result = Agent(model, tools=[in_stock]).run_sync("Is there tea?")
    assert result.text == "There are twelve."
    assert result.messages[2].results[0].text == "12"
