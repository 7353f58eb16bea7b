"""A reply that pauses in the middle of its text, after a space: the next request is accepted and extends the last."""

import pytest

from bridle import Agent
from bridle.stores.memory import MemoryStore
from bridle.testing import scripted
from bridle.testing.scripted_model import text_reply
from bridle.values.message import Stop


@pytest.mark.parametrize(
    "model",
    [
        "sim:anthropic/claude-haiku-4-5",
        "sim:anthropic/claude-sonnet-5-5",
    ],
)
def test_a_pause_after_a_space_goes_on(model):
    paused = text_reply("one two ", stop=Stop.PAUSED)
    agent = Agent(scripted(paused, "three", "well", model=model), store=MemoryStore())
    result = agent.run_sync("go", "s")
    assert result.messages[1].text[-1].isspace()
    assert result.done, result.reason
    assert agent.run_sync("and?", "s").text == "well"
