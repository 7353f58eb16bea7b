"""Reasoning bound to a changed prefix is left out before the provider rejects it."""

import asyncio

import pytest

from bridle import Agent, Media, Text, tool
from bridle.events import PrefixMoved, ViewChanged
from bridle.testing import FakeClock
from bridle.testing.simulated_provider import ProviderSim

MODEL = "sim:anthropic/claude-sonnet-5-5"
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@tool(effect="read")
def shoot() -> list[Text | Media]:
    """Take a picture."""
    return [Text(text="click"), Media(kind="image", media_type="image/png", data=PNG)]


@tool(effect="read")
def look() -> str:
    """Look."""
    return "seen"


def turns(provider, *agents):
    store = None
    for number, options in enumerate(agents):
        agent = Agent(provider.model(MODEL), clock=FakeClock(), store=store, **options)
        store = agent.store
        result = agent.run_sync(
            f"!think hm {number}\n!call {options['tools'][0].spec.name} {{}}\n!then\n!say ok", session="s"
        )
        assert result.stop == "done", result.reason
    return [r.event for r in asyncio.run(store.read("s"))]


def left_out(events):
    return [event for event in events if isinstance(event, ViewChanged) and "reasoning" in event.why]


def test_old_pictures_go_and_what_was_thought_after_them_goes_with_them():
    provider = ProviderSim(clock=FakeClock())
    events = turns(provider, *({"tools": [shoot]} for _ in range(9)))
    assert provider.refusals == []
    assert left_out(events)


@pytest.mark.parametrize(
    "change",
    [{"tools": [shoot], "instructions": "Be kind."}, {"tools": [look]}, {"tools": [shoot, look]}],
    ids=["instructions", "other tools", "more tools"],
)
def test_other_instructions_or_tools(change):
    provider = ProviderSim(clock=FakeClock())
    events = turns(provider, {"tools": [shoot]}, {"tools": [shoot]}, change, change)
    assert provider.refusals == []
    assert len(left_out(events)) == 1


def test_nothing_is_left_out_while_nothing_moves():
    provider = ProviderSim(clock=FakeClock())
    events = turns(provider, *({"tools": [look]} for _ in range(5)))
    assert (provider.refusals, left_out(events)) == ([], [])


@pytest.mark.parametrize("prefix", ["report", "strict"])
def test_a_tool_that_is_declared_only_because_it_was_called_moves_the_prompt_and_says_so(prefix):
    """An agent without tools whose model calls some all the same: this wire wants them declared, in front."""
    provider = ProviderSim(clock=FakeClock())
    agent = Agent(
        provider.model("sim:bedrock/anthropic.claude-sonnet-5-5"), clock=FakeClock(), instructions="Be kind.",
        prefix=prefix,
    )  # fmt: skip
    script = "!think hm\n!call ghost {}\n!then\n!call ghost {}\n!call other {}\n!then\n!say ok"
    assert agent.run_sync(script, session="s").stop == "done"
    assert agent.run_sync("!say ok", session="s").stop == "done"
    assert provider.refusals == []
    events = [record.event for record in asyncio.run(agent.store.read("s"))]
    moves = [(e.layer, e.block, e.cause) for e in events if isinstance(e, PrefixMoved)]
    first = ("tools", "tool 1 (ghost)", "tool_called")
    assert moves == [first, ("tools", "tool 2 (other)", "tool_called")]
    assert left_out(events)
