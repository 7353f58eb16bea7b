"""Several viewers of one run: each at its own pace, without slowing the run."""

import asyncio
import gc

import pytest

from bridle import Agent, FinalAnswer, MisuseError, TextDelta, Thinking, tool
from bridle.events import AttemptRestarted, DeltasSkipped, ReasoningDelta, ToolCallDelta
from bridle.run.context.shown_deltas import ViewerBuffers
from bridle.stores.memory import MemoryStore
from bridle.testing import scripted, simulator
from bridle.testing.fake_clock import FakeClock
from bridle.testing.scripted_model import call_reply
from bridle.values import events as e
from tests.sim.sim_families import FAMILIES, MODELS
from tests.suite.growth import LINEAR_MAX, assert_growth

WORDS = " ".join(f"word{n}" for n in range(300))


def gate():
    """A tool that waits to be let through."""
    entered, leave = asyncio.Event(), asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        entered.set()
        await leave.wait()
        return "through"

    return wait, entered, leave


async def all_of(view):
    return [event async for event in view]


def test_every_viewer_sees_the_same_run():
    async def main():
        run = Agent("sim:").stream(f"!say {WORDS}").start()
        first, second = await asyncio.gather(all_of(run.view()), all_of(run.view()))
        assert first == second
        assert "".join(event.text for event in first) == WORDS
        assert isinstance(first[-1], FinalAnswer)
        assert first[-1].result == await run.result()
        assert await all_of(run.view()) == [first[-1]], "who comes after the end is told the end"

    asyncio.run(main())


def test_leaving_a_view_ends_nothing():
    async def main():
        wait, entered, leave = gate()
        run = Agent(scripted(call_reply(("wait", {})), "after all"), tools=[wait]).stream("?").start()
        async for _ in run.view():
            break
        gave_up = asyncio.create_task(run.result())
        looker = asyncio.create_task(all_of(run.view()))
        await entered.wait()
        for task in (gave_up, looker):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        late = asyncio.create_task(all_of(run.view()))
        await asyncio.sleep(0)
        leave.set()
        assert (await run.result()).text == "after all"
        seen = [type(event) for event in await late]
        assert seen[0] is e.ToolFinished
        assert seen[-2:] == [e.RunEnded, FinalAnswer]

    asyncio.run(main())


def test_cancel_is_seen_by_all():
    async def main():
        wait, entered, _ = gate()
        store = MemoryStore()
        agent = Agent(scripted(call_reply(("wait", {}), text="Hm. "), "later"), tools=[wait], store=store)
        run = agent.stream("?", session="s").start()
        views = [asyncio.create_task(all_of(run.view())) for _ in range(3)]
        await entered.wait()
        run.cancel()
        run.cancel()
        for seen in await asyncio.gather(*views):
            assert seen[-1].result.stop == "cancelled"
            assert isinstance(seen[-2], e.RunEnded)
        assert (await run.result()).stop == "cancelled"
        assert run.session == "s"
        assert len(asyncio.all_tasks()) == 1
        assert (await agent.run("go on", session="s")).text == "later"

    asyncio.run(main())


def test_cancelled_before_it_began():
    async def main():
        run = Agent(scripted("x")).stream("?").start()
        run.cancel()
        assert (await run.result()).stop == "cancelled"

    asyncio.run(main())


def test_a_run_without_a_reference_goes_on():
    async def main():
        wait, entered, leave = gate()
        store = MemoryStore()
        Agent(scripted(call_reply(("wait", {})), "done"), tools=[wait], store=store).stream("?", "s").start()
        await entered.wait()
        gc.collect()
        leave.set()
        while not isinstance((await store.read("s"))[-1].event, e.RunEnded):
            await asyncio.sleep(0)
        assert (await store.read("s"))[-1].event.stop == "done"

    asyncio.run(main())


def test_a_program_that_ends_ends_its_runs_legally():
    store = MemoryStore()

    async def main():
        wait, entered, _ = gate()
        Agent(scripted(call_reply(("wait", {})), "x"), tools=[wait], store=store).stream("?", "s").start()
        await entered.wait()

    asyncio.run(main())
    assert asyncio.run(store.read("s"))[-1].event.stop == "cancelled"


def test_what_went_wrong_reaches_every_viewer():
    class Broken(MemoryStore):
        async def append(self, session, after, records, *, epoch=None):
            raise OSError("no space left")

    async def main():
        run = Agent(scripted("x"), store=Broken()).stream("?").start()
        for outcome in (all_of(run.view()), all_of(run.view()), run.result()):
            with pytest.raises(OSError, match="no space left"):
                await outcome

    asyncio.run(main())


def test_one_run_a_stream():
    async def main():
        stream = Agent(scripted("x")).stream("?")
        run = stream.start()
        with pytest.raises(MisuseError, match="already started"):
            stream.start()
        with pytest.raises(MisuseError, match="once"):
            await anext(aiter(stream))
        await run.result()

    asyncio.run(main())


