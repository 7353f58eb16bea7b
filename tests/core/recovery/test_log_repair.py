"""Damaged logs fold: known records count, the others are listed, and the next turn works."""

import asyncio
import random
from contextlib import suppress
from hashlib import sha256

import msgspec
import pytest

from bridle import Agent, MisuseError, tool
from bridle.core.loop import TRANSITIONS
from bridle.core.recovery.log_repair import BRIDGES, fold_log
from bridle.stores.memory import MemoryStore
from bridle.testing import simulator
from bridle.values import events as e
from bridle.values.record import GENESIS, unseal_record
from tests.sim.sim_families import FAMILIES, MODELS
from tests.suite.campaign import list_seeds

STORY = (
    '!say Let me see.\n!call look {"city": "Oslo"}\n!call look {"city": "Rome"}\n!then\n'
    '!call look {"city": "Bern"}\n!then\n!say Rain everywhere.'
)


@tool(effect="read")
def look(city: str) -> str:
    """Look at a city."""
    return f"rain in {city}"


def agent_of(provider, family, store):
    return Agent(provider.model(MODELS[family]), tools=[look], store=store)


async def record_two_runs(family):
    """Two runs of a session, as the bytes of its events."""
    async with simulator() as provider:
        store = MemoryStore()
        agent = agent_of(provider, family, store)
        for prompt in (STORY, "!say And on."):
            assert (await agent.run(prompt, session="s")).done
        return [record.data for record in await store.read("s")]


def chain_events(events):
    head, records = GENESIS, []
    for seq, data in enumerate(events, 1):
        at = 1_700_000_000.0 + seq
        hash_ = sha256(f"{head} {seq} {at!r} ".encode() + data).hexdigest()
        records.append(unseal_record(seq, at, data, head, hash_))
        head = hash_
    return records


class Foreign(MemoryStore):
    """A store that was filled by other rules than ours."""

    def __init__(self, records):
        super().__init__()
        self.records = list(records)

    async def read(self, session, after=0):  # type: ignore[override]
        return tuple(self.records[after:])

    async def append(self, session, after, records, *, epoch=None):
        assert after == len(self.records)
        self.records.extend(records)


def kind(data):
    return msgspec.json.decode(data)["type"]


def place(events, wanted, nth=0):
    return [at for at, data in enumerate(events) if kind(data) == wanted][nth]


def edit_event(data, **fields):
    return msgspec.json.encode({**msgspec.json.decode(data), **fields})


def drop_event(wanted, nth=0):
    return lambda events: [data for at, data in enumerate(events) if at != place(events, wanted, nth)]


def repeat_event(wanted, nth=0):
    def broken(events):
        at = place(events, wanted, nth)
        return [*events[: at + 1], events[at], *events[at + 1 :]]

    return broken


def spoil_event(wanted, nth=0, **fields):
    def broken(events):
        at = place(events, wanted, nth)
        return [*events[:at], edit_event(events[at], **fields), *events[at + 1 :]]

    return broken


def same_ids(events):
    """As if every reply had numbered its calls alike."""
    return [data.replace(b"c2_0", b"c1_0").replace(b"c1_1", b"c1_0") for data in events]


def unheard_of(events):
    return [*events[:4], b'{"type":"moon_rose","over":"Oslo"}', *events[4:], b'{"no":"type"}', b'{"type":7}']


def of_a_newer_version(events):
    return [edit_event(data, some_day={"maybe": [1, 2]}) for data in events]


