"""Cancellation at any point, over real sockets: nothing stays open, nothing is lost, the transcript is valid.

The server is the simulator behind a plain socket that says a part of its answer and then waits until the
other side is gone, and notes when that was.
"""

import asyncio
import random
import statistics
import threading
import time
from collections import Counter

import pytest
from msgspec.structs import replace

from bridle import Agent, Budget, FinalAnswer, tool
from bridle.ports.transport import OutgoingRequest
from bridle.providers import load_codec
from bridle.run.model_connection import ModelConnection
from bridle.sim.simulator import Simulator
from bridle.stores import open_store
from bridle.stores.memory import MemoryStore
from bridle.transports.http import HttpTransport, close_all
from bridle.values import events as e
from tests.sim.sim_families import FAMILIES, MODELS
from tests.suite.campaign import SCALE, list_seeds, scale
from tests.suite.patience import PATIENCE_SECONDS
from tests.transports.local_server import Server, list_open_files

CLOSED_SECONDS = 0.1
WORDS = " ".join(f"word{n}" for n in range(40))
WAYS = ("cancel", "task", "leave", "deadline")


class Cutting:
    """Answers of the simulator, up to a point."""

    def __init__(self, simulator):
        self._simulator = simulator
        self._dice = random.Random(7)
        self.server = None
        self.whole = True
        self.loop, self.said = asyncio.get_running_loop(), asyncio.Event()
        self.closed_at, self.closed = 0.0, threading.Event()

    async def answer(self, reader, writer):
        timeline = await self._simulator.answer(_parse_request(self.server.requests[-1]))
        head = [f"HTTP/1.1 {timeline.status} OK", "transfer-encoding: chunked"]
        head += [f"{name}: {value}" for name, value in timeline.headers]
        body = "\r\n".join(head).encode() + b"\r\n\r\n"
        for beat in timeline.steps:
            body += b"%x\r\n%b\r\n" % (len(beat), beat)
        body += b"0\r\n\r\n"
        if self.whole:
            writer.write(body)
            return
        writer.write(body[: self._dice.randrange(len(body))])
        await writer.drain()
        self.loop.call_soon_threadsafe(self.said.set)
        try:
            await reader.read()
        finally:
            self.closed_at = time.monotonic()
            self.closed.set()
        raise ConnectionError

    def begin(self):
        self.whole = False
        self.said.clear()
        self.closed.clear()


def _parse_request(request):
    head, _, body = request.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    method, path, _ = first.split(" ")
    return OutgoingRequest(
        method=method, url=path, headers=tuple(tuple(line.split(": ", 1)) for line in lines), body=body
    )


def line_to(family, server):
    model = MODELS[family]
    endpoint = replace(model.endpoint, app="", base_url=server.url.removesuffix("/v1/messages"))
    return ModelConnection(
        model=replace(model, endpoint=endpoint), codec=load_codec(endpoint.family), transport=HttpTransport()
    )


async def turns(count):
    for _ in range(count):
        await asyncio.sleep(0)


async def cancel_run(agent, session, way, cutting, dice):
    """One run ended one way, at a random moment after the server said what it would; when that was."""
    budget = Budget(seconds=0.01) if way == "deadline" else None
    stream = agent.stream(f"!think A while.\n!say {WORDS}", session, budget=budget)
    if way == "leave":
        events = aiter(stream)
        leaving = asyncio.create_task(_look(events))
        await cutting.said.wait()
        await turns(dice.randrange(8))
        at = time.monotonic()
        leaving.cancel()
        await asyncio.wait((leaving,))
        await events.aclose()
    elif way == "task":
        task = asyncio.create_task(agent.run(f"!say {WORDS}", session))
        await cutting.said.wait()
        await turns(dice.randrange(8))
        at = time.monotonic()
        task.cancel()
        await asyncio.wait((task,))
    elif way == "cancel":
        run = stream.start()
        await cutting.said.wait()
        await turns(dice.randrange(8))
        at = time.monotonic()
        run.cancel()
        assert (await run.result()).stop == "cancelled"
    else:
        result = await stream.start().result()
        assert result.stop == "seconds"
        at = time.monotonic()
    return at


async def _quiet(server):
    """Until every connection is closed on both sides."""
    await close_all()
    server.wait_until(lambda server: server.open == 0)
    for _ in range(3):  # what is closed is let go of in the loop's next turn
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), server._loop).result(PATIENCE_SECONDS)


async def _look(events):
    async for _ in events:
        pass


