"""Many viewers and many runs at once: none is dropped, slow viewers miss no record, and memory is bounded.

BRIDLE_CAMPAIGN=10 makes it 500 viewers and 200 runs.
"""

import asyncio
import re

import pytest

from bridle.events import RunEnded
from bridle.serve.client import ServedEvent
from tests.serve.server_process import ServerProcess
from tests.serve.serving import free_port
from tests.suite.campaign import SCALE, new_random, scale
from tests.suite.in_loop import in_loop
from tests.suite.patience import PATIENCE_SECONDS

VIEWERS, RUNS, SLOW = scale(50, least=10), scale(20, least=4), scale(2)
WORDS = " ".join(f"word{number}" for number in range(200))
STEPS = "".join(f'!then\n!call count {{"number": {number}}}\n' for number in range(5))
PROMPT = f'!call wait_for {{"name": "go"}}\n{STEPS}!then\n!say {WORDS}'
KILLS = 2 + int(SCALE) // 2
KILLED_PROMPT = (
    "".join(f'!pace 20\n!call count {{"number": {number}}}\n!then\n' for number in range(12)) + "!say done"
)
MEMORY_ALLOWED = 30_000_000 + 100_000 * (VIEWERS + SLOW) + 300_000 * RUNS
"""Bytes above those of an idle server: 30 MB, and what a viewer with its connection and a run may cost."""


@pytest.fixture
def server(tmp_path):
    made = ServerProcess(tmp_path, free_port(), "--runs", str(RUNS))
    yield made
    made.close()


async def watch(client, session, seen):
    text = ""
    async for item in client.stream(session):
        if isinstance(item, ServedEvent):
            seen.append(item.seq)
            last = item.event
        else:
            text += item.text
    return last, text


class SlowViewer:
    """A viewer that asks for a stream and reads nothing until it is told to."""

    def __init__(self, port, session):
        self._port, self._session = port, session

    async def connect(self, last=0):
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port, limit=1024)
        lines = [f"GET /api/sessions/{self._session}/stream HTTP/1.1", f"host: 127.0.0.1:{self._port}"]
        lines += [f"last-event-id: {last}", "connection: close", "", ""]
        self._writer.write("\r\n".join(lines).encode())
        await self._writer.drain()

    async def read_ids(self):
        received = await self._reader.read()
        self._writer.close()
        return [int(found) for found in re.findall(rb"(?m)^id: (\d+)$", received)]


@pytest.mark.slow
@in_loop
async def test_a_server_killed_again_and_again(server, tmp_path, capsys):
    """Kills at random moments: every run resumes, and every viewer sees every record once."""
    draw = new_random(__name__)
    client = server.start()
    sessions = [f"run-{number}" for number in range(scale(5, least=2))]
    await asyncio.gather(*(client.prompt(KILLED_PROMPT, session=name, new=True) for name in sessions))
    seen = [[] for _ in range(3 * len(sessions))]
    viewers = [
        asyncio.create_task(watch(client, sessions[number % len(sessions)], ids))
        for number, ids in enumerate(seen)
    ]
    kills = 0
    async with asyncio.timeout(4 * PATIENCE_SECONDS):
        for _ in range(KILLS):
            wanted = sum(map(len, seen)) + draw.randint(1, 10 * len(seen))
            while sum(map(len, seen)) < wanted and not all(task.done() for task in viewers):
                await asyncio.sleep(0.005)
            kills += not all(task.done() for task in viewers)
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
        ends = await asyncio.gather(*viewers)
    for (last, _), ids in zip(ends, seen, strict=True):
        assert isinstance(last, RunEnded) and last.stop == "done"
        assert ids == list(range(1, len(ids) + 1)), "a record is missing or repeated"
    with capsys.disabled():
        print(f"\n{len(sessions)} runs, {len(viewers)} viewers, {kills} kills in the middle: no gap")


@in_loop
async def test_many_viewers_and_runs(server, tmp_path, capsys):
    client = server.start()
    sessions = [f"run-{number}" for number in range(RUNS)]
    idle = server.read_memory()
    await asyncio.gather(*(client.prompt(PROMPT, session=name, new=True) for name in sessions))
    running = server.read_memory()
    seen = [[] for _ in range(VIEWERS)]
    viewers = [
        asyncio.create_task(watch(client, sessions[number % RUNS], ids)) for number, ids in enumerate(seen)
    ]
    slow = [SlowViewer(server.port, sessions[number % RUNS]) for number in range(SLOW)]
    await asyncio.gather(*(each.connect() for each in slow))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not all(seen):
            await asyncio.sleep(0.05)
    watched = server.read_memory()
    (tmp_path / "go").touch()
    peak = watched
    async with asyncio.timeout(4 * PATIENCE_SECONDS):
        while not all(task.done() for task in viewers):
            await asyncio.wait(viewers, timeout=0.5)
            peak = max(peak, server.read_memory())
    for task, ids in zip(viewers, seen, strict=True):
        last, text = task.result()
        assert isinstance(last, RunEnded) and last.stop == "done"
        assert ids == list(range(1, len(ids) + 1)), "a record is missing or repeated"
        assert text in WORDS  # deltas may be missing, at the start or the end; none is repeated
    for number, each in enumerate(slow):
        ids = await each.read_ids()
        length = len(seen[number % RUNS])
        if ids != list(range(1, length + 1)):  # the server closed it: it resumes
            assert ids == list(range(1, len(ids) + 1))
            await each.connect(len(ids))
            assert await each.read_ids() == list(range(len(ids) + 1, length + 1))
    page = await client.sessions()
    assert {row.status for row in page.sessions} == {"done"}
    with capsys.disabled():
        sizes = ", ".join(
            f"{name} {size / 1e6:.0f} MB"
            for name, size in (("idle", idle), ("runs", running), ("viewers", watched), ("peak", peak))
        )
        print(f"\n{VIEWERS} viewers, {RUNS} runs: {sizes}")
    assert peak - idle < MEMORY_ALLOWED
