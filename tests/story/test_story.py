"""One run, told end to end: cut after every event, crashed at random, streamed or not."""

import asyncio
import random

import pytest

from bridle import Agent, Budget, FinalAnswer, TextDelta, tool
from bridle.core.loop import apply_event
from bridle.core.state import Phase, State
from bridle.stores.memory import MemoryStore
from bridle.testing import FakeClock, scripted
from bridle.testing.scripted_model import call_reply
from bridle.values import events as e
from bridle.values.errors import Failure

SEEDS = 300
SCRIPT = (
    call_reply(
        ("add", {"a": 2, "b": 3}),
        ("pay", {"amount": 5}),
        ("add", {"a": 1}),
        ("ghost", {}),
        text="Let me see. ",
    ),
    call_reply(("pay", {"amount": 7}), ("boom", {})),
    "All done: five.",
)


class World:
    """Tools that remember how often they really ran."""

    def __init__(self):
        self.paid = []
        self.added = 0

    def tools(self):
        @tool(effect="read")
        async def add(a: int, b: int) -> int:
            """Add."""
            self.added += 1
            return a + b

        @tool
        async def pay(amount: int) -> str:
            """Pay."""
            self.paid.append(amount)
            return f"paid {amount}"

        @tool
        def boom() -> str:
            """Fail."""
            raise RuntimeError("no")

        return [add, pay, boom]


def fold(records):
    state = State()
    for record in records:
        state = apply_event(state, record.event, record.at, record.hash)
    return state


def agent(world, store, script=SCRIPT, model="", **more):
    return Agent(scripted(*script, model=model), tools=world.tools(), store=store, clock=FakeClock(), **more)


def test_a_run():
    world, store = World(), MemoryStore()
    result = agent(world, store).run_sync("hello", session="s")
    assert (result.text, result.stop) == ("All done: five.", "done")
    assert world.paid == [5, 7]
    outcomes = [r.outcome for m in result.messages for r in m.results]
    assert outcomes == ["ok", "ok", "invalid", "invalid", "ok", "error"]
    assert result.steps == 3
    assert result.usage.total > 100


def test_a_session_goes_on_in_another_agent():
    store = MemoryStore()
    first = agent(World(), store).run_sync("hello")
    second = agent(World(), store, script=(*SCRIPT, "And again.")).run_sync("more", session=first.session)
    assert second.text == "And again."
    assert len(second.messages) == len(first.messages) + 2


def test_streamed_and_whole_runs_leave_the_same_log():
    async def main():
        logs, seen = [], []
        for stream in (False, True):
            store = MemoryStore()
            subject = agent(World(), store, model="sim:")  # not every wire streams the same parts
            if stream:
                async for event in subject.stream("hello", session="s"):
                    seen.append(event)
            else:
                await subject.run("hello", session="s")
            logs.append([(r.seq, r.at, r.data, r.hash) for r in await store.read("s")])
        assert logs[0] == logs[1]
        assert "".join(x.text for x in seen) == "Let me see. All done: five."
        assert isinstance(seen[-1], FinalAnswer)
        assert any(isinstance(x, TextDelta) for x in seen)
        assert [x for x in seen if isinstance(x, e.Event)] == [r.event for r in await store.read("s")]

    asyncio.run(main())


async def whole_log():
    store = MemoryStore()
    await agent(World(), store).run("hello", session="s")
    return await store.read("s")


LENGTH = len(asyncio.run(whole_log()))


@pytest.mark.parametrize("cut", range(2, LENGTH + 1))
def test_cut_after_any_event_and_resumed(cut):
    """The resumed run reaches the same words and runs nothing that was finished or may have happened."""

    async def main():
        records = (await whole_log())[:cut]
        store = MemoryStore()
        await store.append("s", 0, records)
        world = World()
        result = await agent(world, store).resume("s")
        assert (result.text, result.stop) == ("All done: five.", "done")
        started = {r.event.call_id for r in records if isinstance(r.event, e.ToolStarted)}
        before = [amount for call_id, amount in (("c1_1", 5), ("c2_0", 7)) if call_id in started]
        assert world.paid == [amount for amount in (5, 7) if amount not in before]
        assert_legal(await store.read("s"))

    asyncio.run(main())


def assert_legal(records):
    """One result for each call, receipts never repeated, and the state is what the log says."""
    receipts = [r.event.result.call_id for r in records if isinstance(r.event, e.ToolFinished)]
    assert len(receipts) == len(set(receipts))
    state = fold(records)
    assert state.phase is Phase.IDLE
    messages = state.conversation.transcript.messages
    for index, message in enumerate(messages):
        if message.calls:
            answers = [result.call_id for result in messages[index + 1].results]
            assert answers == [c.id for c in message.calls]


