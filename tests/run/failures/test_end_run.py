"""A tool ends the run: `raise EndRun(answer)` or `raise EndRun(failed="why")`."""

import asyncio
from dataclasses import dataclass

import pytest

from bridle import Agent, Budget, EndRun, MisuseError, RunContext, ToolCall, ToolResult, hooks, tool
from bridle.hooks import Change, FinishedRun, Refuse
from bridle.stores.memory import MemoryStore
from bridle.testing import call_reply, scripted
from bridle.values.events import RunEnded, ToolFinished, ToolStarted


@dataclass
class Verdict:
    allowed: bool
    why: str


@tool(effect="read")
def decide(word: str) -> str:
    """Decide."""
    raise EndRun(f"decided: {word}")


@tool(effect="write")
def lock(word: str) -> str:
    """Lock."""
    raise EndRun(failed="the account is locked")


@tool
def judge(word: str) -> str:
    """Judge."""
    raise EndRun(Verdict(allowed=True, why=word))


CALL = {"word": "x"}


def make_agent(name, *replies, **options):
    script = scripted(call_reply((name, CALL)), *(replies or ("never asked",)))
    return Agent(script, tools=[decide, lock, judge], store=MemoryStore(), **options), script.script


def test_an_answer_of_a_tool_ends_the_run_without_another_request():
    agent, script = make_agent("decide")
    result = agent.run_sync("Go.")
    assert (result.stop, result.text, result.output) == ("done", "decided: x", "decided: x")
    assert len(script.requests) == 1


def test_a_failure_of_a_tool_ends_the_run_as_failed_with_its_reason():
    agent, script = make_agent("lock")
    result = agent.run_sync("Go.")
    assert (result.stop, result.reason, result.output) == ("failed", "the account is locked", None)
    assert len(script.requests) == 1


def test_the_answer_may_be_of_the_output_type():
    agent, _ = make_agent("judge", output=Verdict)
    assert agent.run_sync("Go.").output == Verdict(allowed=True, why="x")


@pytest.mark.parametrize(("name", "options"), [("judge", {}), ("decide", {"output": Verdict})])
def test_an_answer_of_another_type_ends_the_run_as_failed(name, options, caplog):
    agent, script = make_agent(name, **options)
    result = agent.run_sync("Go.")
    assert (result.stop, len(script.requests)) == ("failed", 1)
    assert "answer that cannot be used" in result.reason
    assert "test_end_run.py" in caplog.text


@pytest.mark.parametrize("reason", ["", "  "])
def test_a_failure_without_a_reason_is_a_failure(reason):
    @tool(effect="read")
    def give_up() -> str:
        """Give up."""
        raise EndRun(failed=reason)

    agent = Agent(scripted(call_reply(("give_up", {})), "never asked"), tools=[give_up], store=MemoryStore())
    result = agent.run_sync("Go.")
    assert (result.stop, result.reason) == ("failed", "the tool gave no reason")


def test_a_repeated_call_ends_the_run_as_the_first_one_did():
    ran = []

    @tool(effect="write", once_per="session")
    def close() -> str:
        """Close."""
        ran.append(1)
        raise EndRun("closed")

    call = call_reply(("close", {}))
    agent = Agent(scripted(call, call, "never asked"), tools=[close], store=MemoryStore())
    assert [agent.run_sync("Go.", "s").text, agent.run_sync("Again.", "s").text] == ["closed", "closed"]
    assert ran == [1]


def test_a_hook_that_withholds_the_result_withholds_the_answer():
    @hooks.after_tool()
    def withhold(run: RunContext, call: ToolCall, result: ToolResult):
        return Refuse(reason="not this")

    agent, _ = make_agent("decide", hooks=[withhold])
    result = agent.run_sync("Go.")
    assert (result.stop, "decided" in result.text) == ("failed", False)
    assert "not this" in result.reason


def test_other_calls_of_the_reply_are_not_started():
    ran = []

    @tool(effect="write")
    def pay(amount: int) -> str:
        """Pay."""
        ran.append(amount)
        return "paid"

    script = scripted(call_reply(("lock", CALL), ("pay", {"amount": 5})), "never asked")
    agent = Agent(script, tools=[lock, pay], store=MemoryStore())
    assert agent.run_sync("Go.").stop == "failed"
    assert ran == []


