"""A conversation started on any provider continues on any other, and back."""

import asyncio

import pytest

from bridle import Agent, tool
from bridle.stores import open_store
from bridle.stores.memory import MemoryStore
from bridle.testing import FakeClock
from bridle.testing.conformance.codec_samples import PIXEL_PNG
from bridle.values.message import Media, Text
from tests.campaigns.switch_servers import PROFILES, STEPS, Profile, Server

PAIRS = [(first, second) for first in PROFILES for second in PROFILES]
NAMES = [f"{first.name}-{second.name}" for first, second in PAIRS]


@tool(effect="read")
async def look(where: str) -> str:
    """Look somewhere."""
    if where == "left":  # the first call is the last to finish
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    return f"saw {where}"


@tool(effect="read")
async def photo(where: str) -> tuple[Text | Media, ...]:
    """Take a picture."""
    return Text(text=f"saw {where}"), Media(kind="image", media_type="image/png", data=PIXEL_PNG)


def servers(first: Profile, second: Profile) -> tuple[Server, Server]:
    """Two endpoints, even where both are of one kind: what one made means nothing to the other."""
    here, there = Server(first, "here"), Server(second, "there")
    here.others, there.others = [there], [here]
    return here, there


async def say(server: Server, store, words: str):
    """One prompt to its end, streamed every other time."""
    agent = Agent(
        server.line(),
        tools=[look, photo],
        instructions="Be brief.",
        store=store,
        clock=FakeClock(),
        max_tokens=1_000,
    )
    if len(server.bodies) % 2:
        async for event in agent.stream(words, session="s"):
            last = event
        return last.result
    return await agent.run(words, session="s")


async def there_and_back(here: Server, there: Server, store_of) -> None:
    """Two prompts here, two there, one here; each is answered with calls, a call, and words."""
    for server, prompts in ((here, 2), (there, 2), (here, 1)):
        for prompt in range(prompts):
            store = store_of()
            result = await say(server, store, f"Prompt {prompt} to {server.name}?")
            assert (result.stop, result.text) == (
                "done",
                f'{server.name} says "{len(server.own_turns) - 1}".',
            )
            assert here.problems + there.problems == []
            await store.close()
    assert [len(here.bodies), len(there.bodies)] == [3 * STEPS, 2 * STEPS]


@pytest.mark.parametrize(("first", "second"), PAIRS, ids=NAMES)
def test_there_and_back(first, second):
    here, there = servers(first, second)
    store = MemoryStore()
    asyncio.run(there_and_back(here, there, lambda: store))


@pytest.mark.parametrize(
    ("first", "second"),
    tuple(zip(PROFILES, (*PROFILES[1:], PROFILES[0]), strict=True)),
    ids=lambda one: one.name,
)
def test_switching_and_back_works_when_the_file_is_reopened_for_every_prompt(first, second, tmp_path):
    here, there = servers(first, second)
    asyncio.run(there_and_back(here, there, lambda: open_store(tmp_path / "log.db")))
