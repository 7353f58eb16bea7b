"""Answers that another process records: the server continues the run, and no call runs twice."""

import asyncio
import json
from typing import Any

import pytest
from msgspec.structs import replace

from bridle import Agent, tool
from bridle.core.recovery.log_repair import fold_log
from bridle.events import ApprovalAnswered, Prompted, Resumed
from bridle.run.calls.approval import list_external_calls
from bridle.run.context.resources import copy_agent
from bridle.serve import answers
from bridle.serve.client import ApiError
from bridle.stores import open_store
from bridle.tools import external_tool
from bridle.values.errors import Unusable
from bridle.values.events import SubrunWaiting
from bridle.values.message import ToolResult
from bridle.values.record import GENESIS, seal_record
from tests.serve.server_process import ServerProcess
from tests.serve.serving import free_port, serve_agents
from tests.serve.waiting_runs import prompt_until_waiting, wait_for_end
from tests.suite.command import bridle
from tests.suite.in_loop import in_loop
from tests.suite.patience import PATIENCE_SECONDS

CHARGING = '!call charge {"number": 7}\n!then\n!say charged'


@pytest.fixture
def server(tmp_path, shared_log):
    made = ServerProcess(tmp_path, free_port(), store=shared_log)
    yield made
    made.close()


def approve(folder, store, *options, command="approve"):
    """Answer with the command, in a process of its own."""
    return bridle(
        "approvals", command, *options, "--store", store, "--json", cwd=folder, XDG_CONFIG_HOME=str(folder)
    )


@in_loop
async def test_bridle_approve_in_another_process_continues_a_run_of_the_server(server, tmp_path, shared_log):
    client = server.start()
    (question,), after = await prompt_until_waiting(client, CHARGING, "a")
    done = await asyncio.to_thread(approve, tmp_path, shared_log, question.id, "--by", "ann")
    assert done.code == 0, done.err
    assert await wait_for_end(client, "a", after) == "done"
    assert (await client.session("a")).answer == "charged"
    assert (tmp_path / "charged").read_text() == "7\n"
    store = open_store(shared_log)
    events = [record.event for record in await store.read("a")]
    await store.close()
    assert [type(event) for event in events if isinstance(event, ApprovalAnswered | Resumed)] == [
        ApprovalAnswered,
        Resumed,
    ]
    (given,) = [event for event in events if isinstance(event, ApprovalAnswered)]
    assert given.by == "ann"


@in_loop
async def test_a_question_inside_a_call_and_one_from_before_the_start_are_noticed(
    server, tmp_path, shared_log
):
    client = server.start()
    prompt = "!call ask_clerk " + json.dumps({"prompt": CHARGING}) + "\n!then\n!say all done"
    _, after = await prompt_until_waiting(client, prompt, "a")
    server.kill()
    client = server.start()
    store = open_store(shared_log)
    (inner,) = [
        record.event.session for record in await store.read("a") if isinstance(record.event, SubrunWaiting)
    ]
    (question,) = (await client.approvals(inner)).approvals
    done = await asyncio.to_thread(approve, tmp_path, shared_log, question.id, command="reject")
    assert done.code == 0, done.err
    assert await wait_for_end(client, "a", after) == "done"
    assert (await client.session("a")).answer == "all done"
    assert not (tmp_path / "charged").exists()
    await store.close()


@pytest.mark.slow
@in_loop
async def test_two_servers_of_one_store_run_an_approved_call_once(server, tmp_path, shared_log):
    other = ServerProcess(tmp_path, free_port(), store=shared_log)
    try:
        client = server.start()
        asked = [await prompt_until_waiting(client, CHARGING, f"run-{number}") for number in range(4)]
        other.start()
        for (question,), _ in asked:
            done = await asyncio.to_thread(approve, tmp_path, shared_log, question.id)
            assert done.code == 0, done.err
        for number, (_, after) in enumerate(asked):
            assert await wait_for_end(client, f"run-{number}", after) == "done"
        assert (tmp_path / "charged").read_text() == "7\n" * 4
    finally:
        other.close()


paid = []


@tool(effect="write", approve=True)
def pay(usd: int) -> str:
    """Pay."""
    paid.append(usd)
    return f"paid {usd}"


@pytest.fixture
def shop():
    paid.clear()
    choose = external_tool("choose", "Asks the user.")
    return Agent("sim:", name="shop", tools=[pay, choose])


