"""Model chains: which model continues after a failure, and which one starts the next run."""

import asyncio
import random
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from msgspec.structs import replace

from bridle import Agent, Budget, tool
from bridle.core.loop import apply_event
from bridle.core.state import State
from bridle.events import ModelSwitched
from bridle.run.model_connection import find_model_by_name
from bridle.stores.memory import MemoryStore
from bridle.testing import FakeClock, ProviderSim
from bridle.testing.scripted_model import scripted
from bridle.values import events as e
from bridle.values.errors import Failure, MisuseError
from bridle.values.settings import ATTEMPTS_DEFAULT
from tests.sim.sim_families import FAMILIES, MODELS
from tests.suite.campaign import scale

PAIRS = [(first, second) for first in FAMILIES for second in FAMILIES if first != second]


@tool(effect="read")
def look(n: int) -> str:
    """Look."""
    return f"saw {n}"


NOVEMBER_2026 = 1_794_830_400.0
"""A day on which every price in the tables holds."""


class House:
    """An agent with a provider for each of its models, a store and a clock."""

    def __init__(self, *families, **options):
        self.clock, self.store = FakeClock(NOVEMBER_2026), MemoryStore()
        self.providers = [ProviderSim(clock=self.clock) for _ in families]
        self.lines = [
            provider.model(MODELS[family]) for provider, family in zip(self.providers, families, strict=True)
        ]
        self.options = {
            "tools": [look],
            "clock": self.clock,
            "store": self.store,
            "random_source": random.Random(1).random,
        }
        self.agent = Agent(self.lines, **{**self.options, **options})

    @property
    def counts(self):
        return [len(provider.exchanges) for provider in self.providers]

    async def events(self, session="s"):
        return [record.event for record in await self.store.read(session)]

    async def switches(self, session="s"):
        return [event for event in await self.events(session) if isinstance(event, ModelSwitched)]

    def check(self):
        for provider in self.providers:
            assert provider.refusals == []


PROMPT = '!think hm\n!call look {"n": 1}\n!then\n!call look {"n": 2}\n!then\n!say all seen'


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_another_model_goes_on_in_the_middle_of_a_run(first, second):
    async def story():
        house: Any = House(first, second)

        class Late:
            """The first model answers once, and is down from then on."""

            def on_event(self, session, happening):
                if isinstance(getattr(happening, "event", None), e.ToolFinished):
                    house.providers[0].fail("error-500=1")

        agent = Agent(house.lines, watchers=[Late()], **house.options)
        result = await agent.run(PROMPT, "s")
        assert (result.stop, result.text) == ("done", "all seen"), result.reason
        (switch,) = await house.switches()
        assert switch.model == MODELS[second]
        assert "Internal server error" in switch.why
        assert house.counts == [1 + ATTEMPTS_DEFAULT, 2]
        asked = [event for event in await house.events() if isinstance(event, e.ModelAsked)]
        assert len(asked) == sum(house.counts)
        assert [(ask.step, ask.attempt) for ask in asked][-2:] == [(2, ATTEMPTS_DEFAULT + 1), (3, 1)]
        return house

    asyncio.run(story()).check()


@pytest.mark.parametrize("fault", ["quota", "error-529-wait:3600"])
def test_what_no_waiting_mends_is_not_waited_for(fault):
    async def story():
        house = House("anthropic", "gemini")
        house.providers[0].fail(fault)
        result = await house.agent.run("!say hi", "s")
        assert (result.text, house.counts, house.clock.slept) == ("hi", [1, 1], [])

    asyncio.run(story())


def test_the_next_prompt_begins_with_the_first_model_that_is_well():
    async def story():
        house = House("anthropic", "gemini")
        house.providers[0].fail("quota")
        seats = []
        for minutes in (0, 1, 10):
            house.clock.advance(60 * minutes)
            result = await house.agent.run(f"!say {minutes}", "s")
            assert (result.stop, result.text) == ("done", str(minutes))
            seats.append(result.messages[-1].origin.family)
        # It said that there is no money: for five minutes the second begins, then the first is tried again.
        assert seats == ["gemini", "gemini", "anthropic"]
        assert house.counts == [2, 2]
        assert len(await house.switches()) == 1
        return house

    asyncio.run(story()).check()


