"""Agents with MCP servers: what is recorded, what a session keeps, and what follows when a server dies or changes."""

import asyncio

import pytest

from bridle import Agent, CodeMode, MisuseError, PermissionRule, Policy, tool
from bridle.events import ToolFinished, ToolInterrupted, ToolsChanged
from bridle.stores.memory import MemoryStore
from bridle.testing import scripted
from bridle.testing.scripted_model import call_reply
from bridle.values.events import Configured, PrefixMoved, ToolStarted
from tests.tools.mcp.mcp_servers import hostile_server


async def list_events(store, kind, session="s"):
    return [record.event for record in await store.read(session) if isinstance(record.event, kind)]


def list_results(result):
    return [each for message in result.messages for each in message.results]


@tool
def own(text: str) -> str:
    """An own tool."""
    return text


def test_an_agent_calls_the_tools_of_servers_beside_its_own():
    async def main():
        calls = call_reply(("mcp__a__echo", {"x": 1}), ("own", {"text": "mine"}), ("mcp__b__echo", {"x": 2}))
        agent = Agent(
            scripted(calls, "done"), tools=[own, hostile_server(name="a"), hostile_server(name="b")]
        )
        result = await agent.run("go", "s")
        assert result.done and [each.text for each in list_results(result)] == [
            '{"x": 1}',
            "mine",
            '{"x": 2}',
        ]
        (configured,) = await list_events(agent.store, Configured)
        names = [spec.name for spec in configured.settings.tools]
        assert names[0] == "own" and names[1] == "mcp__a__echo" and len(names) == 25
        assert await list_events(agent.store, ToolsChanged) == []

    asyncio.run(main())


def test_it_works_without_an_event_loop_too():
    agent = Agent(scripted(call_reply(("mcp__h__echo", {})), "done"), tools=[hostile_server()])
    assert agent.run_sync("go").done and agent.run_sync("again").done


def test_a_bad_server_never_stops_the_others():
    async def main():
        servers = [
            hostile_server("die_at_start", name="dead"),
            hostile_server("hang_at_start", name="slow", connect_timeout=0.5),
            hostile_server(name="good"),
        ]
        agent = Agent(scripted(call_reply(("mcp__good__echo", {})), "done", "again"), tools=servers)
        assert list_results(await agent.run("go", "s"))[0].text == "{}"
        reports = {report.server: report.error for report in await list_events(agent.store, ToolsChanged)}
        assert set(reports) == {"dead", "slow"}
        assert "no licence" in reports["dead"] and "no answer within 0.5 seconds" in reports["slow"]

    asyncio.run(main())


def test_a_required_server_must_work():
    async def main():
        agent = Agent(scripted("x"), tools=[hostile_server("die_at_start", required=True)])
        with pytest.raises(MisuseError, match=r"no licence.*It is required"):
            await agent.run("go", "s")
        assert not await agent.store.read("s")

    asyncio.run(main())


def test_an_interrupted_write_is_reported_and_not_run_again():
    async def main():
        agent = Agent(scripted(call_reply(("mcp__h__die", {})), "done"), tools=[hostile_server()])
        result = await agent.run("go", "s")
        (outcome,) = list_results(result)
        assert result.done and outcome.outcome == "unknown" and "it was not run again" in outcome.text
        (interrupted,) = await list_events(agent.store, ToolInterrupted)
        assert interrupted.name == "mcp__h__die" and "exit code 3" in interrupted.why
        assert len(await list_events(agent.store, ToolStarted)) == 1
        assert len(await list_events(agent.store, ToolFinished)) == 1

    asyncio.run(main())


def test_an_interrupted_read_of_a_trusted_server_is_run_again(tmp_path):
    """The server exits during the first attempt, because a file says so, and answers the second one."""

    async def main():
        once = tmp_path / "once"
        once.touch()
        source = hostile_server(f"die_once={once}", trust=True)
        agent = Agent(scripted(call_reply(("mcp__h__echo", {"x": 1})), "done"), tools=[source])
        result = await agent.run("go", "s")
        assert [each.text for each in list_results(result)] == ['{"x": 1}']
        assert [event.attempt for event in await list_events(agent.store, ToolStarted)] == [1, 2]

    asyncio.run(main())


def test_a_read_that_always_dies_ends_as_an_error(tmp_path):
    async def main():
        source = hostile_server("die_always", trust=True)
        agent = Agent(scripted(call_reply(("mcp__h__echo", {})), "done"), tools=[source])
        (outcome,) = list_results(await agent.run("go", "s"))
        assert outcome.outcome == "error" and "exit code 3" in outcome.text
        assert len(await list_events(agent.store, ToolStarted)) == 3

    asyncio.run(main())


def test_a_call_that_hangs_ends_at_its_deadline_and_the_server_goes_on():
    async def main():
        calls = call_reply(("mcp__h__hang", {}))
        agent = Agent(scripted(calls, "done"), tools=[hostile_server(timeout=0.3), hostile_server(name="b")])
        result = await agent.run("go", "s")
        assert list_results(result)[0].outcome == "timeout" and result.done

    asyncio.run(main())