class Crash(Exception):
    pass


@pytest.mark.parametrize("seed", range(SEEDS))
def test_crashes_before_and_after_writes(seed):
    """Crash at random around store writes, resume until done: same words, no payment twice."""
    rng = random.Random(seed)

    class Flaky(MemoryStore):
        async def append(self, session, after, records, *, epoch=None):
            roll = rng.random()
            if roll < 0.12:
                raise Crash
            await super().append(session, after, records, epoch=epoch)
            if roll > 0.9:
                raise Crash

    async def main():
        store, world = Flaky(), World()
        for _ in range(400):
            subject = agent(world, store)
            try:
                started = any(isinstance(r.event, e.Prompted) for r in await store.read("s"))
                result = await (subject.resume("s") if started else subject.run("hello", session="s"))
                break
            except Crash:
                continue
        assert (result.text, result.stop) == ("All done: five.", "done")
        assert sorted(world.paid) == sorted(set(world.paid))
        records = await store.read("s")
        assert_legal(records)
        unknown = [r.event.result.call_id for r in records if isinstance(r.event, e.ToolFinished)
                   and r.event.result.outcome == "unknown"]  # fmt: skip
        certain = {"c1_1": 5, "c2_0": 7}
        assert set(world.paid) >= {amount for call_id, amount in certain.items() if call_id not in unknown}

    asyncio.run(main())


def test_two_writers_are_never_merged():
    async def main():
        store = MemoryStore()
        runs = [agent(World(), store).run("hello", session="s") for _ in range(2)]
        ends = await asyncio.gather(*runs, return_exceptions=True)
        assert sorted(type(end).__name__ for end in ends) == ["Conflict", "Result"]

    asyncio.run(main())


def test_a_failing_provider_is_asked_again():
    overloaded = Failure(kind="overloaded", message="busy", status=529, retry_after_seconds=3.0)
    clock = FakeClock()
    result = Agent(scripted(overloaded, overloaded, "here"), clock=clock).run_sync("hello")
    assert result.text == "here"
    assert clock.now() >= 6


def test_a_hopeless_failure_ends_the_run_with_what_there_is():
    refused = Failure(kind="invalid", message="no such thing", status=400)
    result = Agent(scripted(call_reply(("add", {"a": 1, "b": 1})), refused), tools=World().tools()).run_sync(
        "hello"
    )
    assert (result.stop, result.reason) == ("failed", "no such thing")
    assert result.failure.status == 400
    assert [m.role for m in result.messages] == ["user", "assistant", "tool"]


def test_a_raised_limit_and_a_resume_finish_the_work():
    async def main():
        store, world = MemoryStore(), World()
        subject = agent(world, store, budget=Budget(steps=1))
        first = await subject.run("hello")
        assert first.stop == "steps"
        last = await subject.resume(first.session, budget=Budget(steps=10))
        assert (last.stop, last.text) == ("done", "All done: five.")
        assert world.paid == [5, 7]

    asyncio.run(main())


def test_a_cancelled_run_can_be_spoken_to_again():
    async def main():
        entered = asyncio.Event()

        @tool
        async def hang() -> str:
            """Wait for ever."""
            entered.set()
            await asyncio.Event().wait()

        store = MemoryStore()
        script = (call_reply(("hang", {})), "after all")
        subject = Agent(scripted(*script), tools=[hang], store=store)
        task = asyncio.create_task(subject.run("hello", session="s"))
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        state = fold(await store.read("s"))
        assert (state.phase, state.run.end.stop) == (Phase.IDLE, "cancelled")
        assert [r.outcome for r in state.conversation.transcript.messages[-1].results] == ["unknown"]
        result = await subject.run("and now?", session="s")
        assert result.text == "after all"

    asyncio.run(main())


def test_cancelled_at_every_await_the_session_stays_legal():
    """Cancel after the n-th turn of the event loop, for every n there is, and speak again."""

    async def main():
        for turns in range(200):
            store, world = MemoryStore(), World()
            task = asyncio.create_task(agent(world, store).run("hello", session="s"))
            for _ in range(turns):
                await asyncio.sleep(0)
            if task.done():
                break
            task.cancel()
            await asyncio.wait({task})
            again = agent(world, store, script=(*SCRIPT, *("more",) * 5))
            result = await again.run("go on", session="s")
            assert result.stop == "done"
            paid = [r.call_id for m in result.messages for r in m.results if r.text.startswith("paid")]
            assert len(world.paid) <= len(paid) + sum(
                r.outcome == "unknown" for m in result.messages for r in m.results
            )
            assert_legal(await store.read("s"))
        else:
            pytest.fail("the run never ended")

    asyncio.run(main())
