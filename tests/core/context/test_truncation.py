"""Servers that silently truncate the prompt are noticed."""

import asyncio

import pytest
from msgspec.structs import replace

from bridle import Agent, MisuseError, tool
from bridle.core.context.token_estimate import truncation_hint
from bridle.providers.catalogue import find_model
from bridle.run.model_connection import ModelConnection
from bridle.stores.memory import MemoryStore
from bridle.testing import scripted, simulator
from bridle.testing.scripted_model import call_reply, text_reply
from bridle.values import events as e
from bridle.values.message import Message, Reasoning, Text, ToolCall, ToolResult
from bridle.values.model import Abilities
from bridle.values.request import Request
from bridle.values.usage import Usage
from tests.sim.sim_families import FAMILIES, MODELS

LONG = "the quick brown fox jumps over the lazy dog " * 200


def make_cutting_line(line):
    """The same line to a server of the kind that leaves out what is too long."""
    abilities = replace(line.model.abilities, cuts_prompts=True)
    return ModelConnection(
        model=replace(line.model, abilities=abilities), codec=line.codec, transport=line.transport
    )


CUTTING = Abilities(cuts_prompts=True)


def request(*parts, able=CUTTING, **fields):
    model = replace(MODELS[FAMILIES[0]], abilities=able)
    return Request(model=model, messages=(Message(role="user", parts=parts, id="m1"),), **fields)


@pytest.mark.parametrize(
    ("asked", "usage", "suspected"),
    [
        (request(Text(text=LONG)), Usage(input=1_000), True),
        (request(Text(text=LONG)), Usage(input=200, cache_read=700, output=900), True),
        (request(Text(text=LONG)), Usage(input=1_000, cache_read=900), False),
        (request(Text(text=LONG)), Usage(input=1_790), False),
        (request(Text(text=LONG)), Usage(), False),
        (request(Text(text=LONG)), Usage(input=10, incomplete=True), False),
        (request(Text(text="a few words")), Usage(input=1), False),
        (request(Text(text=LONG), able=Abilities()), Usage(input=10), False),
        (request(Text(text=LONG), server_state_until="r1"), Usage(input=10), False),
        (request(Text(text="?"), system=(Text(text=LONG),)), Usage(input=10), True),
        (request(ToolResult(call_id="c", parts=(Text(text=LONG),))), Usage(input=10), True),
        (request(ToolCall(id="c", name="x", arguments=f'{{"a":"{LONG}"}}')), Usage(input=10), True),
        (request(Reasoning(text=LONG)), Usage(input=10), False),
    ],
)
def test_too_few_tokens_for_the_words(asked, usage, suspected):
    assert bool(truncation_hint(asked, usage)) is suspected


def test_it_is_an_event_or_the_end(caplog):
    async def main(policy):
        store = MemoryStore()
        ran = []

        @tool
        def pay() -> str:
            """Pay."""
            ran.append(1)
            return "paid"

        few = Usage(input=10, output=5)
        line = make_cutting_line(
            scripted(replace(call_reply(("pay", {})), usage=few), text_reply("after all", usage=few))
        )
        agent = Agent(line, tools=[pay], store=store, on_truncation=policy)
        result = await agent.run(LONG, session="s")
        events = [record.event for record in await store.read("s")]
        told = [event.truncation_hint for event in events if isinstance(event, e.ModelReplied)]
        assert all("counted 10 tokens in a prompt of 18" in words for words in told)
        return result, ran, agent

    result, ran, _ = asyncio.run(main("event"))
    assert (result.stop, result.text, ran) == ("done", "after all", [1])
    assert "seems to have left out" in caplog.text
    result, ran, _ = asyncio.run(main("error"))
    assert (result.stop, ran) == ("failed", [])
    assert "raise it there, or send less" in result.reason
    assert [part.outcome for message in result.messages for part in message.results] == ["cancelled"]
    with pytest.raises(MisuseError):
        Agent("sim:", on_truncation="shout")  # type: ignore[arg-type]


@pytest.mark.parametrize("family", FAMILIES)
def test_who_reads_everything_is_not_suspected(family):
    async def main():
        async with simulator() as provider:
            agent = Agent(make_cutting_line(provider.model(MODELS[family])), on_truncation="error")
            assert (await agent.run(f"{LONG}\n!say Read.")).text == "Read."

    asyncio.run(main())


def test_the_kinds_of_server_that_do_this():
    cuts = {
        name
        for name in ("ollama", "lmstudio", "local", "vllm", "llamacpp")
        if find_model(f"{name}:some-model", environ={}).abilities.cuts_prompts
    }
    assert cuts == {"ollama", "lmstudio", "local"}
