"""A server in a process of its own: killed, stopped and started again while runs work and viewers watch."""

import asyncio
import json
import os
import shlex
import signal
import subprocess
import sys

import pytest

from bridle.cli.help_texts import load_help
from bridle.events import Resumed, RunEnded, ToolFinished
from bridle.serve.api.types import SessionQuery
from bridle.serve.client import ServedEvent
from bridle.stores import open_store
from tests.serve.adopted_runs import find_record, is_appended
from tests.serve.server_process import ServerProcess
from tests.serve.serving import free_port
from tests.suite.command import bridle, start_bridle
from tests.suite.in_loop import in_loop
from tests.suite.patience import PATIENCE_SECONDS

WAITING = '!call append {{"text": "{name}"}}\n!then\n!call wait_for {{"name": "go"}}\n!then\n!say done {name}'


@pytest.fixture
def server(tmp_path):
    made = ServerProcess(tmp_path, free_port())
    yield made
    made.close()


async def watch(client, session):
    """Everything that a viewer of a session sees until its run ends."""
    return [item async for item in client.stream(session) if isinstance(item, ServedEvent)]


async def wait_for_file(path):
    while not path.exists():
        await asyncio.sleep(0.02)


def check_complete(seen, name):
    """Every record once and in order, and the answer at the end."""
    assert [item.seq for item in seen] == list(range(1, len(seen) + 1))
    assert isinstance(seen[-1].event, RunEnded) and seen[-1].event.stop == "done"


@in_loop
async def test_a_killed_server_resumes_its_runs_and_viewers_miss_nothing(server, tmp_path):
    client = server.start()
    names = [f"run-{number}" for number in range(6)]
    for name in names:
        await client.prompt(WAITING.format(name=name), session=name, new=True)
    viewers = [asyncio.create_task(watch(client, name)) for name in names for _ in range(3)]
    await wait_for_file(tmp_path / "go.started")
    store = open_store(tmp_path / "log.db")
    for name in names:  # a call whose receipt is not recorded yet may run again
        await find_record(store, name, is_appended)
    await store.close()
    server.kill()
    server.start()
    (tmp_path / "go").touch()
    async with asyncio.timeout(PATIENCE_SECONDS):
        seen = await asyncio.gather(*viewers)
    for items in seen:
        check_complete(items, "")
    # A call with a receipt does not run again.
    assert sorted((tmp_path / "appended").read_text().split()) == names
    page = await client.sessions(SessionQuery(status="done"))
    assert {row.session for row in page.sessions} == set(names)
    resumed = [item for items in seen for item in items if isinstance(item.event, Resumed)]
    assert len(resumed) == 3 * len(names)


@in_loop
async def test_a_stopped_server_leaves_its_runs_resumable(server, tmp_path):
    server.options = ("--shutdown-seconds", "1")
    client = server.start()
    run = await client.prompt(WAITING.format(name="a"), session="a", new=True)
    await wait_for_file(tmp_path / "go.started")
    assert "1 run ends after its step" in server.stop()
    assert server.process.returncode == 0
    store = open_store(tmp_path / "log.db")
    last = (await store.read("a"))[-1].event
    assert isinstance(last, RunEnded) and last.reason == "cancelled by the server's shutdown"
    await store.close()
    (tmp_path / "go").touch()
    server.start()
    async with asyncio.timeout(PATIENCE_SECONDS):
        seen = await watch(client, run.session)
        while (await client.session("a")).summary.status != "done":
            seen += [
                item async for item in client.stream("a", after=seen[-1].seq) if isinstance(item, ServedEvent)
            ]
    assert (await client.session("a")).answer == "done a"


