"""`raise ModelRetry("why")` in a tool: the model gets the reason and tries again, a bounded number of times."""

import asyncio
from typing import Any

import pytest

from bridle import Agent, Budget, MisuseError, ModelRetry, RunStopped, SharedBudget, tool
from bridle.core.model_turn import TOOL_RETRIES_MAX
from bridle.events import ToolFinished
from bridle.stores.memory import MemoryStore
from bridle.testing import scripted
from bridle.testing.scripted_model import call_reply
from tests.suite.wire_models import SCHEMA_MODELS


@tool
def find_customer(name: str) -> str:
    """Find a customer."""
    if name != "Ann Smith":
        raise ModelRetry(f"no customer is called {name!r}; use the full name")
    return "customer 7"


@pytest.mark.parametrize("model", SCHEMA_MODELS)
def test_the_model_gets_the_reason_and_tries_again(model):
    script = (
        call_reply(("find_customer", {"name": "Ann"})),
        call_reply(("find_customer", {"name": "Ann Smith"})),
        "It is customer 7.",
    )
    connection = scripted(*script, model=model)
    store = MemoryStore()
    result = Agent(connection, tools=[find_customer], store=store).run_sync("Who is Ann?")
    assert (result.stop, result.text) == ("done", "It is customer 7.")
    first, second = (message.results[0] for message in result.messages if message.results)
    assert (first.outcome, first.text) == ("retry", "no customer is called 'Ann'; use the full name")
    assert (second.outcome, second.text) == ("ok", "customer 7")
    told = connection.script.requests[1].messages[-1].results[0]
    assert told.is_error
    assert "no customer is called 'Ann'; use the full name" in told.text

    receipts = [
        record.event.result.outcome
        for record in asyncio.run(store.read(result.session))
        if isinstance(record.event, ToolFinished)
    ]
    assert receipts == ["retry", "ok"], "the reason is on the receipt of the call"


def test_a_tool_that_is_never_satisfied_ends_the_run():
    names = [f"Ann {number}" for number in range(TOOL_RETRIES_MAX + 3)]
    script = [call_reply(("find_customer", {"name": name})) for name in names]
    result = Agent(scripted(*script), tools=[find_customer]).run_sync("Who is Ann?")
    assert (result.stop, result.steps) == ("no_progress", TOOL_RETRIES_MAX + 1)
    assert result.reason == (
        f"`find_customer` asked the model to try again {TOOL_RETRIES_MAX + 1} times in a row; last reason:"
        f" no customer is called 'Ann {TOOL_RETRIES_MAX}'; use the full name"
    )


def test_retries_are_counted_by_reply_and_by_tool_and_a_result_ends_the_count():
    wrong, right = ("find_customer", {"name": "Bob"}), ("find_customer", {"name": "Ann Smith"})
    many = call_reply(*(("find_customer", {"name": f"Bob {number}"}) for number in range(9)))
    script: Any = (
        many,
        *(call_reply(("find_customer", {"name": f"B {number}"})) for number in range(2)),
        call_reply(wrong, right),  # one of two calls was satisfied
        *(call_reply(("find_customer", {"name": f"C {number}"})) for number in range(TOOL_RETRIES_MAX)),
        "done",
    )
    result = Agent(scripted(*script), tools=[find_customer]).run_sync("Who is Ann?")
    assert (result.stop, result.text) == ("done", "done")


def test_a_resumed_run_counts_again():
    names = [f"Ann {number}" for number in range(TOOL_RETRIES_MAX + 1)]
    script: Any = [
        *(call_reply(("find_customer", {"name": name})) for name in names),
        "Nobody is called Ann.",
    ]
    agent = Agent(scripted(*script), tools=[find_customer])

    async def run_twice():
        first = await agent.run("Who is Ann?", session="s")
        return first, await agent.resume("s")

    first, second = asyncio.run(run_twice())
    assert (first.stop, second.stop) == ("no_progress", "done")


def test_a_result_with_an_answer_has_its_output():
    result = Agent(scripted("42")).run_sync("?")
    assert result.raise_for_stop().output == "42"
    assert result.raise_for_stop().session == result.session
    assert result.raise_for_stop().raise_for_stop() == result.raise_for_stop()


def test_a_run_without_an_answer_raises_and_says_what_to_do_next():
    agent = Agent(scripted(call_reply(("find_customer", {"name": "Ann Smith"})), "x"), tools=[find_customer])
    result = agent.run_sync("?", session="shop", budget=Budget(steps=1))
    with pytest.raises(RunStopped) as raised:
        result.raise_for_stop()
    assert raised.value.stop == "steps"
    assert raised.value.result == result
    assert not isinstance(raised.value, MisuseError)
    assert str(raised.value).startswith("the run stopped as 'steps' without an answer: ")
    assert str(raised.value).endswith("Next: raise the budget and call `agent.resume('shop', budget=…)`")


def test_a_run_that_a_pool_stopped_says_how_to_raise_the_pool():
    agent = Agent(scripted("x"), pool=SharedBudget(steps=1))
    assert agent.run_sync("?").done
    with pytest.raises(RunStopped, match=r"a pool is raised with `Agent\(pool=…\)`$"):
        agent.run_sync("?").raise_for_stop()
