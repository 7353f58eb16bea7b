"""Valid replies of every family with one thing changed, through a whole agent: the next turn works.

BRIDLE_CAMPAIGN multiplies the number of sessions; a failure names its seed and what was changed.

    python -m tests.campaigns.run_campaign mutated_replies COUNT FROM_SEED

changes at least COUNT replies, over all the families in turn, with seeds of its own, and says how far it is.
"""

import asyncio
import json
import sys
import time

import pytest

from bridle import Agent, tool
from bridle.ports.transport import OutgoingRequest
from bridle.providers import load_codec
from bridle.run.model_connection import find_model_by_name
from bridle.sim.simulator import Simulator
from bridle.stores.memory import MemoryStore
from bridle.testing import FakeClock, scripted
from bridle.testing.scripted_model import text_reply
from bridle.values.errors import ProviderError
from bridle.values.events import ModelReplied, RunEnded
from bridle.values.record import GENESIS, seal_record, unseal_record
from bridle.values.request import Request
from bridle.values.usage import Usage
from tests.campaigns.mutated_replies import MutatedProvider
from tests.suite.campaign import list_seeds

SEEDS = list_seeds(40)
MODELS = {
    "anthropic": "sim:anthropic/claude-sonnet-5-5",
    "openai_responses": "sim:openai_responses/gpt-6.1-sol",
    "openai_chat": "sim:openai_chat/gpt-6.1-sol",
    "gemini": "sim:gemini/gemini-3.5-flash",
    "bedrock_converse": "sim:bedrock_converse/anthropic.claude-sonnet-5-5-v1:0",
    "reasoning in chat": "sim:openai_chat/deepseek-v4-pro",
}
PROMPT = '!call look {"at": "door"}\n!then\n!say well'


@tool(effect="read")
async def look(at: str) -> str:
    """Look."""
    return f"{at} is fine"


async def live(model: str, seed: int) -> int:
    """A session with changed replies, and two turns after them; how many replies were changed."""
    clock, store = FakeClock(), MemoryStore()
    provider = MutatedProvider(model, seed, clock)
    line = provider.line()

    async def turn():
        agent = Agent(line, tools=[look], store=store, clock=clock, random_source=lambda: 0.5)
        if seed % 2:
            return await agent.run(PROMPT, session="s")
        return await agent.stream(PROMPT, session="s").start().result()

    asked = provider.mutate = provider.chance.choice((1, 2, 3))
    await turn()
    done, provider.mutate = asked - provider.mutate, 0
    for _ in range(2):
        result = await turn()
        assert result.done, f"seed {seed}: {result.stop} {result.reason}; changed: {provider.changes}"
    return done


async def live_all(seed: int) -> int:
    """The session of one seed on every family."""
    done = 0
    for family, model in MODELS.items():
        try:
            done += await live(model, seed)
        except AssertionError as error:
            raise AssertionError(f"{family}: {error}") from None
        except Exception as error:
            raise AssertionError(f"{family}, seed {seed}: {error!r}") from error
    return done


FOUND = [
    ("openai_responses", 900965),  # a message with an odd role refers to reasoning that was removed
    pytest.param(  # reasoning without a text or a signature
        "bedrock_converse", 902473, marks=pytest.mark.refusals
    ),
]
"""Families and seeds of sessions that could not go on before."""


@pytest.mark.parametrize(("family", "seed"), FOUND)
def test_sessions_found_by_a_campaign_go_on(family, seed):
    asyncio.run(live(MODELS[family], seed))


@pytest.mark.refusals
def test_a_changed_reply_never_bricks_a_session():
    """Requests with what the model was made to say may be refused; the session goes on all the same."""

    async def main():
        for seed in SEEDS:
            await live_all(seed)

    asyncio.run(main())


def test_usage_above_the_window_is_recorded_and_flagged_and_not_believed():
    store, most = MemoryStore(), Usage(input=10**9, output=5)
    line = scripted(text_reply("first", usage=most), "second")
    agent = Agent(line, store=store)
    assert agent.run_sync("go", session="s").text == "first"
    assert agent.run_sync("again", session="s").text == "second"
    replies = [r.event for r in asyncio.run(store.read("s")) if isinstance(r.event, ModelReplied)]
    assert replies[0].reply.usage.total >= 10**9
    assert "1,000,000,005 tokens" in replies[0].usage_doubt
    assert not replies[1].usage_doubt


def test_a_content_part_that_is_no_object_is_a_failure_of_the_provider():
    model = find_model_by_name("sim:openai_responses/gpt-6.1-sol")
    decoder = load_codec("openai_responses").new_decoder(Request(model=model), 200, {})
    item = b'data: {"type":"response.output_item.added","output_index":0,"item":{"type":"message"}}\n\n'
    part = b'data: {"type":"response.content_part.added","output_index":0,"part":"x"}\n\n'
    decoder.feed(item)
    with pytest.raises(ProviderError, match="part is not an object"):
        decoder.feed(part)


def test_half_a_character_in_an_event_is_mended_when_it_is_sealed():
    event = RunEnded(stop="failed", reason="half \ud83d of it")
    record = seal_record(1, 1.0, event, GENESIS)
    assert unseal_record(1, 1.0, record.data, GENESIS, record.hash).event == record.event
    assert record.event.reason.startswith("half ")


@pytest.mark.parametrize(("id_", "kind"), [([{}], "an array"), ({"a": 1}, "an object"), (7, "an integer")])
@pytest.mark.refusals
def test_the_simulator_refuses_an_item_id_that_is_no_text_in_the_words_of_the_wire(id_, kind):
    items = [{"role": "user", "content": "go"}, {"type": "odd", "id": id_}, {"type": "odd", "id": id_}]
    body = json.dumps({"model": "gpt-6.1-sol", "input": items}).encode()
    headers = (("authorization", "Bearer sim"), ("content-type", "application/json"))
    asked = OutgoingRequest(method="POST", url="http://sim/v1/responses", headers=headers, body=body)
    timeline = asyncio.run(Simulator().answer(asked))
    assert timeline.status == 400
    told = json.loads(timeline.body)["error"]
    assert told["message"] == f"Invalid type for 'input[1].id': expected a string, but got {kind} instead."
    assert told["param"] == "input[1].id"


async def main(count: int, from_seed: int) -> None:
    done, seed, told, begun = 0, from_seed, 0, time.monotonic()
    while done < count:
        done += await live_all(seed)
        seed += 1
        if done >= min(told + 1_000, count):
            told = done
            sessions = (seed - from_seed) * len(MODELS)
            rate = done / (time.monotonic() - begun)
            print(
                f"{done:,} changed replies in {sessions:,} sessions, none bricked, {rate:.0f}/s, next seed {seed}",
                flush=True,
            )


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
