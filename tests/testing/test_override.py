"""`agent.override(model=…, tools=…, store=…)` replaces parts of an agent for a test."""

import threading

import pytest

from bridle import Agent, Compaction, MisuseError, tool
from bridle.stores.memory import MemoryStore
from bridle.testing import call_reply, scripted


@tool(effect="read")
def look(word: str) -> str:
    """Look."""
    return "real"


AGENT = Agent("anthropic:claude-sonnet-5-5", tools=[look])


def use_agent():
    """Stands for an application that imports an agent of another module."""
    return AGENT.run_sync("Look it up.").text


def test_a_module_level_agent_uses_the_model_of_the_test():
    with AGENT.override(model=scripted("From the script."), store=MemoryStore()):
        assert use_agent() == "From the script."
    assert AGENT.settings.model.name == "anthropic:claude-sonnet-5-5"
    assert not AGENT.overrides


def test_it_reaches_other_threads():
    texts = []
    with AGENT.override(model=scripted("From the script.")):
        thread = threading.Thread(target=lambda: texts.append(use_agent()))
        thread.start()
        thread.join()
    assert texts == ["From the script."]


def test_tools_are_replaced_for_this_agent():
    @tool(effect="read", name="look")
    def fake(word: str) -> str:
        """Look."""
        return "fake"

    with AGENT.override(model=scripted(call_reply(("look", {"word": "x"})), "Done."), tools=[fake]):
        result = AGENT.run_sync("Look.")
    assert result.messages[2].results[0].text == "fake"
    assert AGENT.tools["look"] is look


def test_agents_that_are_tools_get_the_model_and_the_store():
    inner = Agent("anthropic:claude-sonnet-5-5", name="inner")
    outer = Agent("anthropic:claude-sonnet-5-5", tools=[inner.as_tool()])
    store = MemoryStore()
    with (
        inner.override(model=scripted("Inner answer.")),
        outer.override(
            model=scripted(call_reply(("inner", {"prompt": "Go."})), "Outer answer."), store=store
        ),
    ):
        result = outer.run_sync("Ask.")
    assert result.messages[2].results[0].text == "Inner answer."
    assert result.text == "Outer answer."


def test_an_inner_agent_follows_the_outer_one_unless_it_has_its_own():
    inner = Agent("anthropic:claude-sonnet-5-5", name="inner")
    outer = Agent("anthropic:claude-sonnet-5-5", tools=[inner.as_tool()])
    with outer.override(model=scripted("The same script.")):
        assert inner.run_sync("Hi.").text == "The same script."
    assert not inner.overrides


def test_agents_of_a_hand_over_get_the_model():
    second = Agent("anthropic:claude-sonnet-5-5", name="second")
    first = Agent("anthropic:claude-sonnet-5-5", name="first", handover=[second])
    handed = call_reply(("transfer_to_second", {}))
    with first.override(model=scripted(handed, "From the second.")):
        result = first.run_sync("Go.")
    assert result.text == "From the second."


def test_a_block_that_fails_restores_the_agent():
    with pytest.raises(ZeroDivisionError), AGENT.override(model="sim:"):
        raise ZeroDivisionError
    assert AGENT.settings.model.name == "anthropic:claude-sonnet-5-5"


def test_blocks_may_be_nested():
    with AGENT.override(model=scripted("one")):
        with AGENT.override(model=scripted("two")):
            assert use_agent() == "two"
        assert use_agent() == "one"


def test_an_override_of_nothing_is_refused():
    with pytest.raises(MisuseError, match="a model, tools or a store"), AGENT.override():
        pass


def test_blocks_may_end_in_any_order():
    first, second = AGENT.override(model=scripted("one")), AGENT.override(model=scripted("two"))
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert use_agent() == "two"
    second.__exit__(None, None, None)
    assert AGENT.settings.model.name == "anthropic:claude-sonnet-5-5"
    assert not AGENT.overrides


def test_an_agent_that_a_replaced_tool_brings_is_overridden_too():
    class Special(Agent):
        """An agent of a program's own type."""

    inner = Agent("anthropic:claude-sonnet-5-5", name="inner")
    outer = Special("anthropic:claude-sonnet-5-5")
    script = scripted(call_reply(("inner", {"prompt": "Go."})), "The end.")
    with (
        outer.override(model=script, tools=[inner.as_tool()]),
        inner.override(model=scripted("From inside.")),
    ):
        result = outer.run_sync("Ask.")
        assert result.messages[2].results[0].text == "From inside."
    with outer.override(model="sim:", tools=[inner.as_tool()]):
        assert inner.settings.model.name.startswith("sim:")


def test_the_later_block_counts_for_the_agents_inside_too():
    inner = Agent("anthropic:claude-sonnet-5-5", name="inner")
    outer = Agent("anthropic:claude-sonnet-5-5", tools=[inner.as_tool()])
    with outer.override(model=scripted("one")), outer.override(model=scripted("two")):
        assert inner.run_sync("Hi.").text == "two"


def test_the_model_that_summarizes_is_replaced_too():
    agent = Agent("anthropic:claude-sonnet-5-5", compaction=Compaction(model="anthropic:claude-haiku-5-5"))
    with agent.override(model=scripted("Hello.")):
        assert agent.settings.compaction is not None
        assert agent.settings.compaction.summarizer is None
    assert agent.settings.compaction is not None
    assert agent.settings.compaction.summarizer is not None
