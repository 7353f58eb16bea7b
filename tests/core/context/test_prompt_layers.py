"""The order of the prompt layers on every wire."""

import asyncio
import json
from typing import Any

import pytest

from bridle import Agent, Memory, per_turn, tool
from bridle.providers import load_codec
from bridle.providers.catalogue import find_model
from bridle.run.memory.notes import Notes
from bridle.run.model_connection import ModelConnection
from bridle.sim import families
from bridle.sim.simulator import Simulator
from bridle.stores.memory import MemoryStore
from bridle.testing import FakeClock
from bridle.transports.inprocess import InProcessTransport
from bridle.values.message import Reply, Stop, Text
from bridle.values.model import Origin
from docs.prompt_layers import PROMPT_LAYERS, STABILITY_LEVELS
from tests.suite.wire_models import VENDOR_MODELS

WORDS: dict[str, Any] = {
    "tools": "Weighs the tools-word.",
    "system": "The system-word.",
    "memory": "The memory-word.",
    "session": "The session-word.",
    "history": "The history-word.",
    "chunks": "The chunks-word.",
    "message": "The message-word.",
    "facts": "The facts-word.",
    "turn": "The turn-word.",
}


@tool(effect="read")
def weigh(at: int) -> str:
    """Weighs the tools-word."""
    return str(at)


def write_session() -> str:
    return WORDS["session"]


def write_turn() -> str:
    return WORDS["turn"]


def reply_to_request(request):
    endpoint = request.model.endpoint
    origin = Origin(family=endpoint.family, endpoint=endpoint.endpoint_id, model=request.model.id)
    return Reply(parts=(Text(text="Yes."),), stop=Stop.DONE, origin=origin, id="r")


@pytest.mark.parametrize("model", VENDOR_MODELS)
def test_every_wire_keeps_the_order(model):
    clock, store, bodies, located = FakeClock(), MemoryStore(), [], find_model(model, environ={})
    simulator = Simulator(responder=reply_to_request, clock=clock)

    async def answer(outgoing):
        bodies.append(json.loads(outgoing.body))
        return await simulator.answer(outgoing)

    line = ModelConnection(
        model=located, codec=load_codec(located.endpoint.family), transport=InProcessTransport(answer)
    )
    settings: Any = {
        "tools": [weigh],
        "instructions": [write_session, per_turn(write_turn), WORDS["system"]],
        "memory": Memory(tools=False),
    }
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
    blocks = (
        families.find_prompt_reader(located.endpoint.family).lay_out(bodies[-1], located.abilities).blocks
    )
    laid_out = "\n".join(block.text for block in blocks)
    # The newest turn counts: the history has instructions of its own turn.
    places = [laid_out.rindex(WORDS[row.name]) for row in PROMPT_LAYERS]
    assert places == sorted(places)


def test_nothing_stands_before_what_is_shared_by_more():
    order = list(STABILITY_LEVELS)
    ranks = [order.index(row.stability) for row in PROMPT_LAYERS]
    assert ranks == sorted(ranks)
    assert [row.name for row in PROMPT_LAYERS] == list(WORDS)
