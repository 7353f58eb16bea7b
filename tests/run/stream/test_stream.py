"""Runs shown while they happen."""

import asyncio
import re

import pytest

from bridle import Agent, FinalAnswer, MisuseError, TextDelta, tool
from bridle.stores.memory import MemoryStore
from bridle.testing import scripted
from bridle.testing.scripted_model import call_reply
from bridle.values import events as e


def make_hanging_tool(entered):
    @tool
    async def hang() -> str:
        """Wait for ever."""
        entered.set()
        await asyncio.Event().wait()

    return hang


def test_every_event_answers_to_text():
    async def main():
        # Without tools, which not every wire lets a model call all the same.
        agent = Agent(scripted(call_reply(("ghost", {}), text="Hm. "), "It is done.", model="sim:"))
        events = [event async for event in agent.stream("?")]
        assert "".join(event.text for event in events) == "Hm. It is done."
        assert [type(event) for event in events][-2:] == [e.RunEnded, FinalAnswer]
        assert events[-1].result.text == "It is done."

    asyncio.run(main())


def test_match_works():
    async def main():
        words, ends = [], []
        async for event in Agent(scripted("one two")).stream("?"):
            match event:
                case TextDelta(text=text):
                    words.append(text)
                case FinalAnswer(result=result):
                    ends.append(result.stop)
        assert ("".join(words), ends) == ("one two", ["done"])

    asyncio.run(main())


def test_cancel_shows_the_end():
    async def main():
        entered = asyncio.Event()
        agent = Agent(
            scripted(call_reply(("hang", {}), text="Wait. "), "later"), tools=[make_hanging_tool(entered)]
        )
        stream = agent.stream("?", session="s")
        events = []
        async for event in stream:
            events.append(event)
            if isinstance(event, e.ToolStarted):
                stream.cancel()
        assert isinstance(events[-1], FinalAnswer)
        assert events[-1].result.stop == "cancelled"
        assert (await agent.run("go on", session="s")).text == "later"

    asyncio.run(main())


def test_cancelled_before_it_began():
    async def main():
        stream = Agent(scripted("x")).stream("?")
        stream.cancel()
        (only,) = [event async for event in stream]
        assert only.result.stop == "cancelled"

    asyncio.run(main())


def test_a_viewer_that_leaves_ends_the_run():
    async def main():
        entered, store = asyncio.Event(), MemoryStore()
        agent = Agent(
            scripted(call_reply(("hang", {})), "later"), tools=[make_hanging_tool(entered)], store=store
        )
        events = aiter(agent.stream("?", session="s"))
        async for event in events:
            if isinstance(event, e.ToolStarted):
                break
        await events.aclose()
        assert (await store.read("s"))[-1].event.stop == "cancelled"
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())


def test_what_went_wrong_reaches_the_viewer():
    class Broken(MemoryStore):
        async def append(self, session, after, records, *, epoch=None):
            raise OSError("no space left")

    async def main():
        with pytest.raises(OSError, match="no space left"):
            async for _ in Agent(scripted("x"), store=Broken()).stream("?"):
                pass

    asyncio.run(main())


def test_a_watcher_can_never_change_a_run(caplog):
    class Bad:
        def on_event(self, session, happening):
            raise ValueError("oops")

    assert Agent(scripted("fine"), watchers=[Bad()]).run_sync("?").text == "fine"
    (told,) = caplog.messages
    assert re.fullmatch(r"Bad raised ValueError at test_stream\.py:\d+ and was dismissed", told)


def test_a_stream_is_iterated_once():
    async def main():
        stream = Agent(scripted("x")).stream("?")
        async for _ in stream:
            pass
        with pytest.raises(MisuseError, match="once"):
            async for _ in stream:
                pass

    asyncio.run(main())


def test_the_partial_reply_of_a_cut_stream_is_kept():
    async def main():
        agent = Agent("sim:", store=(store := MemoryStore()))
        stream = agent.stream("!say one two three four five six seven eight nine ten", session="s")
        async for event in stream:
            if "three" in event.text:
                stream.cancel()
        said = (await store.read("s"))[-1].event
        assert said.stop == "cancelled"
        assert said.partial_text.startswith("one two three")
        assert "ten" not in said.partial_text
        result = await agent.run("!say go on", session="s")
        assert result.text == "go on"
        assert result.messages[1].text == said.partial_text.strip()

    asyncio.run(main())