BREAKAGES = {
    "a result is missing": (drop_event("tool_finished"), ["no result of c1_"]),
    "all results are missing": (
        lambda events: [data for data in events if kind(data) not in ("tool_started", "tool_finished")],
        ["no result of c1_0, c1_1", "no result of c2_0"],
    ),
    "a start is missing": (drop_event("tool_started"), []),
    "a result came twice": (repeat_event("tool_finished"), ["comes after the result of c1_"]),
    "a result came twice, later": (repeat_event("tool_finished", 2), ["does not fit there"]),
    "a reply is missing": (drop_event("model_replied"), ["does not fit there"]),
    "a question is missing": (drop_event("model_asked"), []),
    "an end is missing": (drop_event("run_ended"), ["has no end"]),
    "an end came twice": (repeat_event("run_ended"), ["does not fit there"]),
    "a prompt is missing": (drop_event("prompted", 1), ["the start of the run"]),
    "the settings are missing": (drop_event("configured"), ["settings before record 1 are missing"]),
    "ids came twice": (same_ids, ["uses the id c1_0 again; that call is c1_0_2", "that call is c1_0_3"]),
    "unknown kinds": (unheard_of, ["record 5 (moon_rose)", "(of no kind)", "(of no kind)"]),
    "new fields": (of_a_newer_version, []),
    "a new way to end": (spoil_event("run_ended", stop="postponed"), ["(run_ended) cannot be read", "has no end"]),
    "settings of a new kind": (spoil_event("configured", settings=7), ["(configured) cannot be read", "settings"]),
    "a reply of a new kind": (spoil_event("model_replied", reply=[]), ["(model_replied) cannot be read"]),
}  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_a_whole_log_is_read_as_it_was_written(family):
    records = chain_events(asyncio.run(record_two_runs(family)))
    assert fold_log(records).repairs == ()
    assert fold_log(records).state.run.end.answer == "And on."


async def next_turn_works(family, records, name="", *, resumed=False):
    """Speak to a broken session as if nothing were: twice, and strictly checked."""
    store = Foreign(records)
    repairs = fold_log(records).repairs
    async with simulator() as provider:
        agent = agent_of(provider, family, store)
        if resumed:
            with suppress(MisuseError):  # there may be nothing to resume
                await agent.resume("s")
        result = await agent.run("!say Fine.", session="s")
        # Where an answer is missing, the question before it is answered too.
        assert result.done, (name, result.reason)
        assert result.text.endswith("Fine."), name
        again = await agent.run(STORY, session="s")
        assert (again.stop, again.text) == ("done", "Rain everywhere."), name
    for message in again.messages:
        for call in message.calls:
            assert [r.call_id for m in again.messages for r in m.results].count(call.id) == 1, (name, call.id)
    ids = [call.id for message in again.messages for call in message.calls]
    assert len(ids) == len(set(ids)), name
    events = [record.event for record in await store.read("s")]
    assert list(map(len, [event.items for event in events if isinstance(event, e.LogRepaired)])) == (
        [len(repairs)] if repairs else []
    ), name
    assert fold_log(await store.read("s")).repairs == ()
    return repairs


@pytest.mark.parametrize("family", FAMILIES)
def test_what_others_broke_is_put_right_named_once_and_goes_on(family):
    async def main():
        events = await record_two_runs(family)
        for name, (breakage, words) in BREAKAGES.items():
            repairs = await next_turn_works(family, chain_events(breakage(events)), name)
            for word in words:
                assert any(word in repair for repair in repairs), (name, word, repairs)
            if not words:
                assert repairs == (), name

    asyncio.run(main())


def damage_events(events, dice):
    """Something else wrong with it every time."""
    events = list(events)
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(len(events))
        match dice.randrange(7):
            case 0:
                del events[at]
            case 1:
                events.insert(at, events[at])
            case 2:
                other = dice.randrange(len(events))
                events[at], events[other] = events[other], events[at]
            case 3:
                events[at] = b'{"type":"%s"}' % kind(events[at]).encode()
            case 4:
                events.insert(at, b'{"type":"moon_rose"}')
            case 5:
                events[at] = events[at].replace(b"c1_1", b"c1_0").replace(b"c2_0", b"c1_1")
            case 6:
                del events[at:]
        if not events:
            events = [b'{"type":"moon_rose"}']
    return events


@pytest.mark.parametrize("family", FAMILIES)
def test_after_any_damage_the_next_turn_works(family):
    async def main():
        events = await record_two_runs(family)
        for seed in list_seeds(20):
            dice = random.Random(seed)
            records = chain_events(damage_events(events, dice))
            await next_turn_works(family, records, f"seed {seed}", resumed=dice.random() < 0.5)

    asyncio.run(main())


def test_bridges_lead_somewhere():
    """No bridge over a road: where an event has its place, nothing is put before it."""
    assert not set(BRIDGES) & set(TRANSITIONS)