def test_a_conversation_stays_where_its_cache_is_while_that_is_well():
    async def story():
        house = House("anthropic", "gemini")
        for n in range(3):
            await house.agent.run(f"!error 529\n!say {n}", "s")
        assert house.counts == [6, 0]
        assert await house.switches() == []

    asyncio.run(story())


def test_an_open_breaker_is_passed_by_at_once_and_the_next_prompt_begins_elsewhere():
    async def story():
        house = House("anthropic", "gemini")
        house.providers[0].fail("error-500=1")
        first = await house.agent.run("!say a", "s")
        second = await house.agent.run("!say b", "t")  # opens the breaker on the way
        before = house.counts[0]
        third = await house.agent.run("!say c", "u")
        assert [result.text for result in (first, second, third)] == ["a", "b", "c"]
        assert house.counts[0] == before
        (switch,) = await house.switches("t")
        assert "is not asked for another" in switch.why
        assert await house.switches("u") == []

    asyncio.run(story())


def test_when_the_chain_is_used_up_the_reason_tells_what_each_of_them_said():
    async def story():
        house = House("anthropic", "gemini", "openai_chat")
        for provider in house.providers:
            provider.fail("quota")
        result = await house.agent.run("!say hi", "s")
        assert (result.stop, house.counts) == ("failed", [1, 1, 1])
        assert all(line.model.model_key in result.reason for line in house.lines)
        house.clock.advance(1)
        resumed = await house.agent.resume("s")  # nobody is well: the one that is wanted most is tried
        assert (resumed.stop, resumed.text, house.counts) == ("done", "hi", [2, 1, 1])

    asyncio.run(story())


def test_a_request_that_is_wrong_is_not_carried_round():
    async def story():
        house = House("anthropic", "gemini")
        result = await house.agent.run("!error 400\n!say hi", "s")
        assert (result.stop, result.failure.kind, house.counts) == ("failed", "invalid", [1, 0])

    asyncio.run(story())


def test_a_conversation_too_long_for_one_goes_to_one_with_a_larger_window_only():
    def line(name, tokens, *replies):
        model = find_model_by_name(f"sim:anthropic/{name}")
        return scripted(*replies, model=model, abilities=replace(model.abilities, context_tokens=tokens))

    full = Failure(kind="context", message="prompt is too long: 1001 tokens > 1000 maximum", status=400)
    one = line("claude-sonnet-5-5", 1000, full, "read")
    smaller = line("claude-haiku-5-5", 500, full, "read")
    larger = line("claude-opus-5-5", 2000, "read")
    result = asyncio.run(Agent([one, smaller, larger], clock=FakeClock()).run("hi"))
    assert result.text == "read"
    assert (len(one.script.requests), len(smaller.script.requests)) == (1, 0)


def test_prices_and_limits_are_those_of_the_model_that_answers():
    async def story():
        house = House("anthropic", "gemini", budget=Budget(usd=1.0))
        house.providers[0].fail("quota")
        result = await house.agent.run("!say hi", "s")
        price = MODELS["gemini"].price
        assert Decimal(str(result.cost)) == price.cost(result.usage, 0.0)
        unpriced = replace(MODELS["openai_chat"], price=None)
        with pytest.raises(MisuseError, match="no price is known"):
            await Agent([MODELS["gemini"], unpriced], budget=Budget(usd=1.0)).run("hi")

    asyncio.run(story())


def test_a_run_that_was_cut_off_goes_on_with_the_model_it_was_with():
    async def story():
        house: Any = House("anthropic", "gemini")
        house.providers[0].fail("quota")

        class Kill:
            def on_event(self, session, happening):
                if isinstance(getattr(happening, "event", None), e.ToolStarted):
                    house.store.dead = True

        class Dying(MemoryStore):
            dead = False

            async def append(self, session, after, records, *, epoch=None):
                if self.dead:
                    raise OSError("killed")
                await super().append(session, after, records, epoch=epoch)

        house.store = house.options["store"] = Dying()
        agent = Agent(house.lines, watchers=[Kill()], **house.options)
        with pytest.raises(OSError, match="killed"):
            await agent.run(PROMPT, "s")
        house.store.dead = False
        house.clock.advance(3600)  # the first is well again, and the run is not interrupted for that
        result = await Agent(house.lines, **house.options).resume("s")
        assert (result.stop, result.text) == ("done", "all seen")
        assert house.counts[0] == 1
        assert {message.origin.family for message in result.messages if message.role == "assistant"} == {
            "gemini"
        }

    asyncio.run(story())


