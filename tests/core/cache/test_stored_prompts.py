"""Stored prompts (Gemini cached content): created where they save money, and never at a run's expense."""

import asyncio
import json
from decimal import Decimal

import pytest
from msgspec.structs import replace

from bridle import Agent, Budget, tool
from bridle.cli.main import main
from bridle.core.budget.ledger import list_entries
from bridle.core.cache.report import list_cache_calls
from bridle.core.recovery.log_repair import fold_log
from bridle.ports.transport import OutgoingRequest
from bridle.providers import load_codec
from bridle.providers.catalogue import find_model
from bridle.run.budget.shared import SharedBudget
from bridle.run.model_connection import ModelConnection
from bridle.sim.gemini.cached_contents import billed_token_seconds
from bridle.sim.simulator import Simulator
from bridle.stores import open_store
from bridle.stores.memory import MemoryStore
from bridle.testing import FakeClock
from bridle.transports.inprocess import InProcessTransport
from bridle.values.cache import PromptDropped, PromptStored
from bridle.values.events import ModelAsked
from tests.suite.ledger_sum import sum_entries

LONG = " ".join(f"Rule {n}: look before you leap, and write down what you saw." for n in range(1_500))
NOVEMBER = 1_794_787_200.0
"""Prices have dates."""
FLASH = "gemini:gemini-3.8-flash"


@tool(effect="read")
def look(at: int) -> str:
    """Look at one place."""
    return f"There are {at} things."


class World:
    def __init__(self, model=FLASH, store=None):
        self.clock, self.store = FakeClock(NOVEMBER), store or MemoryStore()
        self.simulator, self.sent = Simulator(clock=self.clock), []
        self.model = find_model(model, environ={})

    def ask(self, prompt="Say yes.", pause=0.0, **given):
        self.clock.advance(pause)

        async def answer(outgoing):
            self.sent.append(outgoing)
            return await self.simulator.answer(outgoing)

        line = ModelConnection(
            model=self.model,
            codec=load_codec(self.model.endpoint.family),
            transport=InProcessTransport(answer),
        )
        settings = {"instructions": LONG, "tools": [look], "cache_by_name": True, **given}
        agent = Agent(line, store=self.store, clock=self.clock, **settings)
        return agent.run_sync(prompt, session="s")

    @property
    def records(self):
        return asyncio.run(self.store.read("s"))

    def events(self, *kinds):
        return [record.event for record in self.records if isinstance(record.event, kinds)]

    def bodies(self):
        return [json.loads(sent.body) for sent in self.sent if "enerateContent" in sent.url]


def test_a_session_with_pauses_has_its_front_kept_and_reads_it_after_the_next():
    world = World()
    world.ask()
    world.ask(pause=900)
    (kept,) = world.events(PromptStored)
    assert kept.tokens > 10_000
    assert kept.seconds == pytest.approx(900 * 1.25, rel=0.01)
    usage = world.ask(pause=900).usage
    assert usage.cache_read == kept.tokens
    bodies = world.bodies()
    assert [("cachedContent" in body, "tools" in body) for body in bodies] == [
        (False, True),
        (True, False),
        (True, False),
    ]
    assert world.simulator.refusals == []
    prolonged = world.events(PromptStored)[1]
    assert (prolonged.created, prolonged.name) == (False, kept.name)


def test_it_costs_less_than_rereading_everything_after_every_pause():
    def spent(by_name):
        world = World()
        for _ in range(8):
            world.ask(pause=900, cache_by_name=by_name)
        return fold_log(world.records).state.totals.spent.usd

    assert spent(True) < Decimal("0.6") * spent(False)


@pytest.mark.parametrize(
    ("model", "pause"),
    [
        (FLASH, 60),  # kept for nothing
        ("gemini:gemini-3.1-pro-preview", 1_800),  # dearer to store than to read
        ("gemini:gemini-2.5-flash", 900),
        ("gemini:gemini-4-argon", 900),  # it cannot
        ("gemini:gemini-3.5-flash", 900),  # nobody says what it costs
        ("openai:gpt-5.4", 900),
    ],
)
def test_where_it_does_not_pay_nothing_is_stored(model, pause):
    world = World(model)
    for _ in range(3):
        world.ask(pause=pause)
    assert world.events(PromptStored, PromptDropped) == []


@pytest.mark.slow
def test_a_conversation_of_many_calls_is_better_kept_for_nothing():
    world = World()
    talk = "Say " + "nothing much happened on that day " * 2_000
    for _ in range(3):
        world.ask(talk, pause=900)
        for _ in range(4):
            world.ask(talk, pause=5)
    assert world.events(PromptStored) == []


