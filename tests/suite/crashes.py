"""Crashes at a chosen write: a store that fails as if its process had ended, and processes that are killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from bridle.stores.memory import MemoryStore
from bridle.values.errors import StoreError

RECORDS_MAX = 80


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
    that ends before its kill is not yielded.
    """
    module = Path(test_file).stem
    for count in range(2, RECORDS_MAX):
        folder = tmp_path / str(count)
        folder.mkdir()
        program = f"import {module}; {module}.run_and_kill(*{(str(folder), count, *arguments)!r})"
        child = subprocess.run(
            [sys.executable, "-c", program], cwd=Path(test_file).parent, capture_output=True, text=True
        )
        if child.returncode == 0:
            assert count > 8, "fewer records than the run writes"
            return
        assert child.returncode == -signal.SIGKILL, child.stderr
        yield count, folder
    raise AssertionError("the run was never finished before the kill")
