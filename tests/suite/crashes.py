"""Crashes at a chosen write: a store that fails as if its process had ended, and processes that are killed."""

import asyncio
import os
import random
import select
import signal
import sys
import time

from bridle.stores.memory import MemoryStore
from bridle.values.errors import StoreError
from bridle.values.events import Prompted
from bridle.values.message import Text
from bridle.values.record import GENESIS, seal_record
from tests.suite.campaign import IS_WHOLE
from tests.suite.fork_server import ForkServer

RECORDS_MAX, KILL_STEP = 80, 5
TEXT_SIZES = (10, 10, 500, 5_000, 70_000)
FIRST_APPEND_SECONDS = 30


class CrashingStore(MemoryStore):
    """A store whose process ends with the n-th write: that write is durable, and none after it is."""

    def __init__(self, left=None):
        super().__init__()
        self.left = left

    async def append(self, session, after, records, *, epoch=None):
        if self.left == 0:
            raise StoreError("the process is gone")
        await super().append(session, after, records, epoch=epoch)
        if self.left is not None:
            self.left -= 1
            if self.left == 0:
                raise StoreError("the process is gone")


def kill_after_record(count):
    """Kill this process with SIGKILL as soon as it has recorded `count` events."""
    seen = 0

    def kill(name, _):
        nonlocal seen
        if name == "bridle.recorded":
            seen += 1
            if seen == count:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(kill)


def kill_after_every_record(tmp_path, test_file, *arguments):
    """Yield the count and the folder of runs that were killed after their second, third … record.

    Each run is `run_and_kill(folder, count, *arguments)` of the test file, in a process of its own.  The last run
    that ends before its kill is not yielded. Unless campaigns are whole, every fifth record is tried.
    """
    printed = tmp_path / "printed"
    with ForkServer(test_file) as server:
        for count in range(2, RECORDS_MAX, 1 if IS_WHOLE else KILL_STEP):
            folder = tmp_path / str(count)
            folder.mkdir()
            status = server.run("run_and_kill", str(folder), count, *arguments, output=printed)
            if status == 0:
                assert count > 8, "fewer records than the run writes"
                return
            assert status == -signal.SIGKILL, printed.read_text()
            yield count, folder
    raise AssertionError("the run was never finished before the kill")


async def append_forever(store, sessions, chance, acknowledge):
    """Continue the logs with random records; a line per acknowledged append is written to the descriptor."""

    async def drive(session):
        known = await store.read(session)
        seq, prev = (known[-1].seq, known[-1].hash) if known else (0, GENESIS)
        while True:
            records = []
            for _ in range(chance.randint(1, 3)):
                seq += 1
                event = Prompted(parts=(Text(text=chance.choice("abc") * chance.choice(TEXT_SIZES)),))
                records.append(seal_record(seq, float(seq), event, prev))
                prev = records[-1].hash
            await store.append(session, records[0].seq - 1, records, epoch=0)
            os.write(acknowledge, f"{session} {seq} {prev}\n".encode())

    await asyncio.gather(*(drive(session) for session in sessions))


def kill_appending_child(open_store, sessions, chance, life_seconds):
    """Fork a child that opens the store and appends, and kill it; returns the acknowledged session, number and hash.

    The child lives up to `life_seconds` after its first append; one in ten may die while it opens the store.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)

        async def main():
            await append_forever(open_store(), sessions, random.Random(chance.random()), writing)

        try:
            asyncio.run(main())
        finally:
            os._exit(9)  # it never ends by itself
    os.close(writing)
    if chance.random() < 0.9:
        select.select([reading], [], [], FIRST_APPEND_SECONDS)
    time.sleep(chance.random() * life_seconds)
    os.kill(child, signal.SIGKILL)
    with os.fdopen(reading) as pipe:
        lines = [line.split() for line in pipe if line.endswith("\n")]
    status = os.waitpid(child, 0)[1]
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL, "the child failed before it was killed"
    return lines