@in_loop
async def test_a_payment_that_a_shutdown_interrupts_is_probed_at_the_next_start(server, tmp_path):
    server.options = ("--shutdown-seconds", "1")
    client = server.start()
    run = await client.prompt('!call pay {"number": 7}\n!then\n!say done', session="a", new=True)
    await wait_for_file(tmp_path / "paid")
    server.stop()
    store = open_store(tmp_path / "log.db")
    last = (await store.read("a"))[-1].event
    assert isinstance(last, RunEnded) and last.in_doubt == ("c1_0",)
    server.start()
    async with asyncio.timeout(PATIENCE_SECONDS):
        seen = await watch(client, run.session)
        while (await client.session("a")).summary.status != "done":
            seen += [
                item async for item in client.stream("a", after=seen[-1].seq) if isinstance(item, ServedEvent)
            ]
    events = [record.event for record in await store.read("a")]
    await store.close()
    (found,) = [event for event in events if isinstance(event, ToolFinished)]
    assert (found.source, found.result.text) == ("probe", "paid 7 before")
    assert (tmp_path / "paid").read_text() == "7\n"


@in_loop
async def test_a_run_between_steps_is_paused_at_shutdown(server, tmp_path):
    client = server.start()
    await client.prompt('!call wait_for {"name": "go"}\n!then\n!stall 0.2\n!say done', session="a", new=True)
    await wait_for_file(tmp_path / "go.started")
    stopping = asyncio.create_task(asyncio.to_thread(server.stop))
    store = open_store(tmp_path / "log.db")
    while not any(
        record.event.__struct_config__.tag == "pause_requested" for record in await store.read("a")
    ):
        await asyncio.sleep(0.01)
    (tmp_path / "go").touch()
    await stopping
    last = (await store.read("a"))[-1].event
    assert (last.stop, last.reason) == ("paused", "paused by the server's shutdown")
    await store.close()


@in_loop
async def test_without_resume_a_run_stays_as_it_is(server, tmp_path):
    client = server.start()
    await client.prompt(WAITING.format(name="a"), session="a", new=True)
    await wait_for_file(tmp_path / "go.started")
    server.kill()
    (tmp_path / "go").touch()
    server.options = ("--no-resume",)
    server.start()
    detail = await client.session("a")
    assert (detail.summary.status, detail.is_running) == ("unfinished", False)
    run = await client.resume("a")
    async for _ in client.stream("a", after=run.after):
        pass
    assert (await client.session("a")).answer == "done a"


@in_loop
async def test_more_runs_than_may_run_at_once_are_resumed_one_after_the_other(server, tmp_path):
    client = server.start()
    names = [f"run-{number}" for number in range(5)]
    for name in names:
        await client.prompt(WAITING.format(name=name), session=name, new=True)
    await wait_for_file(tmp_path / "go.started")
    server.kill()
    (tmp_path / "go").touch()
    server.options = ("--runs", "1")
    server.start()
    async with asyncio.timeout(PATIENCE_SECONDS):
        for name in names:
            check_complete(await watch(client, name), name)


@in_loop
async def test_a_second_signal_ends_the_server_at_once(server, tmp_path):
    server.options = ("--shutdown-seconds", "600")
    client = server.start()
    await client.prompt(WAITING.format(name="a"), session="a", new=True)
    await wait_for_file(tmp_path / "go.started")
    server.process.send_signal(signal.SIGINT)
    assert "Ctrl-C again" in await asyncio.to_thread(server.process.stderr.readline)
    server.process.send_signal(signal.SIGINT)
    await asyncio.to_thread(server.process.wait, PATIENCE_SECONDS)
    assert server.process.returncode == 130


