"""Provider conversation objects: only new messages are sent, and all of them if its content is in doubt."""

import asyncio
import json

import pytest
from msgspec.structs import replace

from bridle import Agent, Budget, Compaction, tool
from bridle.ports.transport import ConnectionCut
from bridle.providers import load_codec
from bridle.run.model_connection import ModelConnection, find_model_by_name
from bridle.sim.simulator import Simulator
from bridle.sim.stored_objects import StoredObjects
from bridle.stores.memory import MemoryStore
from bridle.testing import FakeClock
from bridle.transports.inprocess import InProcessTransport
from bridle.values import events as e

MODEL = find_model_by_name("sim:openai/gpt-6.1-sol")
CALLING = '!call look {"n": 1}\n!then\n!say done'


@tool(effect="read")
def look(n: int) -> str:
    """Look."""
    return f"saw {n}"


class Provider:
    """The simulator, with what it was sent; it forgets, or cuts an answer, when told to."""

    def __init__(self):
        self.simulator, self.asked, self.made, self.cuts = Simulator(), [], 0, 0

    def forget(self):
        self.simulator.stored = StoredObjects()

    def conversations(self):
        return self.simulator.stored.conversations

    async def answer(self, outgoing):
        answer = await self.simulator.answer(outgoing)
        if outgoing.url.endswith("/conversations"):
            self.made += 1
            return answer
        self.asked.append(json.loads(outgoing.body))
        if self.cuts:
            self.cuts -= 1
            return replace(answer, steps=(answer.steps[0][:30], ConnectionCut()))
        return answer

    def agent(self, store, model=MODEL, **more):
        line = ModelConnection(
            model=model, codec=load_codec(model.endpoint.family), transport=InProcessTransport(self.answer)
        )
        settings = {"chain": "conversation", "tools": [look], "clock": FakeClock(), **more}
        return Agent(line, store=store, instructions="be brief", **settings)


def kinds(body):
    return [item.get("role", item.get("type")) for item in body["input"]]


def events(store, session="s"):
    return [record.event for record in asyncio.run(store.read(session))]


def state_events(store):
    found = [
        event for event in events(store) if isinstance(event, e.ConversationOpened | e.ConversationDropped)
    ]
    return [type(event).__name__ for event in found]


@pytest.mark.parametrize("stream", [False, True])
def test_only_what_is_new_is_sent_and_the_object_holds_all(stream):
    provider, store = Provider(), MemoryStore()
    agent = provider.agent(store)
    for _ in range(2):
        if stream:
            asyncio.run(seen_in(agent.stream(CALLING, session="s")))
        else:
            assert agent.run_sync(CALLING, session="s").text == "done"
    (name,) = provider.conversations()
    assert [body["conversation"] for body in provider.asked] == [name] * 4
    assert [kinds(body) for body in provider.asked] == [
        ["user"],
        ["function_call_output"],
        ["user"],
        ["function_call_output"],
    ]
    assert all("previous_response_id" not in body for body in provider.asked)
    assert all(body["store"] and body["instructions"] == "be brief" for body in provider.asked)
    held = [
        item.get("type") for item in provider.conversations()[name].items if item.get("type") != "reasoning"
    ]
    assert held == ["message", "function_call", "function_call_output", "message"] * 2
    assert state_events(store) == ["ConversationOpened"]
    assert [event.conversation for event in events(store) if isinstance(event, e.ModelAsked)] == [name] * 4


async def seen_in(stream):
    return [event async for event in stream]


def test_another_process_goes_on_in_the_same_object():
    provider, store = Provider(), MemoryStore()
    provider.agent(store).run_sync("!say one", session="s")
    result = provider.agent(store).run_sync("!say two", session="s")
    assert (result.text, provider.made) == ("two", 1)
    assert kinds(provider.asked[-1]) == ["user"]
    assert len(result.messages) == 4, "our own log is whole"


@pytest.mark.refusals
def test_a_lost_object_means_that_everything_is_sent_to_a_new_one():
    provider, store = Provider(), MemoryStore()
    agent = provider.agent(store)
    agent.run_sync(CALLING, session="s")
    provider.forget()
    result = agent.run_sync("!say two", session="s")
    assert (result.stop, result.text) == ("done", "two")
    assert state_events(store) == ["ConversationOpened", "ConversationDropped", "ConversationOpened"]
    retried = provider.asked[-1]
    assert len(retried["input"]) >= 5
    assert retried["conversation"] in provider.conversations()
    failures = [event.failure.kind for event in events(store) if isinstance(event, e.ModelFailed)]
    assert failures == ["forgotten"]
    agent.run_sync("!say three", session="s")
    assert kinds(provider.asked[-1]) == ["user"]