def make_answering_agent(store):
    """An agent as another process has it: it can only answer."""
    return Agent("sim:", store=store)


@in_loop
async def test_a_run_goes_on_once_no_question_is_open(shop, tmp_path):
    prompt = '!call pay {"usd": 1}\n!call pay {"usd": 2}\n!then\n!say paid'
    async with serve_agents({"shop": shop}, tmp_path / "log.db") as serving:
        (first, second), after = await prompt_until_waiting(serving.client, prompt, "a")
        store: Any = open_store(tmp_path / "log.db")
        await make_answering_agent(store).approve("a", first.id)
        # The server has seen the first answer before the second one is given.
        await asyncio.wait_for(store.wait_for_records("a", after), PATIENCE_SECONDS)
        await make_answering_agent(store).reject("a", second.id)
        assert await wait_for_end(serving.client, "a", after) == "done"
        resumed = [record for record in await store.read("a") if isinstance(record.event, Resumed)]
        assert (len(resumed), paid) == (1, [1])
        await store.close()


@in_loop
async def test_answers_at_once_here_and_elsewhere_are_used_once(shop, tmp_path):
    prompt = '!call pay {"usd": 1}\n!call pay {"usd": 2}\n!then\n!say paid'
    async with serve_agents({"shop": shop}, tmp_path / "log.db") as serving:
        store = open_store(tmp_path / "log.db")
        for number in range(6):
            session = f"run-{number}"
            (first, second), after = await prompt_until_waiting(serving.client, prompt, session)
            answered = await asyncio.gather(
                serving.client.answer(session, first.id, "approve"),
                make_answering_agent(store).approve(session, second.id),
                return_exceptions=True,
            )
            for question, outcome in zip((first, second), answered, strict=True):
                if isinstance(outcome, Exception):  # the other one had the session in that moment
                    await make_answering_agent(store).approve(session, question.id)
            assert await wait_for_end(serving.client, session, after) == "done"
        assert sorted(paid) == [1] * 6 + [2] * 6
        await store.close()


@in_loop
async def test_a_run_that_waits_for_its_client_is_left_alone(shop, tmp_path):
    prompt = '!call pay {"usd": 1}\n!call choose {}\n!then\n!say fine'
    async with serve_agents({"shop": shop}, tmp_path / "log.db") as serving:
        (question,), after = await prompt_until_waiting(serving.client, prompt, "a")
        store = open_store(tmp_path / "log.db")
        await make_answering_agent(store).approve("a", question.id)
        # The approved call runs; then the run waits for the result of the other one, and is not resumed again.
        assert await wait_for_end(serving.client, "a", after) == "waiting"
        (call,) = list_external_calls(fold_log(await store.read("a")).state)
        run = await serving.host.resume("a", results={call.id: ToolResult(call_id=call.id)})
        assert await wait_for_end(serving.client, "a", run.after) == "done"
        resumed = [record for record in await store.read("a") if isinstance(record.event, Resumed)]
        assert (len(resumed), paid) == (2, [1])
        await store.close()


@in_loop
async def test_an_answer_of_the_api_without_resuming_is_not_resumed_by_the_watch(shop, tmp_path):
    async with serve_agents({"shop": shop}, tmp_path / "log.db") as serving:
        (question,), _ = await prompt_until_waiting(serving.client, '!call pay {"usd": 1}', "a")
        await serving.client.answer("a", question.id, "approve", resume=False)
        assert "a" not in serving.host.answers


@in_loop
async def test_only_so_many_sessions_are_watched(shop, tmp_path, monkeypatch):
    monkeypatch.setattr(answers, "WATCHED_MAX", 2)
    async with serve_agents({"shop": shop}, tmp_path / "log.db") as serving:
        for name in ("a", "b", "c"):
            await prompt_until_waiting(serving.client, '!call pay {"usd": 1}', name)
        watched = [name for name in ("a", "b", "c") if name in serving.host.answers]
        assert watched == ["b", "c"]


async def copy_as_engine(store, source, session):
    """Copy a log as if an engine had its run; returns its length."""
    copied, head = [], GENESIS
    for record in await store.read(source):
        event = record.event
        event = replace(event, engine=True) if isinstance(event, Prompted) else event
        copied.append(seal_record(record.seq, record.at + 1, event, head))  # it is looked at first
        head = copied[-1].hash
    await store.append(session, 0, copied)
    return len(copied)


