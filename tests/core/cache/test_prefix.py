"""The prompt prefix stays unchanged, or an event records what changed it."""

import asyncio
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from bridle import Agent, Budget, Media, Memory, tool
from bridle.core.loop import apply_event
from bridle.core.state import State
from bridle.memory import Notes
from bridle.providers import load_codec
from bridle.providers.catalogue import find_model
from bridle.run.model_connection import ModelConnection
from bridle.sessions import CrossTenant
from bridle.sim.simulator import Simulator
from bridle.stores import open_store
from bridle.stores.memory import MemoryStore
from bridle.testing import FakeClock, scripted
from bridle.testing.scripted_model import call_reply
from bridle.transports.inprocess import InProcessTransport
from bridle.values import events as e
from bridle.values.errors import MisuseError
from bridle.values.message import Reply, Stop, Text, ToolCall
from bridle.values.model import Origin
from tests.core.cache.prefix_replay import replay_records
from tests.suite.campaign import IS_WHOLE, scale

CONVERSATIONS = scale(40, 24)
MODELS = (
    "anthropic:claude-sonnet-5-5",
    "anthropic-vertex:claude-sonnet-5-5",
    "openai:gpt-6.1-sol",
    "openai-chat:gpt-6.1-sol",
    "gemini:gemini-3.8-flash",
)
ENVIRON = {"ANTHROPIC_VERTEX_PROJECT_ID": "p"}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="


@tool(effect="read")
def look(at: int) -> str:
    """Look at one place."""
    return f"Nothing at {at}."


@tool(effect="read")
def shot(at: int) -> Media:
    """Show one place."""
    return Media(kind="image", media_type="image/png", data=PIXEL, name=f"{at}.png")


@tool(effect="read")
def weigh(at: int) -> dict[str, int]:
    """Weigh one place."""
    return {"grams": at}


TOOLS = (look, shot, weigh)


def events(store, session="s"):
    return [record.event for record in asyncio.run(store.read(session))]


def moves(store, session="s"):
    return [event for event in events(store, session) if isinstance(event, e.PrefixMoved)]


def agent(store, *replies, model="", **given):
    return Agent(
        scripted(*replies, model=model),
        store=store,
        **{"tools": [look, weigh], "instructions": "Be kind.", **given},
    )


def test_nothing_moves_when_nothing_changed():
    store = MemoryStore()
    replies = (call_reply(("look", {"at": 1})), "one", "two")
    agent(store, *replies).run_sync("go", session="s")
    agent(store, *replies).run_sync("on", session="s")
    assert moves(store) == []


@pytest.mark.parametrize(
    ("change", "layer", "block"),
    [
        ({"instructions": "Be quick."}, "system", "instructions"),
        ({"tools": [weigh, look]}, "tools", "tool 1 (weigh)"),
        ({"tools": [look]}, "tools", "tool 2 (gone)"),
        ({"tools": [look, weigh, shot]}, "tools", "tool 3 (shot)"),
        ({"tool_choice": "none"}, "settings", "tool_choice"),
    ],
)
def test_a_change_of_the_settings_is_named(change, layer, block):
    store = MemoryStore()
    agent(store, "one", "two", "three").run_sync("go", session="s")
    agent(store, "one", "two", "three", **change).run_sync("on", session="s")
    agent(store, "one", "two", "three", **change).run_sync("on", session="s")
    (move,) = moves(store)
    assert (move.layer, move.block, move.cause) == (layer, block, "settings_changed")
    assert move.uncached_tokens > 0


def test_a_changed_view_is_named_with_its_reason():
    store = MemoryStore()
    shots = [call_reply(("shot", {"at": number})) for number in range(8)]
    agent(store, *shots, "done", tools=[shot]).run_sync("go", session="s")
    (move,) = moves(store)
    assert (move.layer, move.block, move.cause) == ("history", "message m3, part 1", "view_changed")
    assert "pictures" in move.why


def test_tools_that_are_shown_later_are_named():
    store = MemoryStore()
    replies = (call_reply(("weigh", {"at": 1})), call_reply(("weigh", {"at": 2})), "done")
    model = "sim:openai-chat/gpt-6.1-sol"  # which has no way to add a tool behind what it has read
    agent(store, *replies, model=model, tools=TOOLS, tools_shown_max=2).run_sync("go", session="s")
    (move,) = moves(store)
    assert (move.layer, move.cause) == ("tools", "tools_revealed")
    assert "(weigh)" in move.block
    assert "weigh" in move.why


def test_strict_ends_the_run_before_anything_is_sent_and_until_the_change_is_taken_back():
    store = MemoryStore()
    strict = {"prefix": "strict"}
    agent(store, "one", "two", **strict).run_sync("go", session="s")
    changed = agent(store, "one", "two", instructions="Be quick.", **strict)
    result = changed.run_sync("on", session="s")
    assert result.stop == "failed"
    assert "system, first at instructions" in result.reason
    assert 'Agent(prefix="report")' in result.reason
    asked = sum(isinstance(event, e.ModelAsked) for event in events(store))
    assert asked == 1
    assert asyncio.run(changed.resume("s")).stop == "failed"
    assert len(moves(store)) == 2
    assert asyncio.run(agent(store, "one", "two", **strict).resume("s")).text == "two"


