"""The order of a prompt, on every wire, as the provider lays it out."""

import asyncio
import json

import pytest

from bridle import Agent, Memory, tool
from bridle.core.layers import LAYERS, STABILITIES
from bridle.providers import load
from bridle.providers.catalogue import find
from bridle.run.line import Line
from bridle.run.notes import Notes
from bridle.sim import prompt
from bridle.sim.simulator import Simulator
from bridle.stores.memory import MemoryStore
from bridle.testing import FakeClock
from bridle.transports.inprocess import InProcessTransport
from bridle.values.message import Reply, Stop
from bridle.values.model import Origin
from bridle.values.parts import Text
from test_gathering import FAMILIES

WORDS = {
    "tools": "Weighs the tools-word.",
    "system": "The system-word.",
    "memory": "The memory-word.",
    "history": "The history-word.",
    "chunks": "The chunks-word.",
    "message": "The message-word.",
    "facts": "The facts-word.",
}


@tool(effect="read")
def weigh(at: int) -> str:
    """Weighs the tools-word."""
    return str(at)


def answering(request):
    endpoint = request.model.endpoint
    origin = Origin(family=endpoint.family, endpoint=endpoint.home, model=request.model.id)
    return Reply(parts=(Text(text="Yes."),), stop=Stop.DONE, origin=origin, id="r")


@pytest.mark.parametrize("model", FAMILIES)
def test_every_wire_keeps_the_order(model):
    clock, store, bodies, located = FakeClock(), MemoryStore(), [], find(model, environ={})
    simulator = Simulator(brain=answering, clock=clock)

    async def answer(outgoing):
        bodies.append(json.loads(outgoing.body))
        return await simulator.answer(outgoing)

    line = Line(model=located, codec=load(located.endpoint.family), transport=InProcessTransport(answer))
    settings = {"tools": [weigh], "instructions": WORDS["system"], "memory": Memory(tools=False)}
    asyncio.run(Notes(store).add(WORDS["memory"], tenant="acme"))
    Agent(line, store=store, clock=clock, **settings).run_sync(WORDS["history"], session="s", tenant="acme")
    asked = Agent(
        line,
        store=store,
        clock=clock,
        retrieve=lambda query: [WORDS["chunks"]],
        facts={"now": WORDS["facts"]},
        **settings,
    )
    assert asked.run_sync(WORDS["message"], session="s", tenant="acme").stop == "done"
    blocks = prompt.reader_of(located.endpoint.family).read(bodies[-1], located.abilities).blocks
    laid_out = "\n".join(block.text for block in blocks)
    places = [laid_out.index(WORDS[row.name]) for row in LAYERS]
    assert places == sorted(places)


def test_nothing_stands_before_what_is_shared_by_more():
    order = list(STABILITIES)
    ranks = [order.index(row.stability) for row in LAYERS]
    assert ranks == sorted(ranks)
    assert [row.name for row in LAYERS] == list(WORDS)
