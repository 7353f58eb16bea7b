"""A whole and a streamed run leave the same log: parts, usage and cost, on every endpoint of the table."""

import asyncio

import pytest
from msgspec.structs import replace

from bridle import Agent, tool
from bridle.providers.catalogue import find_model
from bridle.providers.tables import load_tables
from bridle.stores.memory import MemoryStore
from bridle.testing import FakeClock, ProviderSim
from bridle.values import events as e
from bridle.values.message import Text

TABLES = load_tables()
SCRIPTS = {
    "text": "!say Hello there, this is a text of some length.",
    "reasoning": "!think hard\n!say Hi",
    "call": '!call look {"city": "Rome"}\n!say Sunny.',
    "calls": '!call look {"city": "Rome"}\n!call look {"city": "Oslo"}\n!say Both.',
    "question": "What is 2+2?",
}


@tool(effect="exclusive")  # results in the order of the calls
def look(city: str) -> str:
    """Look at a city."""
    return f"sun in {city}"


def list_endpoints():
    for name, row in TABLES.endpoints.items():
        if row.family and not row.simulated:
            groups = [TABLES.model_groups[group] for group in row.models]
            yield f"sim:{name}/{row.prefixes[0] + next(iter(groups[0].ids)) if groups else 'some-model'}"


def run_once(model, prompt, *, stream):
    store = MemoryStore()
    provider = ProviderSim(clock=FakeClock())
    agent = Agent(provider.model(find_model(model, environ={})), tools=[look], store=store, clock=FakeClock())

    async def run():
        if not stream:
            return await agent.run(prompt, session="s")
        return [item async for item in agent.stream(prompt, session="s")][-1].result

    result = asyncio.run(run())
    return result, [record.event for record in asyncio.run(store.read("s"))]


def place_signatures(parts):
    """The parts with a signature of text in an empty part after it.

    Gemini puts it on the text of a whole reply and after the text of a stream. Both go back as they came, because signed
    parts must not be joined or split; so the place is kept in the log.
    """
    for part in parts:
        if isinstance(part, Text) and part.text and part.native:
            yield replace(part, native=None)
            yield Text(text="", native=part.native)
        else:
            yield part


def normalize_event(event, family):
    """An event without what belongs to one request alone: its bytes, its time and the ids made from them."""
    if isinstance(event, e.ModelAsked):
        return replace(event, digest="")
    if isinstance(event, e.ModelReplied):
        parts = tuple(
            replace(part, wire_id="") if hasattr(part, "wire_id") else part
            for part in (place_signatures(event.reply.parts) if family == "gemini" else event.reply.parts)
        )
        return replace(event, latency=None, reply=replace(event.reply, parts=parts))
    return event


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("model", [*list_endpoints()])
def test_a_whole_and_a_streamed_run_leave_the_same_log(model, script):
    (whole, whole_log), (streamed, streamed_log) = (
        run_once(model, SCRIPTS[script], stream=stream) for stream in (False, True)
    )
    family = find_model(model, environ={}).endpoint.family
    assert [normalize_event(each, family) for each in streamed_log] == [
        normalize_event(each, family) for each in whole_log
    ]
    assert (streamed.usage, streamed.cost, streamed.text) == (whole.usage, whole.cost, whole.text)
    assert not whole.usage.incomplete
    assert whole.stop == "done"