@in_loop
async def test_an_answered_run_of_an_engine_is_left_to_the_engine(shop, tmp_path):
    store = open_store(tmp_path / "log.db")
    agent = copy_agent(shop, store=store)
    await agent.run('!call pay {"usd": 1}', "mine")
    (question,) = await agent.approvals("mine")
    await agent.approve("mine", question.id)
    length = await copy_as_engine(store, "mine", "engines")
    async with serve_agents({"shop": shop}, store) as serving:
        await wait_for_end(serving.client, "mine", length)
        assert (await serving.client.session("engines")).summary.records == length
        assert "engines" not in serving.host.answers and paid == [1]
    await store.close()


async def wait_until(is_true):
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not is_true():
            await asyncio.sleep(0.005)


@in_loop
async def test_a_run_of_an_engine_whose_questions_are_answered_one_by_one_is_left_to_the_engine(
    shop, tmp_path
):
    store = open_store(tmp_path / "log.db")
    agent = copy_agent(shop, store=store)
    await agent.run('!call pay {"usd": 1}\n!call pay {"usd": 2}', "mine")
    await copy_as_engine(store, "mine", "engines")
    async with serve_agents({"shop": shop}, tmp_path / "log.db") as serving:
        first, second = (await serving.client.approvals("engines")).approvals
        reply = await serving.client.answer("engines", first.id, "approve")
        assert reply.run is None
        await make_answering_agent(store).approve("engines", second.id)
        await wait_until(lambda: "engines" not in serving.host.answers)
        assert not [each for each in await store.read("engines") if isinstance(each.event, Resumed)]
        assert paid == []
    await store.close()


@in_loop
async def test_a_run_that_another_process_held_for_a_moment_is_resumed(shop, tmp_path):
    """The other process takes the session after the server has seen it free, and ends without a run."""
    path = tmp_path / "log.db"
    async with serve_agents({"shop": shop}, path) as serving:
        (question,), after = await prompt_until_waiting(
            serving.client, '!call pay {"usd": 1}\n!then\n!say ok', "a"
        )
        store, host = open_store(path), serving.host
        is_leased, held, tried = host.store.is_leased, [], []

        async def take_at_once(session):
            found = await is_leased(session)
            answered = [each for each in await store.read("a") if isinstance(each.event, ApprovalAnswered)]
            if answered and not found and not held:
                held.append(store.lease(session))
                await held[0].__aenter__()
            return found

        async def note_failure(session, *given, **named):
            tried.append(session)
            return await resume(session, *given, **named)

        resume, host.resume, host.store.is_leased = host.resume, note_failure, take_at_once
        await make_answering_agent(store).approve("a", question.id)
        await wait_until(lambda: tried)
        await wait_until(lambda: "a" not in host.runs)
        await held[0].__aexit__(None, None, None)
        assert await wait_for_end(serving.client, "a", after) == "done"
        assert paid == [1]
        await store.close()


@in_loop
async def test_an_answer_whose_run_another_process_takes_first_is_no_error(shop, tmp_path):
    """Another server noticed the answer, and has the session when this one wants to resume the run."""
    path = tmp_path / "log.db"
    async with serve_agents({"shop": shop}, path) as serving:
        prompt = '!call pay {"usd": 1}\n!then\n!say ok'
        (question,), after = await prompt_until_waiting(serving.client, prompt, "a")
        store, host = open_store(path), serving.host
        is_leased, held = host.store.is_leased, []

        async def take_at_once(session):
            found = await is_leased(session)
            answered = [each for each in await store.read("a") if isinstance(each.event, ApprovalAnswered)]
            if answered and not found and not held:
                held.append(store.lease(session))
                await held[0].__aenter__()
            return found

        async with host.answers.hold("a"):  # the watch does not look for the lease
            host.store.is_leased = take_at_once
        reply = await serving.client.answer("a", question.id, "approve")
        assert held and reply.run is None
        await held[0].__aexit__(None, None, None)
        assert await wait_for_end(serving.client, "a", after) == "done"
        assert paid == [1]
        await store.close()