@in_loop
async def test_sessions_of_other_processes_are_streamed_and_controlled(server, tmp_path):
    client = server.start()
    command = (
        "import asyncio, sys; from tests.serve.process_agents import worker; from bridle.run.context.resources import copy_agent;"
        "asyncio.run(copy_agent(worker, store='log.db').run(sys.argv[1], session='other'))"
    )
    prompt = WAITING.format(name="x")
    other = subprocess.Popen([sys.executable, "-c", command, prompt], cwd=tmp_path)
    try:
        await wait_for_file(tmp_path / "go.started")
        detail = await client.session("other")
        assert (detail.is_running, detail.is_live_here, detail.summary.status) == (True, False, "running")
        viewer = asyncio.create_task(watch(client, "other"))
        assert (await client.steer("other", "use euros", by="ann")).status == "taken"
        assert (await client.cancel("other", by="ann")).status == "taken"
        async with asyncio.timeout(PATIENCE_SECONDS):
            seen = await viewer
        assert [item.seq for item in seen] == list(range(1, len(seen) + 1))
        assert seen[-1].event.stop == "cancelled" and seen[-1].event.by == "ann"
    finally:
        other.wait(PATIENCE_SECONDS)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--host", "0.0.0.0"], "needs a token"),
        (["--host", "0.0.0.0", "--token", "short"], "fewer than 16"),
        (["--token", "x" * 20, "--token-file", "t"], "not both"),
        (["--token-file", "none"], "cannot read the token file"),
        (["nothing.py"], "no file 'nothing.py'"),
        (["--host", "203.0.113.7", "--token", "x" * 20], "cannot listen on 203.0.113.7"),
    ],
)
def test_a_server_that_cannot_start_says_why_in_one_line(tmp_path, options, problem):
    done = bridle("serve", "--store", "log.db", "--port", "0", *options, cwd=tmp_path)
    lines = [line for line in done.err.splitlines() if not line.startswith("note: ")]
    assert done.code == 2 and len(lines) == 1 and problem in lines[0], done.err


EXAMPLES = [
    line
    for line, _ in load_help().examples["serve"]
    if "--mcp" not in line and "--open" not in line  # cli/test_inspect_browser.py opens sessions
]
NEW_TOKEN = [line for line in EXAMPLES if "--new-token" in line]


@pytest.mark.parametrize("line", NEW_TOKEN)
def test_a_new_token_is_printed_with_its_lines_for_the_file(tmp_path, line):
    done = bridle(*shlex.split(line)[1:], cwd=tmp_path)
    assert done.code == 0, done.err
    assert '[tokens."alice"]' in done.out


@pytest.mark.parametrize("line", [line for line in EXAMPLES if line not in NEW_TOKEN])
def test_the_examples_of_the_help_work(tmp_path, line):
    app = "from bridle import Agent\nhelper = Agent('sim:')\ndef identify(request): return None\n"
    (tmp_path / "app.py").write_text(app)
    (tmp_path / "support.toml").write_text('model = "sim:"\n')
    (tmp_path / "token").write_text("x" * 30)
    printed = bridle("serve", "--new-token", "alice", cwd=tmp_path).out
    (tmp_path / "tokens.toml").write_text(printed[printed.index("[tokens") :])
    words = [*shlex.split(line)[1:], "--port", "0", "--json"]
    environment = {**os.environ, "BRIDLE_STORE": str(tmp_path / "log.db"), "XDG_CONFIG_HOME": str(tmp_path)}
    with start_bridle(*words, cwd=tmp_path, environment=environment) as process:
        assert json.loads(process.stdout.readline())["url"].startswith("http://")
        process.terminate()
        assert process.wait(PATIENCE_SECONDS) == 0


def test_agents_with_one_name_are_refused(tmp_path):
    (tmp_path / "a.py").write_text(
        "from bridle import Agent\nx = Agent('sim:', name='n')\ny = Agent('sim:', name='n')\n"
    )
    done = bridle("serve", "a.py", "--store", "log.db", "--port", "0", cwd=tmp_path)
    assert done.code == 2 and "two agents have the name 'n'" in done.err


def test_importing_bridle_does_not_import_the_server():
    code = "import sys, bridle; bridle.Agent; print([m for m in sys.modules if m.startswith(('starlette', 'uvicorn'))])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )
    assert done.stdout.strip() == "[]"
