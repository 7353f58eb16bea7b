"""A run in one process, controlled from others: real processes, killed on both sides at every boundary."""

import asyncio
import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from bridle.cli.help_texts import load_help
from bridle.core.recovery.log_repair import fold_log
from bridle.events import ControlRefused, RunEnded, Steered, SubrunStarted, ToolFinished
from bridle.run.calls.approval import list_pending_approvals
from bridle.run.control.requests import SessionControl
from bridle.sessions import control
from bridle.stores import open_store
from bridle.values.calls import ApprovalAnswered, ApprovalVerdict, ControlRequested, control_log_name
from bridle.values.errors import Conflict, MisuseError, SessionNotFound
from bridle.values.record import GENESIS, seal_record
from tests.suite.command import bridle
from tests.suite.in_loop import in_loop
from tests.suite.patience import PATIENCE_SECONDS
from tests.suite.postgres_server import change_rows

PROGRAM = Path(__file__).with_name("controlled.py")
BLOCKED = '!call wait_for {"name": "go"}\n!then\n!say done'
PAYING = '!call pay {"amount": 7}\n!then\n!say done'


@pytest.fixture
def home(tmp_path, monkeypatch, shared_log):
    monkeypatch.setenv("BRIDLE_STORE", shared_log)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def start(home, shared_log):
    """Start a run in a process; it is killed at the end of the test."""
    running = []

    def run(prompt=BLOCKED, session="s", *options):
        command = [sys.executable, str(PROGRAM), shared_log, session, prompt, *options]
        process = subprocess.Popen(
            command, cwd=home, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        running.append(process)
        return process

    yield run
    for process in running:
        process.kill()
        process.communicate()


def finish(process):
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, err
    return json.loads(out)


async def wait_until(look):
    """The first true result of an async function."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (found := await look()):
            await asyncio.sleep(0.005)
        return found


async def wait_for_start(home, name="go"):
    async def has_started():
        return (home / f"{name}.started").exists()

    await wait_until(has_started)


async def wait_for_question(store, session="s"):
    async def look():
        records = await store.read(session)
        return list_pending_approvals(session, fold_log(records).state) if records else ()

    return (await wait_until(look))[0]


def events_of(records, kind):
    return [record.event for record in records if isinstance(record.event, kind)]


@in_loop
async def test_a_run_is_steered_paused_and_cancelled_from_another_process(home, start, shared_log):
    process = start()
    await wait_for_start(home)
    store = open_store(shared_log)
    desk = control(store, "s")
    steered = await desk.steer("Use euros. \x1b[31m", by="ann")
    paused = await desk.pause(by="bob")
    assert (steered.status, paused.status) == ("taken", "taken")
    cancelled = await desk.cancel(by="eve \u202e")
    assert finish(process) == {"stop": "cancelled", "reason": "cancelled by eve \u202e", "text": ""}
    records = await store.read("s")
    assert events_of(records, Steered)[0].by == "ann"
    end = records[cancelled.record - 1].event
    assert (end.stop, end.by, end.request) == ("cancelled", "eve \u202e", cancelled.request)
    with pytest.raises(MisuseError, match="is not running: its last run ended as cancelled"):
        await desk.cancel()
    await store.close()


@in_loop
async def test_a_pause_ends_the_run_after_its_step_and_resume_continues_it(home, start, shared_log):
    process = start()
    await wait_for_start(home)
    store = open_store(shared_log)
    await control(store, "s").pause(by="ann")
    (home / "go").touch()
    ended = finish(process)
    assert (ended["stop"], ended["reason"]) == ("paused", "paused by ann")
    await store.close()
    assert finish(start("", "s", "--resume"))["text"] == "done"


@in_loop
async def test_an_approval_from_another_process_is_taken_at_once(home, start, shared_log):
    process = start(PAYING)
    store = open_store(shared_log)
    question = await wait_for_question(store)
    await store.close()
    done = await asyncio.to_thread(
        bridle, "approvals", "approve", question.id, "--arguments", '{"amount": 5}', "--by", "ann"
    )
    assert done.code == 0, done.err
    assert "the run of session s continues" in done.out
    assert finish(process)["text"] == "done"
    assert (home / "paid").read_text() == "5 "
    report = json.loads(bridle("show", "--as", "audit", "s", "--json").out)
    (approved,) = [entry for entry in report["entries"] if entry["kind"] == "approved"]
    assert (approved["by"], json.loads(approved["edited_arguments"])) == ("ann", {"amount": 5})


@in_loop
async def test_forged_and_useless_requests_are_refused_and_change_nothing(home, start, shared_log):
    """Anyone who can write the store can write its control logs: an approval still needs the key of the user."""
    process = start(PAYING)
    store = open_store(shared_log)
    question = await wait_for_question(store)
    forged = ApprovalAnswered(
        call_id=question.call_id, binding=question.binding, answer="approve", proof="0" * 64
    )
    requests = (
        ControlRequested(action="answer", run="m1", by="mallory", answer=forged),
        ControlRequested(action="answer", run="m1", by="mallory"),
        ControlRequested(action="steer", run="m1", by="mallory", text="  "),
        ControlRequested(action="steer", run="m1", by="mallory", text="x" * 200_000),
        Steered(message="not a request"),
        ControlRequested(action="cancel", run="m7", by="mallory"),
    )
    name, prev = control_log_name("s"), GENESIS
    for seq, event in enumerate(requests, 1):
        record = seal_record(seq, 1.0, event, prev)  # type: ignore[arg-type]
        await store.append(name, seq - 1, (record,))
        prev = record.hash
    desk = control(store, "s")
    with pytest.raises(MisuseError, match="no pending approval"):
        await desk.answer("zz", ApprovalVerdict(answer="approve"))
    await desk.answer(question.id, ApprovalVerdict(answer="reject", reason="no", by="ann"))
    assert finish(process)["text"] == "done"
    assert not (home / "paid").exists()
    refused = events_of(await store.read("s"), ControlRefused)
    assert [event.action for event in refused] == ["answer", "answer", "steer", "steer"]
    assert "no valid proof" in refused[0].why
    await store.close()


@pytest.mark.parametrize("action", ["cancel", "pause", "steer"])
@in_loop
async def test_a_request_that_came_too_late_for_a_run_does_not_meet_the_resumed_one(
    home, start, shared_log, action
):
    process = start()
    await wait_for_start(home)
    store = open_store(shared_log)
    length = len(await store.read("s"))
    assert (await control(store, "s").cancel(by="ann")).status == "taken"
    finish(process)
    # A second click, sent before the end of the run and not taken: its sender was told so.
    name = control_log_name("s")
    (first,) = await store.read(name)
    late = replace(first.event, action=action, text="again", by="bob", after=length)
    await store.append(name, 1, (seal_record(2, first.at, late, first.hash),))
    (home / "go").touch()
    assert finish(start("", "s", "--resume")) == {"stop": "done", "reason": "", "text": "done"}
    assert not events_of(await store.read("s"), Steered)
    await store.close()


class SlowControl(SessionControl):
    """Has read the log, and waits before it writes its request."""

    def __init__(self, *given):
        super().__init__(*given)
        self.has_read, self.go = asyncio.Event(), asyncio.Event()

    async def _append(self, request):
        self.has_read.set()
        await self.go.wait()
        return await super()._append(request)


@in_loop
async def test_a_sender_hears_that_the_run_it_saw_has_ended_and_was_resumed(home, start, shared_log):
    both = '!call wait_for {"name": "go"}\n!then\n!call wait_for {"name": "next"}\n!then\n!say done'
    process = start(both)
    await wait_for_start(home)
    store = open_store(shared_log)
    late = SlowControl(store, "s")
    cancelling = asyncio.create_task(late.cancel(by="ann", wait_seconds=PATIENCE_SECONDS))
    await late.has_read.wait()
    await control(store, "s").pause(by="bob")
    (home / "go").touch()
    assert finish(process)["stop"] == "paused"
    resumed = start("", "s", "--resume")
    await wait_for_start(home, "next")
    late.go.set()
    with pytest.raises(Conflict, match="ended before it took the request up, and no later run will"):
        await cancelling
    (home / "next").touch()
    assert finish(resumed)["text"] == "done"
    await store.close()


@in_loop
async def test_a_damaged_control_log_stops_requests_and_not_the_run(home, start, shared_log):
    store = open_store(shared_log)
    record = seal_record(1, 1.0, ControlRequested(action="pause", run="m0"), GENESIS)
    await store.append(control_log_name("s"), 0, (record,))
    await store.close()
    change_rows(shared_log, "UPDATE events SET data = replace(data, 'm0', 'm1')")
    (home / "go").touch()
    process = start()
    assert finish(process)["text"] == "done"


@in_loop
async def test_many_controllers_at_once_are_all_taken_in_order_and_once(home, start, shared_log):
    process = start()
    await wait_for_start(home)
    stores = [open_store(shared_log) for _ in range(4)]
    sent = [
        control(stores[number % 4], "s").steer(f"message {number}", by=f"person {number}")
        for number in range(12)
    ]
    outcomes = await asyncio.gather(*sent)
    assert {outcome.status for outcome in outcomes} == {"taken"}
    results = await asyncio.gather(
        *(control(store, "s").cancel(by="one of four") for store in stores), return_exceptions=True
    )
    taken = [each for each in results if not isinstance(each, BaseException)]
    assert len(taken) == 1
    assert all(
        isinstance(each, Conflict | MisuseError) for each in results if isinstance(each, BaseException)
    )
    finish(process)
    records = await stores[0].read("s")
    assert sorted(event.message for event in events_of(records, Steered)) == sorted(
        f"message {number}" for number in range(12)
    )
    assert len({event.request for event in events_of(records, Steered)}) == 12
    assert len(events_of(records, RunEnded)) == 1
    for store in stores:
        await store.close()


@in_loop
async def test_a_session_that_no_process_runs_is_named_as_such(home, start, shared_log):
    store = open_store(shared_log)
    with pytest.raises(SessionNotFound):
        await control(store, "s").cancel()
    process = start()
    await wait_for_start(home)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    for act in ("cancel", "pause"):
        done = await asyncio.to_thread(bridle, "session", act, "s")
        assert done.code == 2
        assert "no process runs session 's'" in done.err
        assert "bridle resume s" in done.err
    assert await store.read(control_log_name("s")) == ()
    await store.close()


KILLED_AT = range(3, 12)


@pytest.mark.parametrize("count", KILLED_AT)
@in_loop
async def test_a_request_survives_the_death_of_the_run_at_every_record(home, start, shared_log, count):
    """The run is killed after each of its records, with a message and an answer under way; nothing is taken twice."""
    process = start(PAYING, "s", "--kill-after", str(count))
    store = open_store(shared_log)
    desk = control(store, "s")

    async def act():
        question = await wait_for_question(store)
        await desk.steer("!say done", by="ann")
        await desk.answer(question.id, ApprovalVerdict(answer="approve", by="bob"))

    acting = asyncio.create_task(act())
    waited = asyncio.create_task(asyncio.to_thread(process.wait))
    await asyncio.wait((acting, waited), return_when=asyncio.FIRST_COMPLETED)
    if not waited.done():
        await waited
    acting.cancel()
    (outcome,) = await asyncio.gather(acting, return_exceptions=True)
    assert isinstance(outcome, Conflict | MisuseError | asyncio.CancelledError | type(None)), outcome  # type: ignore[has-type]
    before = await store.read("s")
    if process.returncode == 0:
        assert (home / "paid").read_text() == "7 "
        await store.close()
        return
    assert process.returncode == -signal.SIGKILL
    again = start("", "s", "--resume")

    async def answer_again():
        records = await store.read("s")
        questions = list_pending_approvals("s", fold_log(records).state)
        if questions and again.poll() is None and len(records) > len(before):
            try:
                await desk.answer(questions[0].id, ApprovalVerdict(answer="approve", by="bob"))
            except (Conflict, MisuseError):
                return again.poll() is not None
        return again.poll() is not None

    await wait_until(answer_again)
    assert finish(again)["text"] == "done"
    records = await store.read("s")
    messages = [event.message for event in events_of(records, Steered)]
    assert messages in ([], ["!say done"])
    requested = [
        record for record in await store.read(control_log_name("s")) if record.event.action == "steer"
    ]
    assert len(messages) == len(requested)
    assert (home / "paid").read_text().split() in (["7"], ["7", "7"] if count >= 8 else ["7"])
    await store.close()


@in_loop
async def test_a_request_that_a_dying_process_left_is_taken_by_the_next_resume(home, start, shared_log):
    process = start()
    await wait_for_start(home)
    os.kill(process.pid, signal.SIGSTOP)
    store = open_store(shared_log)
    steering = asyncio.create_task(asyncio.to_thread(bridle, "session", "steer", "s", "!say steered"))

    async def is_sent():
        return await store.read(control_log_name("s"))

    await wait_until(is_sent)
    process.kill()
    process.wait()
    told = await steering
    assert told.code == 2
    assert "the request stays, and the next `bridle resume s` takes it up" in " ".join(told.err.split())
    assert events_of(await store.read("s"), Steered) == []
    (home / "go").touch()
    assert finish(start("", "s", "--resume"))["stop"] == "done"
    assert [event.message for event in events_of(await store.read("s"), Steered)] == ["!say steered"]
    await store.close()


@in_loop
async def test_a_request_that_a_run_missed_by_ending_is_taken_by_none(home, start, shared_log):
    process = start("!say done", "s")
    finish(process)
    store = open_store(shared_log)
    desk = control(store, "s")
    request = ControlRequested(action="steer", run="m1", by="ann", text="late")
    with pytest.raises(Conflict, match="ended before it took the request up, and no later run will"):
        await desk._wait_until_taken(request, await desk._append(request), 0, 1)
    finish(start("!say again", "s"))
    assert events_of(await store.read("s"), Steered) == []
    await store.close()


@in_loop
async def test_a_controller_that_is_killed_leaves_its_request_or_none(home, start, shared_log):
    """Killed after its append, the request is carried out; killed before it, nothing happens."""
    process = start()
    await wait_for_start(home)
    program = (
        "import asyncio, os, sys\n"
        "from bridle.sessions import control\n"
        "from bridle.run.control.requests import SessionControl\n"
        "async def die(*given): os._exit(9)\n"
        "SessionControl.{method} = die\n"
        "asyncio.run(control(sys.argv[1], 's').steer('from the dead', by='ann'))\n"
    )
    store = open_store(shared_log)
    for method, count in (("_append", 0), ("_wait_until_taken", 1)):
        command = [sys.executable, "-c", program.format(method=method), shared_log]
        ended = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
        assert ended.returncode == 9, ended.stderr
        assert len(await store.read(control_log_name("s"))) == count

    async def is_taken():
        return events_of(await store.read("s"), Steered)

    assert [event.message for event in await wait_until(is_taken)] == ["from the dead"]
    await control(store, "s").cancel()
    finish(process)
    await store.close()


@in_loop
async def test_a_stopped_process_loses_the_session_to_a_takeover(home, start, shared_log):
    process = start()
    await wait_for_start(home)
    os.kill(process.pid, signal.SIGSTOP)
    store = open_store(shared_log)
    sent = await control(store, "s").steer("!say done", by="ann", wait_seconds=0.2)
    assert sent.status == "sent"
    (home / "go").touch()
    new = start("", "s", "--resume", "--take-over")
    assert finish(new)["text"] == "done"
    os.kill(process.pid, signal.SIGCONT)
    _, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode != 0
    assert "taken over" in err
    records = await store.read("s")
    assert [event.message for event in events_of(records, Steered)] == ["!say done"]
    assert [event.stop for event in events_of(records, RunEnded)] == ["done"]
    kinds = [
        entry["kind"] for entry in json.loads(bridle("show", "--as", "audit", "s", "--json").out)["entries"]
    ]
    assert "taken over" in kinds
    await store.close()


@in_loop
async def test_a_takeover_includes_the_runs_inside_tools(home, start, shared_log):
    inner = '!call hold {"name": "go"}\n!call hold {"name": "next"}\n!then\n!say in'
    process = start(f"!call inner {json.dumps({'prompt': inner})}\n!then\n!say done")
    await wait_for_start(home)
    os.kill(process.pid, signal.SIGSTOP)
    (home / "go.started").unlink()
    new = start("", "s", "--resume", "--take-over")
    await wait_for_start(home)
    os.kill(process.pid, signal.SIGCONT)
    (home / "go").touch()
    _, err = await asyncio.to_thread(process.communicate, timeout=PATIENCE_SECONDS)
    (home / "next").touch()
    assert finish(new)["text"] == "done"
    assert process.returncode != 0
    assert "session 's' was taken over" in err
    store = open_store(shared_log)
    (nested,) = events_of(await store.read("s"), SubrunStarted)
    (returned,) = events_of(await store.read("s"), ToolFinished)
    assert (returned.result.outcome, returned.result.text) == ("ok", "in")
    assert [event.stop for event in events_of(await store.read(nested.session), RunEnded)] == ["done"]
    old, mine = process.pid, new.pid
    assert (home / "held").read_text().split() == [f"{old}:go", f"{mine}:go", f"{mine}:next"]
    await store.close()


@pytest.mark.slow
@in_loop
async def test_the_examples_of_the_help_work(home, start, shared_log):
    store = open_store(shared_log)
    for name in ("steer", "pause", "cancel"):
        for line, _ in load_help().examples[f"session {name}"]:
            (home / "go.started").unlink(missing_ok=True)
            process = start(BLOCKED, f"{name}")
            await wait_for_start(home)
            words = [name if word == "SESSION" else word for word in shlex.split(line)[1:]]
            done = await asyncio.to_thread(bridle, *words)
            assert done.code == 0, done.err
            process.kill()
            process.wait()
    await store.close()