def test_who_falls_behind_loses_pieces_and_is_told_and_no_event():
    async def main():
        run = Agent("sim:").stream(f"!say {WORDS}").start()
        slow, eager, fast = run.view(10), run.view(None), run.view(None)
        quick = asyncio.create_task(all_of(fast))
        await run.result()
        seen, everything = await all_of(slow), await all_of(eager)
        assert everything == await quick, "nobody is held up by the slow one"
        pieces = [event for event in seen if isinstance(event, TextDelta)]
        (gap,) = [event for event in seen if isinstance(event, DeltasSkipped)]
        lost = [event for event in everything if isinstance(event, TextDelta)][10:]
        assert (len(pieces), gap.count) == (10, len(lost))
        assert seen.index(gap) == seen.index(pieces[-1]) + 1
        kept = [event for event in everything if event not in lost]
        assert [event for event in seen if event != gap] == kept
        assert [event.reply.text for event in seen if isinstance(event, e.ModelReplied)] == [WORDS]

    asyncio.run(main())


def test_a_gap_closes_when_half_of_what_waited_is_taken():
    viewers = ViewerBuffers()
    buffer = viewers.add_viewer(4)
    for n in range(7):
        viewers.on_event("s", TextDelta(text=str(n)))
    assert [buffer.take().text for _ in range(2)] == ["0", "1"]
    viewers.on_event("s", TextDelta(text="7"))
    viewers.on_event("s", TextDelta(text="8"))
    left = [buffer.take() for _ in range(len(buffer))]
    assert left == [TextDelta(text="2"), TextDelta(text="3"), DeltasSkipped(count=3)] + [
        TextDelta(text=word) for word in "78"
    ]


def test_a_gap_at_the_end_shows_too():
    viewers = ViewerBuffers()
    buffer = viewers.add_viewer(1)
    for n in range(3):
        viewers.on_event("s", TextDelta(text=str(n)))
    assert [buffer.take(), buffer.take()] == [TextDelta(text="0"), DeltasSkipped(count=2)]
    assert not buffer


def test_a_long_backlog_is_taken_in_linear_time():
    def prepare(size):
        buffer = ViewerBuffers().add_viewer(None)
        buffer.put_all([TextDelta(text="x")] * size)

        def take_all():
            taken = 0
            while buffer:
                buffer.take()
                taken += 1
            assert taken == size and not buffer.items

        return take_all

    assert_growth(prepare, 30_000, 180_000, LINEAR_MAX)


def test_items_are_taken_in_order_while_others_arrive():
    buffer, taken = ViewerBuffers().add_viewer(None), []
    for n in range(50):
        buffer.put_all([TextDelta(text=f"{n}a"), TextDelta(text=f"{n}b")])
        taken += [buffer.take().text for _ in range(1 + n % 2) if buffer]
    while buffer:
        taken.append(buffer.take().text)
    assert taken == [f"{n}{letter}" for n in range(50) for letter in "ab"]


def test_that_a_reply_begins_again_is_never_lost():
    viewers = ViewerBuffers()
    buffer = viewers.add_viewer(1)
    again = AttemptRestarted(attempt=2, reason="cut")
    for item in (TextDelta(text="a"), TextDelta(text="b"), again, TextDelta(text="c")):
        viewers.on_event("s", item)
    assert [buffer.take() for _ in range(3)] == [TextDelta(text="a"), DeltasSkipped(count=1), again]


def test_who_left_is_forgotten():
    viewers = ViewerBuffers()
    buffer = viewers.add_viewer(10)
    viewers.on_event("s", TextDelta(text="x"))
    assert len(viewers._buffers) == 1
    del buffer
    gc.collect()
    viewers.on_event("s", TextDelta(text="y"))
    assert not viewers._buffers


@pytest.mark.parametrize("family", FAMILIES)
def test_one_vocabulary_for_every_family(family):
    """Text, reasoning, arguments as they come, the life of a call, an attempt made again, usage, the end."""

    @tool(effect="read")
    def look(city: str) -> str:
        """Look at a city."""
        return f"rain in {city}"

    async def main():
        async with simulator(clock=(clock := FakeClock())) as provider:
            model = MODELS[family]
            thinking = (
                Thinking(mode=model.abilities.thinking[0], display="summarized")
                if model.abilities.thinking
                else None
            )
            agent = Agent(provider.model(model), tools=[look], thinking=thinking, clock=clock)
            prompt = '!error 503\n!think hard enough\n!say Let me see.\n!call look {"city": "Oslo"}\n!then\n!say Rain.'
            seen = await all_of(agent.stream(prompt).start().view())
        kinds = {type(event) for event in seen}
        assert kinds >= {TextDelta, ToolCallDelta, AttemptRestarted, FinalAnswer}
        assert kinds >= {
            e.ModelAsked,
            e.ModelFailed,
            e.ModelReplied,
            e.ToolStarted,
            e.ToolFinished,
            e.RunEnded,
        }
        assert (ReasoningDelta in kinds) == (thinking is not None)
        attempts = [event.attempt for event in seen if isinstance(event, e.ModelAsked)]
        assert attempts[:2] == [1, 2]
        preview = "".join(event.arguments for event in seen if isinstance(event, ToolCallDelta))
        replies = [event.reply for event in seen if isinstance(event, e.ModelReplied)]
        assert preview == replies[0].calls[0].arguments
        assert all(reply.usage.input and reply.usage.output for reply in replies)
        assert "".join(event.text for event in seen) == "".join(reply.text for reply in replies)

    asyncio.run(main())
