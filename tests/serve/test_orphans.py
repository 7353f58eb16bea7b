"""Runs of processes that are no servers: a server adopts what they leave, and nothing that a process still drives."""

import asyncio
import logging
import signal
import subprocess
import sys
import time

import pytest

from bridle import Agent, tool
from bridle.events import ModelReplied, Resumed, RunEnded
from bridle.serve import ServeOptions, adoption
from bridle.stores import open_store
from bridle.values.errors import Corrupt
from tests.serve.adopted_runs import (
    ADOPTED_SECONDS_MAX,
    WAITING,
    find_record,
    is_appended,
    is_done,
    is_resumed,
)
from tests.serve.serving import serve_agents
from tests.suite.in_loop import in_loop
from tests.suite.patience import PATIENCE_SECONDS

BATCH = """
import asyncio, sys
from bridle.run.context.resources import copy_agent
from bridle.stores import open_store
from tests.serve.process_agents import worker

async def run_all(store, prompts):
    agent = copy_agent(worker, store=store)
    await asyncio.gather(*(agent.run(prompt, name) for name, prompt in prompts.items()))

store, prompts = open_store(sys.argv[1]), dict(zip(sys.argv[2::2], sys.argv[3::2], strict=True))
asyncio.run(run_all(store, prompts))
"""
KILLED = """
import os, signal, sys
from bridle import Agent, tool

@tool(effect="read")
def kill() -> str:
    "End this process."
    os.kill(os.getpid(), signal.SIGKILL)

Agent("sim:", name="elsewhere", tools=[kill], store=sys.argv[1]).run_sync("!call kill {}", "lost")
"""
LOOKS = 5