def test_what_was_shown_of_a_reply_is_void_when_another_model_gives_it():
    async def story():
        house = House("anthropic", "gemini")
        house.providers[0].fail("overloaded-in-stream=1")
        seen = [event async for event in house.agent.stream(f"!say {'word ' * 80}end", "s")]
        result = seen[-1].result
        assert result.text.count("end") == 1
        assert result.text.startswith("word word")
        restarts = [at for at, event in enumerate(seen) if type(event).__name__ == "AttemptRestarted"]
        last = "".join(event.text for event in seen[restarts[-1] + 1 :])
        assert last == result.text
        assert all(seen[at].is_text_void for at in restarts)

    asyncio.run(story())


def test_what_is_given_wrong_is_said_before_anything_is_sent():
    with pytest.raises(MisuseError, match="no model was given"):
        Agent([])
    with pytest.raises(MisuseError, match="in the chain twice"):
        Agent(["sim:", "sim:"])


def test_one_model_in_a_list_is_one_model():
    assert Agent(["sim:"]).settings == Agent("sim:").settings
    assert Agent(["sim:"]).settings.models == ()
    assert find_model_by_name("sim:") == Agent("sim:").settings.model


@dataclass
class Answer:
    n: int


def test_a_shape_is_asked_for_as_each_model_takes_it():
    async def story():
        house = House("gemini", "openai_chat", output=Answer)
        assert [line.model.abilities.structured_output for line in house.lines] == ["native", "tool"]
        house.providers[0].fail("quota")
        result = await house.agent.run('!call Answer {"n": 3}', "s")
        assert (result.stop, result.output) == ("done", Answer(n=3))
        return house

    asyncio.run(story()).check()


FAULTS = (
    "error-500=0.25", "error-529=0.2", "error-429-wait:400=0.05", "overloaded-in-stream=0.15", "reset=0.15",
    "missing-end=0.1", "quota=0.1", "stall-midway=0.05",
)  # fmt: skip
LIVES = scale(60)


async def live(seed):
    """Three prompts to a chain of three in bad weather, then one in good weather; how often it was switched."""
    dice = random.Random(seed)
    house = House(*dice.sample(FAMILIES, 3), budget=Budget(steps=10), random_source=dice.random)
    for at, provider in enumerate(house.providers):
        provider.simulator.seed = 3 * seed + at
        provider.fail(*FAULTS)
    for n in range(3):
        if dice.random() < 0.5:
            async for event in house.agent.stream(PROMPT, "s"):
                last = event
            result = last.result
        else:
            result = await house.agent.run(PROMPT, "s")
        assert result.stop in ("done", "failed"), (seed, n, result.reason)
        assert result.stop == "failed" or result.text == "all seen", (seed, n)
        house.clock.advance(dice.choice((0, 5, 60, 600)))
    for provider in house.providers:
        provider.fail()
    house.clock.advance(3600)
    result = await house.agent.run("!say well", "s")
    assert result.done, (seed, result.reason)
    events = await house.events()
    asked = [event for event in events if isinstance(event, e.ModelAsked)]
    assert len(asked) == sum(house.counts), f"seed {seed}: {len(asked)} in the log, {house.counts} counted"
    state = State()
    for event in events:
        state = apply_event(state, event)
    calls = [call.id for message in state.conversation.transcript.messages for call in message.calls]
    results = [each.call_id for message in state.conversation.transcript.messages for each in message.results]
    assert sorted(calls) == sorted(results), seed
    for provider in house.providers:
        assert provider.refusals == [], seed
    return sum(isinstance(event, ModelSwitched) for event in events)


def test_in_every_fallback_attempts_agree_and_only_legal_requests_are_sent():
    async def every():
        return [await live(seed) for seed in range(LIVES)]

    assert sum(asyncio.run(every())) > LIVES / 2