def test_cancels_at_random_points(tmp_path):
    async def main():
        cutting = Cutting(Simulator())
        cutting.server = server = Server(cutting.answer)
        store = open_store(tmp_path / "log.db")
        dice, delays, seed = random.Random(1), [], 0
        try:
            agents = {family: Agent(line_to(family, server), store=store) for family in FAMILIES}
            for family, agent in agents.items():
                assert (await agent.run("!say warm", f"{family} warm")).done
            await _quiet(server)
            tasks, files = len(asyncio.all_tasks()), list_open_files()
            for seed in list_seeds(60):
                family, way = FAMILIES[seed % len(FAMILIES)], WAYS[seed // len(FAMILIES) % len(WAYS)]
                session = f"{family} {seed}"
                cutting.begin()
                at = await cancel_run(agents[family], session, way, cutting, dice)
                if cutting.said.is_set():
                    assert await asyncio.to_thread(cutting.closed.wait, PATIENCE_SECONDS), (family, way, seed)
                    delays.append(cutting.closed_at - at)
                cutting.whole = True
                await _is_legal(agents[family], store, session)
            await _quiet(server)
            assert (len(asyncio.all_tasks()), list_open_files() - files) == (tasks, Counter())
        finally:
            server.close()
            await store.close()
        return delays

    delays = sorted(asyncio.run(main()))
    ms = [round(delay * 1000, 2) for delay in delays]
    print(
        f"{len(ms)} sockets closed: median {ms[len(ms) // 2]} ms, 99% {ms[len(ms) * 99 // 100]} ms, all {ms[-1]} ms"
    )
    assert len(delays) > scale(40)
    # How long the slowest takes is the machine's say as well, so it is a campaign's to ask.
    assert (delays[-1] if SCALE > 1 else statistics.median(delays)) < CLOSED_SECONDS


async def _is_legal(agent, store, session):
    """The end is on disk, with what was said and what there is to pay for; and the next turn works."""
    ended = next(record.event for record in reversed(await store.read(session)))
    assert isinstance(ended, e.RunEnded)
    failed = [record.event for record in await store.read(session) if isinstance(record.event, e.ModelFailed)]
    usages = [event.usage for event in (ended, *failed) if event.usage is not None]  # type: ignore[attr-defined]
    assert all(usage.incomplete for usage in usages)
    assert len(usages) == 1, (ended, failed)
    said = ended.partial_text.strip()
    assert WORDS.startswith(said)
    result = await agent.run("!say on", session)
    assert result.done
    if said:
        assert said in [message.text for message in result.messages]


@pytest.mark.parametrize("family", FAMILIES)
def test_what_was_shown_is_what_is_kept(family):
    """A viewer saw it, so the model hears of it, marked as cut off; and what was counted is booked."""

    async def main():
        cutting = Cutting(Simulator())
        cutting.server = server = Server(cutting.answer)
        try:
            agent = Agent(line_to(family, server))
            kept = 0
            for seed in range(8):
                cutting.begin()
                run = agent.stream(f"!say {WORDS}", f"s{seed}").start()
                looking = asyncio.create_task(_all(run.view(None)))
                await cutting.said.wait()
                await turns(50)
                run.cancel()
                *seen, final = await looking
                assert isinstance(final, FinalAnswer)
                shown = "".join(event.text for event in seen)
                ended = seen[-1]
                assert ended.partial_text == shown
                assert ended.usage.incomplete
                assert final.result.usage.incomplete
                if shown.strip():
                    kept += 1
                    last = final.result.messages[-1]
                    assert (last.role, last.text, last.stop) == ("assistant", shown.strip(), "other")
            assert kept
        finally:
            server.close()
            await close_all()

    asyncio.run(main())


async def _all(view):
    return [event async for event in view]


def test_tools_are_stopped_and_answered_once(tmp_path):
    """Two that run, one that cleans up, one that never begins: each has one result, and it says which."""
    stopped = []

    async def main():
        both = asyncio.Barrier(3)

        @tool(effect="read")
        async def hang(name: str) -> str:
            """Wait for ever."""
            try:
                await both.wait()
                await asyncio.Event().wait()
            finally:
                stopped.append(name)

        @tool(effect="write")
        async def pay() -> str:
            """Pay."""
            raise AssertionError("it waits for those before it")

        store = open_store(tmp_path / "log.db")
        agent = Agent("sim:", tools=[hang, pay], store=store)
        prompt = '!call hang {"name": "a"}\n!call hang {"name": "b"}\n!call pay'
        run = agent.stream(prompt, "s", deltas=False).start()
        await both.wait()
        run.cancel()
        result = await run.result()
        assert sorted(stopped) == ["a", "b"]
        assert [part.outcome for message in result.messages for part in message.results] == [
            "unknown",
            "unknown",
            "cancelled",
        ]
        assert (await agent.run("!say on", "s")).done
        await store.close()

    asyncio.run(main())


STORY = '!say Let me see.\n!call look {"city": "Oslo"}\n!call note {"text": "rain"}\n!then\n!say Rain.'


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("deltas", [True, False])
def test_cancelled_at_every_turn_of_the_loop(family, deltas):
    """One turn later each time, until there is nothing left to cancel."""

    @tool(effect="read")
    async def look(city: str) -> str:
        """Look at a city."""
        await turns(3)
        return f"rain in {city}"

    @tool(effect="write")
    async def note(text: str) -> str:
        """Write something down."""
        await turns(3)
        return "noted"

    async def main():
        count, stop = 0, ""
        while stop != "done":
            store = MemoryStore()
            agent = Agent(f"sim:{family}/{MODELS[family].id}", tools=[look, note], store=store)
            run = agent.stream(STORY, "s", deltas=deltas).start()
            await turns(count)
            run.cancel()
            stop = (await run.result()).stop
            assert stop in ("cancelled", "done")
            before = [record.event for record in await store.read("s")]
            assert (
                stop == "done" or not before or isinstance(before[-1], e.RunEnded | e.Configured | e.Prompted)
            )
            result = await agent.run("!say on", "s")
            assert result.done, (count, result.reason)
            results = [part.call_id for message in result.messages for part in message.results]
            assert results == [call.id for message in result.messages for call in message.calls], count
            receipts = [event.result.call_id for event in before if isinstance(event, e.ToolFinished)]
            assert len(receipts) == len(set(receipts))
            assert len(asyncio.all_tasks()) == 1
            count += 1
        assert count > 10

    asyncio.run(main())