def test_calls_that_are_running_end_first():
    async def run():
        may_end = asyncio.Event()

        @tool(effect="read")
        async def slow(word: str) -> str:
            """Slow."""
            await may_end.wait()
            return "slow result"

        @tool(effect="read")
        async def stop(word: str) -> str:
            """Stop."""
            may_end.set()
            raise EndRun("the answer")

        script = scripted(call_reply(("slow", CALL), ("stop", CALL)), "never asked")
        return await Agent(script, tools=[slow, stop], store=MemoryStore()).run("Go.")

    result = asyncio.run(run())
    assert (result.stop, result.text) == ("done", "the answer")
    assert result.messages[2].results[0].text == "slow result"


def test_the_session_goes_on_with_the_next_prompt():
    agent, script = make_agent("lock", "Something else.")
    first = agent.run_sync("Go.")
    assert agent.run_sync("And now?", session=first.session).text == "Something else."
    assert len(script.requests) == 2


def test_a_run_that_a_tool_failed_is_resumed_with_the_model():
    agent, _ = make_agent("lock", "All right.")
    first = agent.run_sync("Go.")
    assert agent.resume_sync(first.session).text == "All right."


def test_a_crash_before_the_end_was_recorded_does_not_lose_the_conclusion():
    agent, script = make_agent("decide")
    store = agent.store
    session = agent.run_sync("Go.").session

    async def cut_and_resume():
        records = await store.read(session)
        cut = next(each.seq for each in records if isinstance(each.event, ToolFinished))
        shorter = MemoryStore()
        await shorter.append(session, 0, records[:cut])
        again = Agent(scripted("asked again"), tools=[decide, lock, judge], store=shorter)
        return await again.resume(session)

    result = asyncio.run(cut_and_resume())
    assert (result.stop, result.text) == ("done", "decided: x")
    assert len(script.requests) == 1


def test_an_agent_used_as_a_tool_ends_alone():
    inner, _ = make_agent("decide")
    outer = Agent(
        scripted(call_reply(("helper", {"prompt": "Go."})), "It said so."),
        tools=[inner.as_tool("helper")],
        store=MemoryStore(),
    )
    result = outer.run_sync("Ask the helper.")
    assert (result.text, result.messages[2].results[0].text) == ("It said so.", "decided: x")


def test_a_hook_after_the_tool_does_not_lose_the_end():
    seen = []

    @hooks.after_tool()
    def hide(run: RunContext, call: ToolCall, result: ToolResult):
        seen.append(result.text)
        return Change(text="hidden")

    agent, _ = make_agent("decide", hooks=[hide])
    result = agent.run_sync("Go.")
    assert (result.text, result.messages[2].results[0].text) == ("decided: x", "hidden")
    assert len(seen) == 1


def test_a_hook_at_the_end_judges_the_answer_of_a_tool():
    @hooks.on_end()
    def change(run: RunContext, finished: FinishedRun):
        return Change(text=finished.answer.replace("x", "[removed]"))

    agent, _ = make_agent("decide", hooks=[change])
    assert agent.run_sync("Go.").text == "decided: [removed]"

    @hooks.on_end()
    def refuse(run: RunContext, finished: FinishedRun):
        return Refuse(reason="not this")

    agent, _ = make_agent("decide", hooks=[refuse])
    result = agent.run_sync("Go.")
    assert (result.stop, "decided" in result.text) == ("refused", False)


def test_the_log_says_which_call_ended_the_run():
    agent, _ = make_agent("decide")
    session = agent.run_sync("Go.").session
    events = [record.event for record in asyncio.run(agent.store.read(session))]
    finished = next(each for each in events if isinstance(each, ToolFinished))
    assert finished.conclusion is not None
    assert finished.conclusion.text == "decided: x"
    assert sum(isinstance(each, ToolStarted) for each in events) == 1
    assert isinstance(events[-1], RunEnded)


def test_an_answer_and_a_failure_at_once_are_refused():
    with pytest.raises(MisuseError, match="either"):
        EndRun("answer", failed="why")
    with pytest.raises(MisuseError, match="either"):
        EndRun()
    with pytest.raises(MisuseError, match="as text"):
        EndRun(failed=True)  # type: ignore[arg-type]


def test_a_limit_of_the_run_still_counts_what_was_spent():
    agent, _ = make_agent("decide", budget=Budget(steps=3))
    assert agent.run_sync("Go.").steps == 1