@pytest.fixture
def often(monkeypatch):
    monkeypatch.setattr(adoption, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(adoption, "LOOK_SHARE_MAX", 1.0)


async def count_looks(serving, monkeypatch, count=LOOKS):
    """Return when a server has looked for orphans so often from now on."""
    look, seen, done = serving.host.adoption.orphans.look, [], asyncio.Event()

    async def look_and_count():
        found = await look()
        seen.append(found)
        if len(seen) == count:
            done.set()
        return found

    with monkeypatch.context() as patch:
        patch.setattr(serving.host.adoption.orphans, "look", look_and_count)
        await asyncio.wait_for(done.wait(), PATIENCE_SECONDS)


def import_worker(tmp_path, monkeypatch):
    """The agents of the batch, which work in the folder of the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "tests.serve.process_agents", raising=False)
    from tests.serve.process_agents import worker

    return worker


@pytest.mark.slow
@in_loop
async def test_runs_of_a_killed_batch_are_adopted(shared_log, tmp_path, monkeypatch, record_property):
    names = [f"run-{number}" for number in range(4)]
    prompts = [text for name in names for text in (name, WAITING.format(name=name))]
    worker = import_worker(tmp_path, monkeypatch)
    async with serve_agents({"worker": worker}, shared_log) as serving:
        batch = subprocess.Popen([sys.executable, "-c", BATCH, shared_log, *prompts], cwd=tmp_path)
        store = open_store(shared_log)
        try:
            started = [await find_record(store, name, is_appended) for name in names]
            await count_looks(serving, monkeypatch, 3)
            for name in names:  # they are driven
                assert not [each for each in await store.read(name) if is_resumed(each.event)]
        finally:
            batch.send_signal(signal.SIGKILL)
            batch.wait(PATIENCE_SECONDS)
        killed_at = time.time()
        resumed = [
            await find_record(store, name, is_resumed, record.seq)
            for name, record in zip(names, started, strict=True)
        ]
        took = max(record.at for record in resumed) - killed_at
        record_property("adoption_seconds", round(took, 2))
        print(f"all runs of the batch adopted after {took:.2f} s")
        assert took < ADOPTED_SECONDS_MAX
        (tmp_path / "go").touch()
        for name in names:
            await find_record(store, name, is_done)
        assert sorted((tmp_path / "appended").read_text().split()) == sorted(names)
        metrics = (await serving.exchange("GET", "/metrics"))[2].decode()
        assert 'bridle_serve_adoptions_total{reason="process ended"} 4' in metrics
        await store.close()


@tool(effect="read")
async def wait_long() -> str:
    """Wait."""
    await asyncio.Event().wait()
    return "over"


@in_loop
async def test_a_run_in_progress_and_a_fork_are_left_alone(tmp_path, monkeypatch, often):
    path = tmp_path / "log.db"
    async with serve_agents({"shop": Agent("sim:", name="shop", tools=[wait_long])}, path) as serving:
        store = open_store(path)
        shop = Agent("sim:", name="shop", tools=[wait_long], store=store)
        run = shop.stream("!call wait_long {}\n!then\n!say over", "working").start()
        await find_record(store, "working", lambda event: isinstance(event, ModelReplied))
        await shop.fork("working", at=len(await store.read("working")), new="branch")
        await count_looks(serving, monkeypatch)
        for session in ("working", "branch"):
            assert not [each for each in await store.read(session) if is_resumed(each.event)], session
        run.cancel()
        await run.result()
        await store.close()


@in_loop
async def test_a_run_that_fails_here_is_not_tried_again(tmp_path, monkeypatch, often):
    path, failures = tmp_path / "log.db", []
    async with serve_agents({"shop": Agent("sim:", name="shop")}, path) as serving:
        append = serving.host.store.append

        async def fail(session, after, records, **named):
            if session == "a" and after >= 3:
                failures.append(after)
                raise Corrupt("the log is damaged")
            await append(session, after, records, **named)

        monkeypatch.setattr(serving.host.store, "append", fail)
        await serving.client.prompt("!say fine", session="a", new=True)
        await count_looks(serving, monkeypatch)
        store = open_store(path)
        assert len(failures) == 1  # no second attempt
        assert not [each for each in await store.read("a") if isinstance(each.event, Resumed | RunEnded)]
        await store.close()


@in_loop
async def test_an_orphan_whose_agent_is_not_served_is_named_once(tmp_path, monkeypatch, often, caplog):
    path = tmp_path / "log.db"
    async with serve_agents({"shop": Agent("sim:", name="shop")}, path) as serving:
        killed = subprocess.run([sys.executable, "-c", KILLED, path], check=False)
        assert killed.returncode == -signal.SIGKILL
        with caplog.at_level(logging.WARNING, "bridle"):
            await count_looks(serving, monkeypatch, 10)
    assert caplog.text.count("not resumed, because the agent is not served: lost") == 1


@in_loop
async def test_a_server_that_resumes_nothing_adopts_nothing(tmp_path, monkeypatch, often):
    path, looked = tmp_path / "log.db", []
    options = ServeOptions(resumes_runs=False)
    async with serve_agents({"shop": Agent("sim:", name="shop")}, path, options=options) as serving:
        host = serving.host
        monkeypatch.setattr(host.adoption.orphans, "look", lambda: looked.append("looked"))
        announce, again, count = host.store.announce_server, asyncio.Event(), []

        async def announce_and_count(server):
            count.append(server)
            if len(count) == LOOKS:
                again.set()
            return await announce(server)

        monkeypatch.setattr(host.store, "announce_server", announce_and_count)
        await asyncio.wait_for(again.wait(), PATIENCE_SECONDS)
    assert not looked


@in_loop
async def test_a_fork_that_is_seen_before_its_first_own_record_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(adoption, "LOOK_SHARE_MAX", 1e9)
    path = tmp_path / "log.db"
    killed = subprocess.run([sys.executable, "-c", KILLED, str(path)], timeout=PATIENCE_SECONDS, check=False)
    assert killed.returncode == -signal.SIGKILL
    store = open_store(path)
    length = len(await store.read("lost"))
    search = adoption.OrphanSearch(store, lambda _: False)
    await store.fork("lost", length, "branch")
    found = await search.look()
    await Agent("sim:", store=store).fork("lost", at=length, new="branch")
    for _ in range(LOOKS):
        found += await search.look()
    assert found == ["lost"]
    await store.close()
