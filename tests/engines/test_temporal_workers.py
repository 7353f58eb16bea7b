"""Workers in processes of their own: killed, stopped, replaced by newer code, with a ledger of what they really did."""

import asyncio
import json
import signal

import pytest

from tests.engines.engine_fixtures import (
    HISTORIES,
    WORKER_FILE,
    WorkerProcess,
    new_queue,
    read_lines,
    wait_for_question,
    wait_until,
)
from tests.suite.campaign import scale
from tests.suite.in_loop import in_loop

pytest.importorskip("temporalio")

from temporalio.client import Client, WorkflowHistory
from temporalio.worker import Replayer

from bridle.config.agent_loader import load_agents
from bridle.engines.temporal import TemporalEngine, WorkflowLimits
from bridle.engines.temporal.workflow import RunWorkflow
from bridle.run.context.resources import copy_agent

pytestmark = pytest.mark.slow
CHARGING = '!call charge {"order": "o1"}\n!then\n!say done'
REFUNDING = '!call refund {"order": "%s"}\n!then\n!say done'
QUICK = WorkflowLimits(heartbeat_seconds=1.0, sticky_seconds=1.0)


@pytest.fixture
def cashier(postgres, tmp_path, monkeypatch):
    monkeypatch.setenv("LEDGER", str(tmp_path))
    return copy_agent(load_agents([str(WORKER_FILE)])["cashier"], store=postgres.new_url())


@pytest.fixture
def start_worker(temporal, cashier, tmp_path):
    running = []

    def start(queue, *options, **environment):
        store = cashier.parts.inputs.store
        worker = WorkerProcess(temporal.host, store, queue, tmp_path, *options, **environment)
        running.append(worker)
        return worker.wait_until_ready()

    yield start
    for worker in running:
        worker.kill()


async def list_events(engine, session):
    return [record.event for record in await engine.agent.store.read(session)]


@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.full)])
@in_loop
async def test_a_call_whose_worker_vanished_is_in_doubt_and_not_repeated(
    temporal, cashier, start_worker, tmp_path, how
):
    """A killed worker and one that is stopped and continued later: its late result is refused."""
    engine = TemporalEngine(cashier, await Client.connect(temporal.host), new_queue(), limits=QUICK)
    first = start_worker(engine.task_queue, TOOL_SECONDS="4" if how is signal.SIGSTOP else "60")
    run = await engine.start(CHARGING)

    async def is_charged():
        return read_lines(tmp_path / "charges")

    await wait_until(is_charged)
    first.signal(how)
    start_worker(engine.task_queue)
    result = await run.result()
    assert (result.stop, result.text) == ("done", "done")
    if how is signal.SIGSTOP:
        length = len(await list_events(engine, run.session))
        first.signal(signal.SIGCONT)
        first.signal(signal.SIGTERM)
        await asyncio.to_thread(first.process.wait)
        assert len(await list_events(engine, run.session)) == length
    assert read_lines(tmp_path / "charges") == ["o1"]
    events = await list_events(engine, run.session)
    finished = [event for event in events if type(event).__name__ == "ToolFinished"]
    assert [event.result.outcome for event in finished] == ["unknown"]
    resumed = [event for event in events if type(event).__name__ == "Resumed"]
    assert [event.took_over for event in resumed] == [True] and resumed[0].engine


@in_loop
async def test_a_worker_that_is_stopped_finishes_its_part_and_loses_nothing(
    temporal, cashier, start_worker, tmp_path
):
    engine = TemporalEngine(cashier, await Client.connect(temporal.host), new_queue(), limits=QUICK)
    first = start_worker(engine.task_queue, TOOL_SECONDS="1")
    run = await engine.start(CHARGING)

    async def is_charged():
        return read_lines(tmp_path / "charges")

    await wait_until(is_charged)
    first.signal(signal.SIGTERM)
    assert await asyncio.to_thread(first.process.wait) == 0
    start_worker(engine.task_queue)
    result = await run.result()
    assert (result.text, read_lines(tmp_path / "charges")) == ("done", ["o1"])
    names = [type(event).__name__ for event in await list_events(engine, run.session)]
    assert "Resumed" not in names and names.count("ToolFinished") == 1


@pytest.mark.full
@in_loop
async def test_an_answer_arrives_although_the_worker_died_as_it_asked(
    temporal, cashier, start_worker, tmp_path
):
    """The log has the question before the workflow knows it; its worker is killed in between, or a moment later."""
    engine = TemporalEngine(cashier, await Client.connect(temporal.host), new_queue(), limits=QUICK)
    first = start_worker(engine.task_queue)
    run = await engine.start(REFUNDING % "o1")
    question = await wait_for_question(run)
    first.kill()
    answering = asyncio.create_task(run.approve(question.id, by="ann"))
    start_worker(engine.task_queue)
    assert (await answering).id == question.id
    assert (await run.result()).text == "done"
    assert read_lines(tmp_path / "refunds") == ["o1"]


@in_loop
async def test_runs_that_wait_continue_with_newer_code(temporal, cashier, start_worker, tmp_path):
    count = scale(5)
    engine = TemporalEngine(cashier, await Client.connect(temporal.host), new_queue(), limits=QUICK)
    old = start_worker(engine.task_queue, VERSION="1")
    runs = [await engine.start(REFUNDING % number) for number in range(count)]
    questions = [await wait_for_question(run) for run in runs]
    old.kill()
    start_worker(engine.task_queue, VERSION="2")
    for run, question in zip(runs, questions, strict=True):
        await run.approve(question.id)
    results = [await run.result() for run in runs]
    assert [result.text for result in results] == ["done"] * count
    assert sorted(read_lines(tmp_path / "refunds"), key=int) == [str(number) for number in range(count)]
    settings = [
        event for event in await list_events(engine, runs[0].session) if type(event).__name__ == "Configured"
    ]
    assert "cashier number 2" in settings[-1].settings.instructions


@in_loop
async def test_histories_of_earlier_releases_replay():
    """Save those of a release with `BRIDLE_SAVE_HISTORY=RELEASE pytest tests/engines/test_temporal_runs.py`."""
    saved = sorted(HISTORIES.glob("*.json"))
    assert saved
    for path in saved:
        history = WorkflowHistory.from_json(f"saved/{path.stem}", json.loads(path.read_text()))
        await Replayer(workflows=[RunWorkflow]).replay_workflow(history)
