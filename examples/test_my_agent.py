"""How to test an agent of your own: a strict provider, no key, no network.

In your project, put `pytest_plugins = ["bridle.testing.pytest_plugin"]` into `conftest.py`.
"""

import asyncio

import pytest

from bridle import Agent, tool
from bridle.testing import FakeClock, simulator

STOCK = {"tea": 12, "coffee": 0}


@tool(effect="read")
def in_stock(article: str) -> str:
    """Count the articles in stock."""
    return str(STOCK[article])


def clerk(model, **settings):
    """The agent under test; only the model differs between production and here."""
    return Agent(model, tools=[in_stock], instructions="You are a clerk.", **settings)


def test_it_looks_before_it_answers(provider_sim):
    provider_sim.script(
        '!say Let me see.\n!call in_stock {"article": "tea"}',
        {"expect": "12", "say": "There are twelve."},
    )
    result = clerk(provider_sim.model()).run_sync("Is there tea?")
    assert result.text == "There are twelve."


MODELS = [
    "sim:anthropic/claude-sonnet-5-5",
    "sim:openai/gpt-6.1-sol",
    "sim:gemini/gemini-3.8-flash",
    "sim:deepseek/deepseek-v4-pro",
]


@pytest.mark.parametrize("model", MODELS)
def test_it_works_with_every_provider(provider_sim, model):
    provider_sim.script('!call in_stock {"article": "coffee"}', "None left.")
    result = clerk(provider_sim.model(model)).run_sync("Coffee?")
    assert result.text == "None left."
    assert len(provider_sim.exchanges) == 2


def test_it_outlives_a_bad_day():
    async def main():
        clock = FakeClock()
        faults = ["error-529", "overloaded-in-stream", "stall-midway"]
        async with simulator("All is well.", clock=clock, faults=faults) as provider:
            async for event in clerk(provider.model(), clock=clock).stream("Hello?"):
                last = event
            assert provider.simulator.injected_faults == faults
        return last.result.text

    assert asyncio.run(main()) == "All is well."


def test_a_model_that_names_no_article_is_told_so(provider_sim):
    provider_sim.script("!call in_stock {}", "Which one?")
    result = clerk(provider_sim.model()).run_sync("Is there any?")
    assert result.text == "Which one?"
    (told,) = [part for message in result.messages for part in message.results]
    assert told.is_error