def test_new_tools_are_appended_and_the_model_can_call_them_in_the_same_run():
    async def main():
        replies = call_reply(("mcp__h__grow", {})), call_reply(("mcp__h__extra", {})), "done"
        model = scripted(*replies)
        agent = Agent(model, tools=[own, hostile_server()])
        result = await agent.run("go", "s")
        assert [each.text for each in list_results(result)] == ["changed", "extra works"]
        (report,) = await list_events(agent.store, ToolsChanged)
        assert [spec.name for spec in report.added] == ["mcp__h__extra"]
        (moved,) = await list_events(agent.store, PrefixMoved)
        assert moved.block == "tool 14 (mcp__h__extra)"  # everything before it is still cached

    asyncio.run(main())


def test_vanished_tools_stay_and_answer_with_an_error():
    async def main():
        replies = call_reply(("mcp__h__shrink", {})), call_reply(("mcp__h__write", {})), "done"
        agent = Agent(scripted(*replies), tools=[hostile_server()])
        result = await agent.run("go", "s")
        assert "does not offer this tool any more" in list_results(result)[1].text
        (report,) = await list_events(agent.store, ToolsChanged)
        assert report.missing == ("mcp__h__write",)
        assert await list_events(agent.store, PrefixMoved) == []

    asyncio.run(main())


@pytest.mark.parametrize("modes", [("reversed",), ("changed",), ("die_at_start",), ("reversed", "changed")])
def test_a_session_keeps_what_it_has_seen(modes):
    """The next prompt of a session has the same tools in the same order, whatever became of the server."""

    async def main():
        store = MemoryStore()
        first = Agent(scripted("one"), tools=[own, hostile_server()], store=store)
        await first.run("go", "s")
        second = Agent(scripted("one", "two"), tools=[own, hostile_server(*modes)], store=store)
        assert (await second.run("again", "s")).text == "two"
        settings = [event.settings for event in await list_events(store, Configured)]
        prompts = [
            [(spec.name, spec.description, spec.parameters) for spec in each.tools] for each in settings
        ]
        assert all(prompt == prompts[0] for prompt in prompts)
        assert await list_events(store, PrefixMoved) == []
        reports = await list_events(store, ToolsChanged)
        if "changed" in modes:
            assert [report.changed for report in reports] == [("mcp__h__echo",)]
        if "die_at_start" in modes:
            assert "no licence" in reports[0].error
        await second.run("and again", "s")
        assert len(await list_events(store, ToolsChanged)) == len(reports)  # each difference is recorded once

    asyncio.run(main())


def test_a_log_gives_a_server_no_rights():
    """A tool that was read-only in the log is not so any more if its server is not trusted now."""

    async def main():
        store = MemoryStore()
        await Agent(scripted("one"), tools=[hostile_server(trust=True)], store=store).run("go", "s")
        await Agent(scripted("one", "two"), tools=[hostile_server()], store=store).run("go", "s")
        effects = [event.settings.tools[0].effect for event in await list_events(store, Configured)]
        assert effects == ["read", "write"]

    asyncio.run(main())


def test_a_policy_covers_the_tools_of_servers():
    async def main():
        rule = PermissionRule(decision="deny", name="no writing", tools=("mcp__h__write",))
        agent = Agent(
            scripted(call_reply(("mcp__h__write", {})), "done"),
            tools=[hostile_server()],
            policy=Policy(rules=(rule,)),
        )
        (outcome,) = list_results(await agent.run("go", "s"))
        assert outcome.outcome == "denied"

    asyncio.run(main())


def test_large_catalogues_are_searched():
    async def main():
        replies = (
            call_reply(("search_tools", {"query": "case 117"})),
            call_reply(("mcp__h__number_117", {})),
            "done",
        )
        agent = Agent(scripted(*replies), tools=[hostile_server("many")])
        result = await agent.run("go", "s")
        assert "mcp__h__number_117" in list_results(result)[0].text
        assert "no tool number_117" in list_results(result)[1].text  # it reached the server

    asyncio.run(main())


def test_many_runs_share_one_connection(tmp_path):
    pids = tmp_path / "pids"

    async def main():
        agent = Agent(
            scripted(call_reply(("mcp__h__echo", {})), "done"), tools=[hostile_server(f"pid={pids}")]
        )
        results = await asyncio.gather(*(agent.run("go") for _ in range(100)))
        assert all(result.done for result in results)

    asyncio.run(main())
    assert len(pids.read_text().splitlines()) == 1


def test_programs_call_the_tools_of_servers_and_the_model_does_not_see_them():
    async def main():
        code = "print(mcp__h__echo(x=1)['x'], own(text='mine'))"
        replies = call_reply(("run_code", {"code": code})), "done"
        agent = Agent(scripted(*replies), tools=[own, hostile_server()], code_mode=CodeMode(sandbox=None))
        result = await agent.run("go", "s")
        assert result.done and [each.text for each in list_results(result)] == ["1 mine"]
        (configured,) = await list_events(agent.store, Configured)
        (spec,) = configured.settings.tools
        assert "def mcp__h__echo(**more: Any) -> Any:" in spec.description
        assert await list_events(agent.store, ToolsChanged) == []
        assert await list_events(agent.store, PrefixMoved) == []
        chosen = CodeMode(sandbox=None, tools=["mcp__h__echo"])
        agent = Agent(scripted(*replies), tools=[own, hostile_server()], code_mode=chosen)
        await agent.run("go", "s")
        (configured,) = await list_events(agent.store, Configured)
        names = [spec.name for spec in configured.settings.tools]
        assert (
            names[0] == "own" and names[-1] == "run_code" and "mcp__h__echo" not in names and len(names) == 13
        )
        assert await list_events(agent.store, ToolsChanged) == []

    asyncio.run(main())
