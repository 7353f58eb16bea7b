"""Two servers of one store: the one that is left continues the runs of the other one, each effect once."""

import asyncio
import logging
import time

import pytest

from bridle import Agent
from bridle.events import Prompted, Resumed, RunEnded
from bridle.serve import adoption
from bridle.stores import open_store
from bridle.values.errors import Unusable
from bridle.values.record import GENESIS, seal_record
from tests.serve.adopted_runs import (
    ADOPTED_SECONDS_MAX,
    WAITING,
    find_record,
    is_appended,
    is_done,
    is_resumed,
)
from tests.serve.server_process import ServerProcess
from tests.serve.serving import free_port, serve_agents
from tests.suite.campaign import scale
from tests.suite.in_loop import in_loop

RUNS = scale(50, least=8)
"""Runs of the killed server."""
pytestmark = pytest.mark.slow


@pytest.fixture
def servers(tmp_path, shared_log):
    """Two servers of one store that are started by the test."""
    made = [ServerProcess(tmp_path, free_port(), store=shared_log) for _ in range(2)]
    yield made
    for each in made:
        each.close()


@in_loop
async def test_the_runs_of_a_killed_server_go_on_in_the_other_one(
    servers, shared_log, tmp_path, record_property
):
    first, second = servers
    client = first.start()
    second.start()
    names = [f"run-{number}" for number in range(RUNS)]
    for name in names:
        await client.prompt(WAITING.format(name=name), session=name, new=True)
    store = open_store(shared_log)
    started = [await find_record(store, name, is_appended) for name in names]
    first.kill()
    killed_at = time.time()
    resumed = [
        await find_record(store, name, is_resumed, record.seq)
        for name, record in zip(names, started, strict=True)
    ]
    took = max(record.at for record in resumed) - killed_at
    record_property("adoption_seconds", round(took, 2))
    print(f"all {RUNS} runs adopted after {took:.2f} s")
    assert took < ADOPTED_SECONDS_MAX
    (tmp_path / "go").touch()
    for name in names:
        await find_record(store, name, is_done)
    assert sorted((tmp_path / "appended").read_text().split()) == sorted(names)
    await store.close()


@in_loop
async def test_two_servers_that_are_left_share_the_runs_of_a_killed_one(servers, shared_log, tmp_path):
    third = ServerProcess(tmp_path, free_port(), store=shared_log)
    servers.append(third)  # closed with the others
    first, second, _ = servers
    client = first.start()
    second.start(), third.start()
    names = [f"run-{number}" for number in range(8)]
    for name in names:
        await client.prompt(WAITING.format(name=name), session=name, new=True)
    store = open_store(shared_log)
    for name in names:
        await find_record(store, name, is_appended)
    first.kill()
    (tmp_path / "go").touch()
    for name in names:
        await find_record(store, name, is_done)
        ends = [each.event for each in await store.read(name) if isinstance(each.event, Resumed | RunEnded)]
        assert [type(each) for each in ends] == [Resumed, RunEnded], name
    assert sorted((tmp_path / "appended").read_text().split()) == sorted(names)
    await store.close()


@in_loop
async def test_the_runs_of_a_stopped_server_go_on_in_the_other_one(servers, shared_log, tmp_path):
    first, second = servers
    first.options = ("--shutdown-seconds", "1")
    client = first.start()
    second.start()
    await client.prompt(WAITING.format(name="a"), session="a", new=True)
    store = open_store(shared_log)
    record = await find_record(store, "a", is_appended)
    await asyncio.to_thread(first.stop)
    await find_record(store, "a", is_resumed, record.seq)
    (tmp_path / "go").touch()
    await find_record(store, "a", is_done)
    assert (tmp_path / "appended").read_text() == "a\n"
    await store.close()


@in_loop
async def test_an_answer_for_a_run_of_a_killed_server_is_noticed_by_the_other_one(
    servers, shared_log, tmp_path
):
    first, second = servers
    client = first.start()
    second.start()
    await client.prompt('!call charge {"number": 7}\n!then\n!say ok', session="a", new=True)
    store = open_store(shared_log)
    await find_record(store, "a", lambda event: isinstance(event, RunEnded))
    first.kill()
    # The other server watches once it has noticed the end, or finds the answer then.
    agent = Agent("sim:", store=store)
    (question,) = await agent.approvals("a")
    await agent.approve("a", question.id)
    await find_record(store, "a", is_done)
    assert (tmp_path / "charged").read_text() == "7\n"
    await store.close()


async def announce(store, server):
    await store.announce_server(server)


async def withdraw(store, server):
    await store.withdraw_server(server)


async def copy_as_interrupted(store, source, session, resumes):
    """A log whose run was resumed so often after its prompt, and whose process ended each time."""
    events = [record.event for record in await store.read(source)]
    start = next(place for place, event in enumerate(events) if isinstance(event, Prompted))
    copied, head, now = [], GENESIS, time.time()
    for event in (*events[: start + 1], *[Resumed()] * resumes):
        copied.append(seal_record(len(copied) + 1, now, event, head))
        head = copied[-1].hash
    await store.append(session, 0, copied)


@in_loop
async def test_a_run_that_may_end_its_servers_is_not_adopted_again_and_again(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(adoption, "LOOK_SECONDS", 0.02)
    store = open_store(tmp_path / "log.db")
    shop = Agent("sim:", name="shop", store=store)
    await shop.run("!say fine", "whole")
    await announce(store, "0000000a")
    async with serve_agents({"shop": shop}, tmp_path / "log.db") as serving:
        assert serving.host.adoption.servers == {"0000000a", serving.host.adoption.server}
        # The latest session is looked at first.
        for session, count in (("works", 1), ("kills", adoption.FRUITLESS_RESUMES_MAX)):
            await copy_as_interrupted(store, "whole", session, count)
        with caplog.at_level(logging.WARNING, "bridle"):
            await withdraw(store, "0000000a")
            await find_record(store, "works", is_done)
        assert "session kills is not adopted: it was resumed 5 times without a result" in caplog.text
        assert not any(isinstance(each.event, RunEnded) for each in await store.read("kills"))
    await store.close()


@in_loop
async def test_a_run_that_a_failing_store_ended_goes_on_when_the_store_works_again(tmp_path, monkeypatch):
    monkeypatch.setattr(adoption, "LOOK_SECONDS", 0.02)
    path, failed = tmp_path / "log.db", []
    async with serve_agents({"shop": Agent("sim:", name="shop")}, path) as serving:
        append = serving.host.store.append

        async def fail_once(session, after, records, **named):
            if session == "a" and after >= 3 and not failed:
                failed.append(after)
                raise Unusable("the database was restarted")
            await append(session, after, records, **named)

        monkeypatch.setattr(serving.host.store, "append", fail_once)
        await serving.client.prompt("!say fine", session="a", new=True)
        store = open_store(path)
        await find_record(store, "a", is_done)
        assert failed
        metrics = (await serving.exchange("GET", "/metrics"))[2].decode()
        assert 'bridle_serve_adoptions_total{reason="store failed"} 1' in metrics
        await store.close()
