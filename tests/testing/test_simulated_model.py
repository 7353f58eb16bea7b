"""A simulated model whose replies a function chooses, on every wire."""

import asyncio

import pytest

from bridle import Agent, Budget, Memory, tool
from bridle.testing import simulated
from bridle.testing.scripted_model import call_reply

MODELS = ("sim:", "sim:openai/gpt-6.1-sol", "sim:openai-chat/gpt-6.1-sol", "sim:gemini/gemini-3.8-flash")


@tool(effect="read")
def in_stock(article: str) -> str:
    """Count the articles in stock."""
    return {"tea": "12"}.get(article, "0")


def answer_by_stock(facts):
    if not facts.exchanges:
        return call_reply(("in_stock", {"article": "tea"}), text="Let me see.")
    return f"There are {facts.exchanges[-1].text}."


@pytest.mark.parametrize("model", MODELS)
def test_a_function_chooses_the_replies(model):
    agent = Agent(simulated(answer_by_stock, model=model), tools=[in_stock])
    assert agent.run_sync("Is there tea?").text == "There are 12."


def test_a_resumed_run_gets_the_same_replies(tmp_path):
    first = Agent(simulated(answer_by_stock), tools=[in_stock], store=tmp_path / "log.db")
    assert first.run_sync("Is there tea?", "s", budget=Budget(steps=1)).stop == "steps"
    again = Agent(simulated(answer_by_stock), tools=[in_stock], store=tmp_path / "log.db")
    assert again.resume_sync("s", budget=Budget(steps=2)).text == "There are 12."


def test_it_reads_instructions_and_notes_and_plays_directives():
    seen = []

    def answer(facts):
        seen.append(facts.system)
        return "Noted."

    agent = Agent(simulated(answer), instructions="Be brief.", memory=Memory())
    asyncio.run(agent.notes.add("Likes tea."))
    assert agent.run_sync("Hello").text == "Noted."
    assert "Be brief." in seen[0] and '"Likes tea."' in seen[0]
    assert agent.run_sync("!say as written").text == "as written" and len(seen) == 1
