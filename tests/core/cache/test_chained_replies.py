"""`previous_response_id`: only new messages are sent, and all of them if the provider has lost the state."""

import asyncio
import json

import pytest

from bridle import Agent, tool
from bridle.providers import load_codec
from bridle.run.model_connection import ModelConnection, find_model_by_name
from bridle.sim.simulator import Simulator
from bridle.sim.stored_objects import StoredObjects
from bridle.stores.memory import MemoryStore
from bridle.transports.inprocess import InProcessTransport
from bridle.values.events import ModelFailed
from bridle.values.message import Message, Reasoning, Reply, Stop, Text, ToolCall
from bridle.values.model import Origin
from bridle.values.request import Request
from tests.core.compaction.long_walks import FAMILIES, PROMPT, Walk

CODEC = load_codec("openai_responses")
MODEL = find_model_by_name("sim:openai/gpt-6.1-sol")


@tool(effect="read")
def look(n: int) -> str:
    """Look."""
    return f"saw {n}"


class Keeper:
    """Keeps every reply by its id, until told to forget."""

    def __init__(self):
        self.bodies, self.count = [], 0
        self.simulator = Simulator(self.decide)

    def forget(self):
        self.simulator.stored = StoredObjects()

    async def answer(self, outgoing):
        self.bodies.append(json.loads(outgoing.body))
        return await self.simulator.answer(outgoing)

    def decide(self, request):
        self.count += 1
        asks = self.count % 2 == 1
        part = (
            ToolCall(id="", name="look", arguments='{"n":1}', wire_id=f"call_{self.count}")
            if asks
            else Text(text="done")
        )
        return Reply(
            parts=(part,), stop=Stop.TOOLS if asks else Stop.DONE, id=f"resp_{self.count}",
            origin=Origin(family=CODEC.family, endpoint=MODEL.endpoint.endpoint_id, model=MODEL.id),
        )  # fmt: skip


def agent(keeper, store, **more):
    line = ModelConnection(model=MODEL, codec=CODEC, transport=InProcessTransport(keeper.answer))
    return Agent(line, tools=[look], store=store, instructions="be brief", **more)


def test_nothing_already_kept_is_sent_again():
    keeper, store = Keeper(), MemoryStore()
    subject = agent(keeper, store, chain=True)
    subject.run_sync("one", session="s")
    subject.run_sync("two", session="s")
    parents = [body.get("previous_response_id") for body in keeper.bodies]
    assert parents == [None, "resp_1", "resp_2", "resp_3"]
    kinds = [[item.get("type", item.get("role")) for item in body["input"]] for body in keeper.bodies]
    assert [len(items) for items in kinds] == [1, 1, 1, 1]
    assert kinds[1] == kinds[3] == ["function_call_output"]
    assert all(body["instructions"] == "be brief" for body in keeper.bodies)
    assert all(body["store"] for body in keeper.bodies)


@pytest.mark.refusals
def test_a_forgotten_parent_means_everything_is_sent_once():
    keeper, store = Keeper(), MemoryStore()
    subject = agent(keeper, store, chain=True)
    subject.run_sync("one", session="s")
    keeper.forget()
    result = subject.run_sync("two", session="s")
    assert result.stop == "done"
    retried = keeper.bodies[3]
    assert "previous_response_id" not in retried
    assert len(retried["input"]) >= 4
    assert keeper.bodies[4]["previous_response_id"] == "resp_3"
    failures = [
        r.event.failure.kind for r in asyncio.run(store.read("s")) if isinstance(r.event, ModelFailed)
    ]
    assert failures == ["forgotten"]


def test_without_chaining_everything_is_sent_and_nothing_kept():
    keeper = Keeper()
    agent(keeper, MemoryStore()).run_sync("one")
    assert all(body["store"] is False for body in keeper.bodies)
    roles = [item.get("role", item["type"]) for item in keeper.bodies[1]["input"]]
    assert roles == ["developer", "user", "function_call", "function_call_output"]


def test_a_lost_chain_is_sent_again_without_ids_and_with_its_proof():
    """What the provider forgot it also forgot under its ids; only what carries its own proof can go back."""
    sealed = Reasoning(text="hm", signature="blob", native='{"id":"rs_1"}')
    unsealed = Reasoning(text="hm", native='{"id":"rs_2"}')
    origin = Origin(family=CODEC.family, endpoint=MODEL.endpoint.endpoint_id, model=MODEL.id)
    told = [Message(role="user", parts=(Text(text="hi"),), id="m1")]
    for number, thought in enumerate((sealed, unsealed)):
        said = Text(text="ok", native=f'{{"id":"msg_{number}"}}')
        told.append(
            Message(
                role="assistant",
                parts=(thought, said),
                id=f"m{2 * number + 2}",
                origin=origin,
                reply_id=f"r{number}",
            )
        )
        told.append(Message(role="user", parts=(Text(text="on"),), id=f"m{2 * number + 3}"))
    body = json.loads(CODEC.encode(Request(model=MODEL, messages=tuple(told), keeps_server_state=True)).body)
    assert body["store"] is True
    assert not any("id" in item for item in body["input"])
    chained = json.loads(
        CODEC.encode(
            Request(model=MODEL, messages=tuple(told), keeps_server_state=True, server_state_until="r1")
        ).body
    )
    assert len(chained["input"]) == 1


def test_a_reply_on_another_wire_of_the_same_provider_is_no_parent():
    walk = Walk(FAMILIES["openai_chat"], context_tokens=None)
    walk.run(2)
    line = walk.provider.model(FAMILIES["openai_responses"])
    agent = Agent(line, **{**walk.options, "chain": True})
    assert asyncio.run(agent.run(PROMPT.format(4), "s")).text == "I went through 4 places."
    assert walk.provider.refusals == []
