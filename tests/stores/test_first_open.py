"""Many processes open a store that is not there yet, at the same moment; each of them succeeds."""

import sqlite3
import subprocess
import sys
import threading

import pytest

from bridle.stores.sqlite.store import SqliteStore
from tests.suite.patience import PATIENCE_SECONDS

PROCESSES = 12
OPENING = """
import asyncio, sys
from bridle.stores.sqlite.store import SqliteStore
from bridle.values.events import RunEnded
from bridle.values.record import GENESIS, seal_record

async def write():
    await store.append(sys.argv[2], 0, [seal_record(1, 1.0, RunEnded(stop="done"), GENESIS)])
    assert len(await store.read(sys.argv[2])) == 1
    await store.close()

print("ready", flush=True)
sys.stdin.readline()
store = SqliteStore(sys.argv[1])
asyncio.run(write())
"""


def test_many_processes_make_one_new_file(tmp_path):
    command = [sys.executable, "-c", OPENING, str(tmp_path / "new.db")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    running = [subprocess.Popen([*command, f"s{number}"], **pipes) for number in range(PROCESSES)]  # type: ignore[call-overload]
    assert {process.stdout.readline() for process in running} == {"ready\n"}
    for process in running:
        process.stdin.write("\n")
        process.stdin.flush()
    ends = [(process.communicate(timeout=PATIENCE_SECONDS)[1], process.returncode) for process in running]
    assert ends == [("", 0)] * PROCESSES


@pytest.mark.parametrize("held_seconds", [0.3])
def test_a_file_that_another_process_is_just_making_is_waited_for(tmp_path, held_seconds):
    """The lock that switching to a write-ahead log takes, held for longer than one look at it."""
    path = tmp_path / "new.db"
    maker = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    maker.execute("PRAGMA locking_mode = EXCLUSIVE")
    maker.execute("BEGIN EXCLUSIVE")
    maker.execute("PRAGMA user_version = 0")
    timer = threading.Timer(held_seconds, maker.close)
    timer.start()
    try:
        assert SqliteStore(path).path == path
    finally:
        timer.join()