def test_it_has_to_be_asked_for():
    world = World()
    for _ in range(3):
        world.ask(pause=900, cache_by_name=False)
    assert world.events(PromptStored) == []


@pytest.mark.refusals
def test_what_the_provider_dropped_early_is_sent_again_and_the_run_goes_on():
    world = World()
    world.ask()
    world.ask(pause=900)
    world.simulator.stored.prompts.clear()
    result = world.ask(pause=900)
    assert result.stop == "done"
    (dropped,) = world.events(PromptDropped)
    assert dropped.why in ("the provider has forgotten it", "CachedContent not found (or permission denied)")
    assert "tools" in world.bodies()[-1]


@pytest.mark.refusals
def test_a_name_that_is_forgotten_between_two_calls_does_not_end_the_run():
    world = World()
    world.ask()
    world.ask(pause=900)
    held = world.simulator.stored.prompts.copy()
    answer = world.simulator.answer

    async def forgetful(outgoing: OutgoingRequest):
        if "enerateContent" in outgoing.url:
            world.simulator.stored.prompts.clear()
        return await answer(outgoing)

    world.simulator.answer = forgetful
    result = world.ask(pause=5)
    assert held
    assert result.stop == "done"
    assert [event.why for event in world.events(PromptDropped)] == ["the provider has forgotten it"]
    assert world.events(ModelAsked)[-1].stored_prompt == ""


@pytest.mark.refusals
def test_what_is_too_small_is_refused_once_and_never_tried_again():
    world = World()
    world.model = replace(world.model, abilities=replace(world.model.abilities, cache_minimum_tokens=1))
    short = " ".join(LONG.split()[:2_000])
    for _ in range(4):
        assert world.ask(pause=900, instructions=short).stop == "done"
    (dropped,) = world.events(PromptDropped)
    assert "too small" in dropped.why
    assert sum("cachedContents" in sent.url for sent in world.sent) == 1


def test_other_instructions_drop_what_was_kept():
    world = World()
    world.ask()
    world.ask(pause=900)
    world.ask(pause=5, instructions="Now. " + LONG)
    assert [event.why for event in world.events(PromptDropped)] == ["tools or instructions have changed"]
    made = world.events(PromptStored)
    assert [*world.simulator.stored.prompts] == [made[-1].name] != [made[0].name]
    assert [sent.method for sent in world.sent if "cachedContents" in sent.url] == ["POST", "DELETE", "POST"]


def test_the_invoice_has_storage_in_it_as_the_provider_counts_it():
    world = World()
    world.ask()
    world.ask(pause=900)
    world.ask(pause=900)
    made, longer = world.events(PromptStored)
    rates = world.model.price.rates(made.tokens, 0.0)
    hours = Decimal(billed_token_seconds(world.simulator.stored, 1e12)) / 3_600 / 1_000_000
    storage = made.usd + longer.usd - made.tokens * rates.input / 1_000_000
    assert storage == pytest.approx(hours * rates.storage, rel=Decimal("0.001"))
    total = fold_log(world.records).state.totals.spent
    booked = list_entries("s", world.records)
    assert [entry.outcome for entry in booked].count("stored") == 2
    assert sum_entries(booked) == total


def test_a_limit_in_dollars_holds_with_storage():
    world = World()
    world.ask(budget=Budget(usd=0.05))
    world.ask(pause=900, budget=Budget(usd=0.021))
    assert world.events(PromptStored) == [], "the call itself would hardly fit"
    shared = World()
    for _ in range(3):
        shared.ask(pause=900, pool=SharedBudget(usd=1))
    assert shared.events(PromptStored) == []
    assert "shared budget" in shared.events(PromptDropped)[0].why


def test_forensics_expect_what_has_a_name_and_a_replay_agrees():
    world = World()
    for _ in range(4):
        world.ask(pause=900)
    calls = list_cache_calls(world.records)
    (kept, *_) = world.events(PromptStored)
    assert [call.outcome for call in calls] == ["cold", "hit", "hit", "hit"]
    assert {call.expected_tokens for call in calls[1:]} == {kept.tokens}


def test_it_is_told_in_the_log(tmp_path, capsys):
    world = World(store=open_store(tmp_path / "log.db"))
    world.ask()
    world.ask(pause=900)
    asyncio.run(world.store.close())
    assert main(["show", "s", "--store", str(tmp_path / "log.db")]) == 0
    assert "tokens stored as cachedContents/" in capsys.readouterr().out
    assert main(["cost", "s", "--store", str(tmp_path / "log.db")]) == 0
    assert "stored" in capsys.readouterr().out
