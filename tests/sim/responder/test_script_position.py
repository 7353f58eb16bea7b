"""A script in a prompt is played to its end, however often the conversation is made shorter on the way."""

import pytest

from bridle import Agent, Compaction, tool
from bridle.sim.responder.script_position import (
    ScriptPosition,
    find_position,
    messages_since,
    read_position,
    remaining_script,
)
from bridle.testing import ProviderSim
from bridle.values.message import Message, Opaque, Text, ToolCall

MODELS = (
    "sim:anthropic/claude-sonnet-5-5",
    "sim:anthropic/claude-sonnet-4-6",
    "sim:openai_responses/gpt-6.1-sol",
    "sim:openai_chat/gpt-5.4",
    "sim:gemini/gemini-3.5-flash",
    "sim:bedrock_converse/anthropic.claude-sonnet-4-5",
)
STEPS = (*range(12), *[77] * 6)
SCRIPT = "\n!then\n".join(
    (*(f'!call look {{"n":{n}}}' for n in range(12)), '!call look {"n":77}\n!repeat 6', "!say done")
)


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("model", MODELS)
def test_no_step_is_lost_or_played_twice(model, native):
    looked = []

    @tool(effect="read")
    def look(n: int) -> str:
        """Look at a thing."""
        looked.append(n)
        return f"thing {n} " * 300

    agent = Agent(
        model,
        tools=[look],
        context_tokens=6_000,
        compaction=Compaction(native=native),
        repeats_max=None,
    )
    agent.run_sync('An older one.\n!call look {"n":100}\n!then\n!say one', session="s")
    result = agent.run_sync(f"Go.\n{SCRIPT}", session="s")
    assert (result.stop, result.text) == ("done", "done")
    assert looked == [100, *STEPS]


def text_message(*texts):
    return Message(role="assistant", parts=tuple(Text(text=text) for text in texts))


def call_message(name):
    return Message(role="assistant", parts=(ToolCall(id=name, name="look", arguments="{}"),))


def test_a_place_is_told_and_found_again():
    line = (text_message("one"), call_message("a"), call_message("b"))
    place = find_position("Go.\n!say one\n!then\n!say two", 1, line[:2])
    assert place is not None
    told = Message(role="user", parts=(Text(text=f"In short: {place} and more"),))
    assert read_position([told, text_message("nothing")]) == place
    assert messages_since(place, line) == line[2:]
    assert messages_since(place, line[2:]) == line[2:], "it is gone, and with it everything before"


def test_the_newest_place_counts_wherever_it_stands():
    first, second = (
        ScriptPosition(script_hash="a", lines=1, replies_given=1),
        ScriptPosition(script_hash="a", lines=1, replies_given=2),
    )
    sealed = Opaque(kind="compaction", native="{}", text=f"{second}")
    messages = [text_message(str(first)), Message(role="assistant", parts=(sealed,))]
    assert read_position(messages) == second
    assert read_position([text_message("nothing")]) is None


def test_a_script_is_known_again_behind_older_ones():
    place = find_position("!say b\n!then\n!say c", 0, ())
    assert place is not None
    older = "[The user:]\n!say a\n[The user:]\nNow!\n!say b\n!then\n!say c\n[In short:]"
    assert remaining_script(place, older) == ("!say b\n!then\n!say c", True)
    assert remaining_script(place, "!say b") == ("", False)


def test_what_was_played_is_not_played_again_before_a_newer_script():
    """Where a wire makes one message of a summary and the prompt behind it."""
    place = find_position("!call pay {}\n!then\n!say paid", 2, ())
    assert place is not None
    merged = "[The user:]\n!call pay {}\n!then\n!say paid\n[In short:]\nall of it\n!say more"
    assert remaining_script(place, merged) == ("!say more", False)
    assert find_position("Hello.", 0, ()) is None


def test_a_turn_that_hosted_tools_are_in_the_middle_of_is_no_step_of_a_script():
    """The provider pauses, is called again, and goes on with the same turn."""
    with ProviderSim(faults=["paused"]) as provider:
        ran = []

        @tool(effect="write")
        def pay(amount: int) -> str:
            """Pay."""
            ran.append(amount)
            return "paid"

        agent = Agent(provider.model("sim:anthropic/claude-opus-5"), tools=[pay])
        result = agent.run_sync('!call pay {"amount": 1}\n!then\n!call pay {"amount": 2}\n!then\n!say done')
    assert (result.text.endswith("done"), ran) == (True, [1, 2])