@in_loop
async def test_an_answer_whose_run_this_server_adopts_first_is_no_error(tmp_path):
    """The run is one of another server that ended: it is found with its answer while that is recorded."""
    is_free, begun = asyncio.Event(), []

    @tool(effect="write", approve=True)
    async def pack(number: int) -> str:
        await is_free.wait()
        return f"packed {number}"

    agent = Agent("sim:", name="packer", tools=[pack])
    async with serve_agents({"packer": agent}, tmp_path / "log.db") as serving:
        prompt = '!call pack {"number": 1}\n!then\n!say ok'
        (question,), after = await prompt_until_waiting(serving.client, prompt, "a")
        host = serving.host
        is_leased = host.store.is_leased

        async def adopt_at_once(session):
            found = await is_leased(session)
            answered = [
                each for each in await host.store.read("a") if isinstance(each.event, ApprovalAnswered)
            ]
            if answered and not begun:
                begun.append(session)
                await host.resume(session)
            return found

        host.store.is_leased = adopt_at_once
        reply = await serving.client.answer("a", question.id, "approve")
        assert begun and reply.run is None
        is_free.set()
        assert await wait_for_end(serving.client, "a", after) == "done"


@in_loop
async def test_a_refused_answer_leaves_the_session_watched(shop, tmp_path):
    path = tmp_path / "log.db"
    async with serve_agents({"shop": shop}, path) as serving:
        (question,), after = await prompt_until_waiting(
            serving.client, '!call pay {"usd": 1}\n!then\n!say ok', "a"
        )
        with pytest.raises(ApiError):
            await serving.client.answer("a", "no such question", "reject", resume=False)
        assert "a" in serving.host.answers
        store = open_store(path)
        await make_answering_agent(store).approve("a", question.id)
        assert await wait_for_end(serving.client, "a", after) == "done"
        await store.close()


@in_loop
async def test_an_answer_is_noticed_after_the_store_has_failed_once(shop, tmp_path, monkeypatch):
    monkeypatch.setattr(answers, "LEASE_SECONDS_MAX", 0.01)
    path = tmp_path / "log.db"
    async with serve_agents({"shop": shop}, path) as serving:
        store, host, failed = open_store(path), serving.host, []
        wait_for_records = host.store.wait_for_records

        async def fail_once(session, after):
            if session == "a" and not failed:
                failed.append(session)
                raise Unusable("the connection was lost")
            await wait_for_records(session, after)

        (question,), after = await prompt_until_waiting(
            serving.client, '!call pay {"usd": 1}\n!then\n!say ok', "a"
        )
        async with host.answers.hold("a"):  # the watch begins again after this
            host.store.wait_for_records = fail_once
        await wait_until(lambda: failed)
        await make_answering_agent(store).approve("a", question.id)
        assert await wait_for_end(serving.client, "a", after) == "done"
        await store.close()


@in_loop
async def test_another_tenant_does_not_learn_who_answered(shop, tmp_path):
    async with serve_agents({"shop": shop}, tmp_path / "log.db") as serving:
        client = serving.client
        run = await client.prompt('!call pay {"usd": 1}', session="a", new=True, tenant="acme")
        async for _ in client.stream(run.session, after=run.after):
            pass
        (question,) = (await client.approvals("a")).approvals
        path = f"/api/sessions/a/approvals/{question.id}"
        given = {"answer": "approve", "by": "ann@acme", "tenant": "acme", "resume": False}
        kind = {"content-type": "application/json"}
        status, _, _ = await serving.exchange("POST", path, headers=kind, body=json.dumps(given).encode())
        assert status == 200
        given["tenant"] = "other"
        status, _, body = await serving.exchange("POST", path, headers=kind, body=json.dumps(given).encode())
        assert status == 400 and b"ann" not in body and b"tenant" in body


@in_loop
async def test_an_answered_run_that_another_process_holds_at_the_start_is_resumed_later(shop, tmp_path):
    path = tmp_path / "log.db"
    store = open_store(path)
    agent = copy_agent(shop, store=store)
    await agent.run('!call pay {"usd": 1}\n!then\n!say ok', "a")
    (question,) = await agent.approvals("a")
    await agent.approve("a", question.id)
    after = len(await store.read("a"))
    async with store.lease("a"):
        serving = serve_agents({"shop": shop}, path)
        served = await serving.__aenter__()
        await wait_until(lambda: "a" in served.host.answers)
    try:
        assert await wait_for_end(served.client, "a", after) == "done"
        assert paid == [1]
    finally:
        await serving.__aexit__(None, None, None)
        await store.close()