def test_what_moved_is_allowed_when_it_is_only_to_be_reported():
    store = MemoryStore()
    agent(store, "one", "two", prefix="strict").run_sync("go", session="s")
    agent(store, "one", "two", prefix="strict", instructions="New.").run_sync("on", session="s")
    result = asyncio.run(agent(store, "one", "two", instructions="New.").resume("s"))
    assert result.text == "two"


def test_the_settings_are_checked():
    with pytest.raises(MisuseError):
        agent(MemoryStore(), "one", prefix="loose")
    with pytest.raises(MisuseError):
        agent(MemoryStore(), "one", cache_ttl="2h")


class Mind:
    """Looks, shows and weighs at random, the same way for the same conversation."""

    def __init__(self, seed):
        self.seed = seed

    def __call__(self, request):
        seen = sum(message.role == "assistant" for message in request.messages)
        chance = random.Random(f"{self.seed} {seen}")
        endpoint = request.model.endpoint
        origin = Origin(family=endpoint.family, endpoint=endpoint.endpoint_id, model=request.model.id)
        if chance.random() < 0.25 or request.messages[-1].text.startswith("Stop"):
            return Reply(parts=(Text(text=f"Done {seen}."),), stop=Stop.DONE, origin=origin, id=f"r{seen}")
        wanted = [chance.choice(("look", "shot", "shot", "weigh")) for _ in range(chance.choice((1, 2, 5)))]
        made = [
            ToolCall(id=f"c{seen}_{n}", wire_id=f"c{seen}_{n}", name=name, arguments=f'{{"at": {n}}}')
            for n, name in enumerate(wanted)
        ]
        return Reply(parts=(Text(text=f"Step {seen}."), *made), stop=Stop.TOOLS, origin=origin, id=f"r{seen}")


async def converse(path, seed):
    """One conversation of several runs, each by an agent that read it from disk."""
    chance = random.Random(seed)
    clock = FakeClock()
    simulator = Simulator(responder=Mind(seed), clock=clock)
    model, given = chance.choice(MODELS), {"tools": list(TOOLS), "instructions": "Be kind."}
    own = random.Random(f"{seed} remembers")
    if own.random() < 0.5:
        given |= {
            "memory": Memory(refresh=own.choice(("session", "run"))),
            "retrieve": lambda query: [
                f"Page {own.randrange(9)} of {query.text}." for _ in range(own.randrange(3))
            ],
            "facts": lambda: {"time": str(clock.now()), "id": own.randrange(1_000)},
        }
    for turn in range(chance.randint(2, 4)):
        change = chance.random() if turn else 1.0
        if change < 0.12:
            model = chance.choice(MODELS)
        elif change < 0.24:
            given["instructions"] = f"Be kind {turn} times."
        elif change < 0.36:
            given["tools"] = chance.sample(TOOLS, 3)
        elif change < 0.5:
            given["tools"] = list(given["tools"])
        located = find_model(model, environ=ENVIRON)
        line = ModelConnection(
            model=located,
            codec=load_codec(located.endpoint.family),
            transport=InProcessTransport(simulator.answer),
        )
        store = open_store(path)
        tenant = own.choice((f"acme{seed}", f"zeta{seed}"))
        if own.random() < 0.3:
            await Notes(store, clock=clock).add(f"Note {turn} of {seed}.", tenant=tenant)
        window = chance.choice((None, None, 1_500, 4_000))
        budget = Budget(steps=4)
        driven = Agent(
            line,
            store=store,
            clock=clock,
            repeats_max=None,
            budget=budget,
            context_tokens=window,
            **given,  # type: ignore[arg-type]
        )
        clock.advance(chance.choice((1.0, 400.0)))
        await driven.run(
            [f"Part {n} of {turn}." for n in range(chance.choice((1, 3, 30)))],
            session=f"s{seed}",
            tenant=CrossTenant(tenant),
        )
        await store.close()


@pytest.mark.slow
def test_over_random_conversations_the_prefix_stays_or_an_event_says_why(tmp_path):
    path = tmp_path / "log.db"

    async def all_of_them():
        for seed in range(CONVERSATIONS):
            await converse(path, seed)

    asyncio.run(all_of_them())
    here = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, str(here / "prefix_replay.py"), str(path)],
        env={**os.environ, "PYTHONHASHSEED": "4711"},
        capture_output=True,
        check=True,
        timeout=300 + 3 * CONVERSATIONS,
    )
    found = json.loads(done.stdout)
    assert found["faults"] == []
    assert found["requests"] > 4 * CONVERSATIONS
    known = {"settings_changed", "view_changed", "model_switched", "compacted", "summary", "memory_loaded"}
    assert not IS_WHOLE or found["causes"].keys() >= known


def test_the_replay_notices_an_unreported_move():
    store = MemoryStore()
    agent(store, "one", "two").run_sync("go", session="s")
    agent(store, "one", "two", instructions="Be quick.").run_sync("on", session="s")
    records = [
        record for record in asyncio.run(store.read("s")) if not isinstance(record.event, e.PrefixMoved)
    ]
    faults, requests, _ = replay_records(records)
    assert requests == 2
    assert faults == [f"record {records[-3].seq}: the prefix moved and nobody said so"]
    assert fold_of(records).cache.last_request is not None


def fold_of(records):
    state = State()
    for record in records:
        state = apply_event(state, record.event, record.at, record.hash)
    return state
