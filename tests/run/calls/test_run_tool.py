"""Running one call: a result within the deadline, whatever the tool does."""

import asyncio

import pytest

from bridle import Agent, Budget, Text, tool
from bridle.ports.tool import is_deadline_cancel
from bridle.run.calls import run_tool
from bridle.testing import FakeClock, scripted
from bridle.testing.scripted_model import call_reply
from bridle.values.events import ToolStarted
from bridle.values.request import ToolSpec


class Odd(BaseException):
    pass


class Mute(Exception):
    def __str__(self):
        raise RuntimeError("not even this")


RAISED = [KeyboardInterrupt(), SystemExit(3), GeneratorExit(), Odd("x"), Mute(), ValueError("\ud800"), StopIteration(),
          asyncio.CancelledError(), BaseExceptionGroup("g", [Odd()])]  # fmt: skip


@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("kind", ["async", "sync"])
def test_any_exception_of_a_tool_is_a_result(error, kind):
    async def boom_async() -> str:
        """Fail."""
        raise error

    def boom_sync() -> str:
        """Fail."""
        raise error

    made = tool(boom_async if kind == "async" else boom_sync, name="boom")
    agent = Agent(scripted(call_reply(("boom", {})), "still here"), tools=[made])
    for _ in range(2):
        result = agent.run_sync("?")
        assert (result.text, result.messages[2].results[0].outcome) == ("still here", "error")


@pytest.mark.parametrize("given", ["words", ["words"], None, 5, [Text(text="ok"), "words"]])
def test_a_tool_of_foreign_make_must_give_parts(given):
    class Foreign:
        spec = ToolSpec(name="foreign")

        async def run(self, arguments, context):
            return given

    agent = Agent(scripted(call_reply(("foreign", {})), "ok"), tools=[Foreign()])
    first = agent.run_sync("?", session="s")
    assert "Text and Media" in first.messages[2].results[0].text
    assert asyncio.run(agent.store.read("s"))


def test_a_tool_that_ignores_its_end_is_left_behind(monkeypatch):
    monkeypatch.setattr(run_tool, "GRACE_SECONDS", 0.01)

    async def main():
        release, swallowed = asyncio.Event(), []

        @tool(timeout=0.01)
        async def stubborn() -> str:
            """Never mind."""
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    swallowed.append(1)
            return "too late"

        result = await Agent(scripted(call_reply(("stubborn", {})), "went on"), tools=[stubborn]).run("?")
        assert (result.text, result.messages[2].results[0].outcome) == ("went on", "timeout")
        assert swallowed
        release.set()
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))

    asyncio.run(main())


def test_the_runs_time_is_up_for_stubborn_tools_too(monkeypatch):
    monkeypatch.setattr(run_tool, "GRACE_SECONDS", 0.01)

    async def main():
        release = asyncio.Event()

        @tool(timeout=None)
        async def stubborn() -> str:
            """Never mind."""
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    continue
            return ""

        agent = Agent(
            scripted(call_reply(("stubborn", {})), "x"), tools=[stubborn], budget=Budget(seconds=0.02)
        )
        assert (await agent.run("?")).stop == "seconds"
        release.set()
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))

    asyncio.run(main())


def test_nothing_is_begun_when_there_is_no_time_left():
    ran = []

    class SlowStore:
        """Writing the intent took as long as there was."""

        def on_event(self, session, happening):
            if isinstance(getattr(happening, "event", None), ToolStarted):
                clock.advance(100.0)

    @tool(effect="write")
    def pay() -> str:
        """Pay."""
        ran.append(1)
        return "paid"

    clock = FakeClock()
    agent = Agent(
        scripted(call_reply(("pay", {})), "x"), tools=[pay], clock=clock, watchers=[SlowStore()],
        budget=Budget(seconds=50),
    )  # fmt: skip
    result = agent.run_sync("?")
    assert (result.stop, ran) == ("seconds", [])
    assert result.messages[2].results[0].text == run_tool.NOT_STARTED_IN_TIME


def test_words_of_a_tool_about_its_end_are_kept():
    @tool(timeout=0.01)
    async def counting() -> str:
        """Count."""
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError as error:
            assert is_deadline_cancel(error)
            raise TimeoutError("it had come to 7") from None

    result = Agent(scripted(call_reply(("counting", {})), "x"), tools=[counting]).run_sync("?")
    told = result.messages[2].results[0]
    assert (told.outcome, told.text) == ("timeout", "no result within 0.01 seconds; it had come to 7")


def test_what_came_just_after_the_deadline_has_happened():
    @tool(timeout=0.01)
    async def late() -> str:
        """Finish while being stopped."""
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            return "booked after all"

    result = Agent(scripted(call_reply(("late", {})), "x"), tools=[late]).run_sync("?")
    told = result.messages[2].results[0]
    assert (told.outcome, told.text) == ("ok", "booked after all")
