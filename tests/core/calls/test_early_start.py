"""A read-only tool starts when its call is complete, while the reply still streams."""

import asyncio

import pytest
from msgspec.structs import replace

from bridle import Agent, tool
from bridle.providers import load_codec
from bridle.run.model_connection import ModelConnection
from bridle.stores.memory import MemoryStore
from bridle.testing import FakeClock, scripted
from bridle.testing.scripted_model import ScriptedReplies, call_reply, text_reply
from bridle.values import events as e
from bridle.values.calls import PermissionRule, Policy
from bridle.values.errors import Failure, ProviderError
from bridle.values.message import Stop
from bridle.values.result import CallReady
from tests.sim.sim_families import FAMILIES, MODELS
from tests.suite.patience import PATIENCE_SECONDS

ASKED_MAX = 9


class Holding:
    """A provider that does not end its first reply before `gate` opens, and may then break it off."""

    def __init__(self, family, replies, *, breaks=False):
        self.model, self.breaks = MODELS[family], breaks
        self.scripts = [ScriptedReplies([reply] * ASKED_MAX) for reply in replies]
        self.gate = asyncio.Event()
        self.asked = 0

    def line(self):
        return ModelConnection(model=self.model, codec=load_codec(self.model.endpoint.family), transport=self)

    def open(self, outgoing):
        self.asked += 1
        script = self.scripts[min(self.asked, len(self.scripts)) - 1]
        return _Exchange(self, script, outgoing)


class _Exchange:
    def __init__(self, provider, script, outgoing):
        self.provider, self.script, self.outgoing = provider, script, outgoing
        self.first = provider.asked == 1

    async def __aenter__(self):
        self.reply = await self.script.simulator.answer(self.outgoing)
        self.status = self.reply.status
        self.headers = {name.lower(): value for name, value in self.reply.headers}
        return self

    async def __aexit__(self, *_):
        return None

    async def chunks(self):
        *most, last = self.reply.steps
        for frame in most:
            yield frame
        if self.first:
            await self.provider.gate.wait()
            if self.provider.breaks:
                raise ProviderError(Failure(kind="cut", message="gone"))
        yield last


def make_look_tool(provider, began):
    @tool(effect="read")
    async def look(at: int) -> str:
        """Look."""
        began.append(at)
        provider.gate.set()
        return f"saw {at}"

    return look


async def collect_events(agent):
    seen = []
    async with asyncio.timeout(PATIENCE_SECONDS):
        async for event in agent.stream("?", session="s"):
            seen.append(event)
    return seen


@pytest.mark.parametrize("family", FAMILIES)
def test_it_starts_while_the_reply_is_still_coming(family):
    async def main():
        began = []
        reply = call_reply(("look", {"at": 1}), ("look", {"at": 2}), text="Let me look.")
        provider = Holding(family, [reply, text_reply("done")])
        store = MemoryStore()
        agent = Agent(provider.line(), tools=[make_look_tool(provider, began)], store=store)
        seen = await collect_events(agent)
        # The reply could not have ended before the tool began: the provider waited for it.
        assert began == [1, 2]
        ready = [item for item in seen if isinstance(item, CallReady)]
        assert [(item.index, item.call.name) for item in ready][:1] == [(0, "look")]
        results = [r for m in seen[-1].result.messages for r in m.results]
        assert [(r.call_id, r.text) for r in results] == [("c1_0", "saw 1"), ("c1_1", "saw 2")]

    asyncio.run(main())


@pytest.mark.parametrize("family", FAMILIES)
def test_what_ran_for_a_reply_that_broke_off_is_discarded(family):
    async def main():
        began = []
        reply = call_reply(("look", {"at": 1}), ("look", {"at": 2}))
        provider = Holding(family, [reply, text_reply("never mind")], breaks=True)
        agent = Agent(provider.line(), tools=[make_look_tool(provider, began)], clock=FakeClock())
        seen = await collect_events(agent)
        result = seen[-1].result
        assert (result.stop, result.text) == ("done", "never mind")
        assert began[0] == 1
        failed = [item for item in seen if isinstance(item, e.ModelFailed)]
        assert failed[0].discarded_tools[0] == "look"
        assert not any(isinstance(item, e.ToolStarted | e.ToolFinished) for item in seen)
        assert not any(m.results for m in result.messages)

    asyncio.run(main())


