"""Calls that the caller runs: waiting, resuming with results, restarting, forking, replaying."""

import pytest

from bridle import Agent, Budget, MisuseError, ToolResult, tool
from bridle.errors import BadTool
from bridle.run.replay.replay_session import replay_session
from bridle.testing.scripted_model import call_reply, scripted
from bridle.tools import external_tool
from bridle.values.events import ToolFinished, ToolStarted
from bridle.values.message import Text
from tests.suite.in_loop import in_loop

ASK = {"type": "object", "properties": {"question": {"type": "string"}}, "required": ["question"]}


def _confirm():
    return external_tool("confirm", "Asks the user.", ASK)


@tool(effect="read")
def look_up(name: str) -> str:
    """Look a name up."""
    return f"{name} is free"


def _make_agent(store=None, **options):
    script = scripted(
        call_reply(("confirm", {"question": "sure?"}), ("look_up", {"name": "m1"})), "Done as agreed."
    )
    return Agent(script, tools=[look_up, _confirm()], store=store, **options)


@in_loop
async def test_run_waits_for_external_call_and_runs_the_others():
    agent = _make_agent()
    waiting = await agent.run("go")
    assert waiting.stop == "waiting"
    assert waiting.reason == "waiting for the result of confirm"
    assert [(call.name, call.arguments) for call in waiting.external_calls] == [
        ("confirm", '{"question":"sure?"}')
    ]
    done = await agent.resume(waiting.session, results={waiting.external_calls[0].id: "yes"})
    assert (done.stop, done.text, done.external_calls) == ("done", "Done as agreed.", ())
    results = [part for message in done.messages for part in message.results]
    assert [result.text for result in results] == ["yes", "m1 is free"]
    records = await agent.store.read(waiting.session)
    finished = [r.event for r in records if isinstance(r.event, ToolFinished)]
    assert sorted((event.name, event.source) for event in finished) == [
        ("confirm", "caller"), ("look_up", "run"),
    ]  # fmt: skip
    assert [r.event.name for r in records if isinstance(r.event, ToolStarted)] == ["look_up"]


@in_loop
async def test_another_process_resumes_with_the_result(tmp_path):
    path = str(tmp_path / "log.db")
    waiting = await _make_agent(path).run("go")
    again = _make_agent(path)
    still = await again.resume(waiting.session)
    assert (still.stop, still.external_calls) == ("waiting", waiting.external_calls)
    given = ToolResult(call_id="", parts=(Text(text="no such user"),), outcome="error")
    done = await again.resume(waiting.session, results={waiting.external_calls[0].id: given})
    assert done.done
    assert [part.outcome for message in done.messages for part in message.results] == ["error", "ok"]


@in_loop
async def test_tools_of_one_run_are_restored_from_the_log(tmp_path):
    """A log holds no code, and a tool of the caller needs none."""
    path = str(tmp_path / "log.db")
    reply = call_reply(("confirm", {"question": "sure?"}))
    agent = Agent(scripted(reply, "ok"), tools=[look_up], store=path)
    waiting = await agent.run("go", tools=[look_up, _confirm()])
    again = Agent(scripted(reply, "ok"), tools=[look_up], store=path)
    done = await again.resume(waiting.session, results={waiting.external_calls[0].id: "yes"})
    assert done.text == "ok"


@pytest.mark.parametrize("given", [{"c9_9": "yes"}, {"": "yes"}])
@in_loop
async def test_result_that_no_call_waits_for_is_refused(given):
    agent = _make_agent()
    waiting = await agent.run("go")
    before = await agent.store.read(waiting.session)
    with pytest.raises(MisuseError, match=r"it waits for: c1_0 \(confirm\)"):
        await agent.resume(waiting.session, results=given)
    assert await agent.store.read(waiting.session) == before


@in_loop
async def test_second_result_is_refused():
    agent = _make_agent()
    waiting = await agent.run("go")
    call = waiting.external_calls[0].id
    await agent.resume(waiting.session, results={call: "yes"})
    with pytest.raises(MisuseError, match="it waits for: none"):
        await agent.resume(waiting.session, results={call: "no"})


@pytest.mark.parametrize("wrong", [5, [5], None])
@in_loop
async def test_result_of_another_type_is_refused(wrong):
    agent = _make_agent()
    waiting = await agent.run("go")
    if wrong is None:
        done = await agent.resume(waiting.session, results={waiting.external_calls[0].id: ""})
        assert done.done
        return
    with pytest.raises(MisuseError, match="must be text, Media, or a list of them"):
        await agent.resume(waiting.session, results={waiting.external_calls[0].id: wrong})


@in_loop
async def test_new_prompt_gives_the_call_up():
    script = scripted(call_reply(("confirm", {"question": "sure?"})), "something else")
    agent = Agent(script, tools=[_confirm()])
    waiting = await agent.run("go")
    done = await agent.run("never mind", session=waiting.session)
    assert done.text == "something else"
    assert [part.outcome for message in done.messages for part in message.results] == ["cancelled"]


@in_loop
async def test_fork_does_not_wait_for_its_parents_call():
    agent = _make_agent()
    waiting = await agent.run("go")
    fork = await agent.fork(waiting.session)
    assert (await agent.resume(fork.session)).done
    done = await agent.resume(waiting.session, results={waiting.external_calls[0].id: "yes"})
    assert done.done


@in_loop
async def test_log_replays(tmp_path):
    agent = _make_agent(str(tmp_path / "log.db"))
    waiting = await agent.run("go", budget=Budget(steps=5))
    await agent.resume(waiting.session, results={waiting.external_calls[0].id: "yes"})
    report = await replay_session(agent.store, waiting.session)
    assert report.divergence is None, report


@in_loop
async def test_invalid_arguments_never_reach_the_caller():
    script = scripted(
        call_reply(("confirm", {"question": 5})), call_reply(("confirm", {"question": "sure?"})), "ok"
    )
    agent = Agent(script, tools=[_confirm()])
    waiting = await agent.run("go")
    assert [call.arguments for call in waiting.external_calls] == ['{"question":"sure?"}']


def test_own_tool_of_the_same_name_is_refused():
    def confirm(): ...

    with pytest.raises(BadTool, match="two tools have this name"):
        Agent(scripted("x"), tools=[confirm, _confirm()])
    with pytest.raises(BadTool, match="its schema"):
        external_tool("confirm", "", {"type": "string"})