def test_an_answer_that_broke_off_leaves_nothing_twice():
    """The provider may have added it or not: nobody here can know, so a new object is begun."""
    provider, store = Provider(), MemoryStore()
    agent = provider.agent(store)
    agent.run_sync("!say one", session="s")
    provider.cuts = 1
    assert agent.run_sync("!say two", session="s").text == "two"
    assert state_events(store) == ["ConversationOpened", "ConversationDropped", "ConversationOpened"]
    used = provider.conversations()[provider.asked[-1]["conversation"]].items
    said = [item["content"] for item in used if item.get("role") == "user"]
    assert len(said) == 2
    assert json.dumps(said).count("!say two") == 1


def test_a_fork_does_not_write_into_the_object_of_another_session():
    provider, store = Provider(), MemoryStore()
    agent = provider.agent(store)
    agent.run_sync("!say one", session="s")
    fork = asyncio.run(agent.fork("s"))
    agent.run_sync("!say two", session=fork.session)
    agent.run_sync("!say three", session="s")
    first, second, third = (body["conversation"] for body in provider.asked)
    assert first == third != second
    assert len(provider.asked[1]["input"]) >= 3
    assert kinds(provider.asked[2]) == ["user"]


def test_a_conversation_made_shorter_begins_a_new_object():
    provider, store = Provider(), MemoryStore()
    agent = provider.agent(store, context_tokens=4_000, compaction=Compaction(native=False))
    for number in range(12):
        assert agent.run_sync(f"!say {number} {'word ' * 200}", session="s").stop == "done"
    log = events(store)
    assert any(isinstance(event, e.Compacted) for event in log)
    assert provider.made >= 2
    asides = [body for body in provider.asked if "conversation" not in body]
    summaries = [event for event in log if isinstance(event, e.ModelAsked) and event.summarizes_until]
    assert len(asides) == len(summaries), "what is asked aside is added to no object"


def test_a_wire_without_such_objects_is_sent_everything_and_the_log_says_so():
    provider, store = Provider(), MemoryStore()
    agent = provider.agent(store, find_model_by_name("sim:anthropic/claude-sonnet-5-5"))
    assert agent.run_sync("!say one", session="s").text == "one"
    assert agent.run_sync("!say two", session="s").text == "two"
    dropped = [event for event in events(store) if isinstance(event, e.ConversationDropped)]
    assert {(event.name, event.why) for event in dropped} == {("", "this wire has no conversation objects")}
    assert [len(body["messages"]) for body in provider.asked] == [1, 3]


def test_switched_off_the_object_is_left():
    provider, store = Provider(), MemoryStore()
    provider.agent(store).run_sync("!say one", session="s")
    provider.agent(store, chain=False).run_sync("!say two", session="s")
    assert state_events(store) == ["ConversationOpened", "ConversationDropped"]
    assert "conversation" not in provider.asked[-1]
    assert provider.asked[-1]["store"] is False


def test_a_cancelled_run_goes_on_in_a_new_object():
    provider, store = Provider(), MemoryStore()
    agent = provider.agent(store)

    async def cancel_early():
        stream = agent.stream("!say one two three four five six", session="s")
        async for event in stream:
            if event.text:
                stream.cancel()

    asyncio.run(cancel_early())
    result = agent.run_sync("!say two", session="s", budget=Budget(steps=3))
    assert result.text == "two"
    assert state_events(store) == ["ConversationOpened", "ConversationDropped", "ConversationOpened"]


@pytest.mark.refusals
def test_an_object_that_holds_something_else_is_replaced_and_the_run_goes_on():
    """What an object holds can differ from the log, for example when an answer was kept without its input."""
    provider = Provider()

    async def story():
        agent = provider.agent(MemoryStore())
        await agent.run(CALLING, session="s")
        held = provider.conversations()
        for name, conversation in [*held.items()]:
            kept = tuple(item for item in conversation.items if item.get("type") != "function_call_output")
            held[name] = replace(conversation, items=kept)
        return await agent.run("!say again", session="s")

    assert asyncio.run(story()).text == "again"


def test_a_chain_switched_on_later_does_not_name_replies_that_were_not_kept():
    provider, store = Provider(), MemoryStore()

    async def story():
        await provider.agent(store, chain=False).run("!say one", session="s")
        chained = provider.agent(store, chain=True)
        await chained.run("!say two", session="s")
        return await chained.run("!say three", session="s")

    assert asyncio.run(story()).text == "three"
    assert [bool(body.get("previous_response_id")) for body in provider.asked] == [False, False, True]


@pytest.mark.parametrize("chain", ["conversation", True])
def test_calls_that_share_an_id_are_answered_without_held_state(chain):
    """A repeated id gets a new one here, which the provider's own copy of the reply does not have."""
    provider, store = Provider(), MemoryStore()
    provider.simulator.plan_faults(["duplicate-call"])

    async def story():
        return await provider.agent(store, chain=chain).run(CALLING, session="s")

    assert asyncio.run(story()).text == "done"
    assert len(provider.asked) == 2, "nothing was refused"
