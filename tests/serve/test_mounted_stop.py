"""A router in an application that another server runs: it is told to stop while streams are open."""

import asyncio
import signal
import subprocess
import sys

import pytest

from bridle.serve import Client
from bridle.serve.stop_signals import StopSignals
from bridle.stores import open_store
from tests.suite.in_loop import in_loop
from tests.suite.paths import ROOT
from tests.suite.patience import PATIENCE_SECONDS

STOP_SECONDS_MAX = 10.0
"""Time in which a server must end; a supervisor such as `docker stop` kills it after 10, Kubernetes after 30."""
UNTIL_NEVER = "/agents/api/sessions/{}/stream?until=never"


@pytest.fixture
def service(tmp_path):
    """The program, and its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.serve.mounted_service"],
        cwd=tmp_path, env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    yield process, process.stdout.readline().strip()
    process.kill()
    process.communicate()


async def open_get(url, path, *headers):
    """A GET request whose reply has begun: its reader, after the head and the first bytes of the body."""
    host = url.removeprefix("http://")
    reader, writer = await asyncio.open_connection(*host.split(":"))
    lines = [f"GET {path} HTTP/1.1", f"host: {host}", "accept: text/event-stream", *headers, "", ""]
    writer.write("\r\n".join(lines).encode())
    head = await reader.readuntil(b"\r\n\r\n")
    assert b" 200 OK" in head and b"text/event-stream" in head, head
    return reader, writer


async def stop(process, reader, number=signal.SIGTERM):
    """What its open stream still sends, and the exit code; fails if the server does not stop by itself in time."""
    process.send_signal(number)
    async with asyncio.timeout(STOP_SECONDS_MAX):
        rest = await reader.read()
        return rest, await asyncio.to_thread(process.wait, STOP_SECONDS_MAX)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda each: each.name)
@in_loop
async def test_a_server_with_an_open_stream_stops_when_it_is_told_to(service, number):
    process, url = service
    run = await Client(f"{url}/agents").prompt("!say hello", agent="helper", session="a", new=True)
    reader, writer = await open_get(url, UNTIL_NEVER.format(run.session))
    seen = await reader.readuntil(b"event: run_ended")
    assert b"hello" in seen
    _, code = await stop(process, reader, number)
    assert code in (0, -number)
    writer.close()


@in_loop
async def test_runs_are_left_resumable_and_their_viewers_see_why(service, tmp_path):
    process, url = service
    await Client(f"{url}/agents").prompt(
        '!call wait_for {"name": "go"}\n!then\n!say done', agent="worker", session="a", new=True
    )
    reader, writer = await open_get(url, UNTIL_NEVER.format("a"))
    await reader.readuntil(b"event: tool_started")
    rest, _ = await stop(process, reader)
    writer.close()
    assert b"by the server's shutdown" in rest
    store = open_store(tmp_path / "log.db")
    (*_, last) = await store.read("a")
    await store.close()
    assert last.event.stop == "cancelled" and "the server's shutdown" in last.event.reason


@in_loop
async def test_a_stream_of_an_mcp_client_ends_as_well(service):
    pytest.importorskip("mcp")
    process, url = service
    reader, writer = await open_get(url, "/agents/mcp")
    await stop(process, reader)
    writer.close()


def test_handlers_of_others_stay_and_are_called():
    calls = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: calls.append("theirs"))
    try:

        async def receive():
            noticed = asyncio.Event()
            signals = StopSignals(noticed.set)
            signals.install()
            signal.raise_signal(signal.SIGTERM)
            await asyncio.wait_for(noticed.wait(), PATIENCE_SECONDS)
            signals.remove()

        asyncio.run(receive())
        assert calls == ["theirs"]
        signal.raise_signal(signal.SIGTERM)
        assert calls == ["theirs", "theirs"]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_signal_that_nobody_handles_keeps_its_meaning():
    before = signal.getsignal(signal.SIGTERM)
    assert before is signal.SIG_DFL

    async def install():
        signals = StopSignals(lambda: None)
        signals.install()
        assert signal.getsignal(signal.SIGTERM) is before
        signals.remove()

    asyncio.run(install())