def test_what_ran_for_a_refused_reply_is_discarded_and_told():
    ran = []

    @tool(effect="read")
    def look(at: int) -> str:
        """Look."""
        ran.append(at)
        return "seen"

    async def main():
        refused = replace(call_reply(("look", {"at": 1})), stop=Stop.REFUSED)
        line = scripted(refused, model="sim:")  # where a refusal may come after a call
        seen = await collect_events(Agent(line, tools=[look], clock=FakeClock()))
        (ended,) = [item for item in seen if isinstance(item, e.RunEnded)]
        assert (ended.stop, ended.discarded_tools) == ("refused", ("look",))
        assert not any(isinstance(item, e.ToolStarted | e.ToolFinished) for item in seen)

    asyncio.run(main())


def test_what_changes_something_waits_for_the_end():
    """With the gate shut, nothing but a tool that reads may begin; the run is cancelled while it waits.

    On a wire that says the arguments of a call even if there are none: elsewhere such a call waits."""

    async def main(tools, script, policy=None):
        provider = Holding("openai_responses", [script])
        began = []

        def named(name, **options):
            async def body() -> str:
                """Do it."""
                began.append(name)
                return "ok"

            return tool(body, name=name, **options)

        agent = Agent(
            provider.line(),
            tools=[named(*one) if isinstance(one, tuple) else named(one[0], **one[1]) for one in tools],
            policy=policy,
        )
        stream = agent.stream("?")
        async for event in stream:
            if isinstance(event, CallReady) and event.index == len(script.calls) - 1:
                for _ in range(10):
                    await asyncio.sleep(0)
                stream.cancel()
        return began

    read, write, undeclared = ["read", {"effect": "read"}], ["write", {"effect": "write"}], ["plain", {}]
    approved = ["approved", {"effect": "read", "approve": True}]
    every = [read, write, undeclared, approved]

    def after(*names):
        return asyncio.run(main(every, call_reply(*((name, {}) for name in names))))

    assert after("read") == ["read"]
    assert after("write") == []
    assert after("plain") == []
    assert after("approved") == []
    assert after("read", "read") == ["read", "read"]
    assert after("write", "read") == []
    assert after("read", "write", "read") == ["read"]
    assert after("ghost", "read") == []
    shut = Policy(rules=(PermissionRule(decision="deny"),))
    assert asyncio.run(main(every, call_reply(("read", {})), shut)) == []


def test_arguments_cut_off_never_run():
    ran = []

    @tool(effect="read")
    def read_file(path: str) -> str:
        """Read."""
        ran.append(path)
        return "text"

    whole = call_reply(("read_file", {"path": "/tmp/part.txt"}))
    (call,) = whole.parts
    cut = replace(whole, parts=(replace(call, arguments='{"path": "/tmp/par'),), stop=Stop.LENGTH)
    for stream in (True, False):
        agent = Agent(scripted(cut, "then not"), tools=[read_file])
        result = asyncio.run(collect_events(agent))[-1].result if stream else agent.run_sync("?")
        assert (result.stop, result.text, ran) == ("done", "then not", [])
        (told,) = result.messages[2].results
        assert told.outcome == "invalid"
        assert "truncated" in told.text


def test_streamed_with_early_tools_leaves_the_same_log():
    async def main():
        logs = []
        for stream in (True, False):
            store = MemoryStore()

            @tool(effect="read")
            async def look(at: int) -> str:
                """Look."""
                return f"saw {at}"

            script = call_reply(*(("look", {"at": at}) for at in range(4)))
            agent = Agent(scripted(script, script, "ok"), tools=[look], store=store, clock=FakeClock())
            if stream:
                await collect_events(agent)
            else:
                await agent.run("?", session="s")
            logs.append([(r.seq, r.data, r.hash) for r in await store.read("s")])
        assert logs[0] == logs[1]

    asyncio.run(main())


def test_the_time_of_a_tool_is_counted_from_its_early_start():
    async def main():
        provider = Holding("openai_responses", [call_reply(("look", {})), text_reply("went on")])

        @tool(effect="read", timeout=0.01)
        async def look() -> str:
            """Look until told to stop; only then can the reply end."""
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                provider.gate.set()

        seen = await collect_events(Agent(provider.line(), tools=[look]))
        result = seen[-1].result
        assert (result.text, result.messages[2].results[0].outcome) == ("went on", "timeout")

    asyncio.run(main())
