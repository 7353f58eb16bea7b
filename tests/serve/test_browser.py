"""The browser of the tests ends with the process that started it, however that ends."""

import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from tests.serve.browser import MISSING, find_browser
from tests.suite.patience import PATIENCE_SECONDS

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys
from tests.serve.browser import start_browser

print(start_browser(), flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
@pytest.mark.skipif(find_browser() is None, reason=MISSING)
@pytest.mark.skipif(
    not hasattr(os, "pidfd_open"), reason="waits for a process that is not a child, as Linux can"
)
def test_a_killed_process_leaves_no_browser():
    program = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(
        program, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as started:
        address = started.stdout.readline().strip()
        waiting = [os.pidfd_open(pid) for pid in list_descendants(started.pid)]
        assert address and waiting
        started.kill()
    while waiting:
        ended, _, _ = select.select(waiting, [], [], PATIENCE_SECONDS)
        assert ended, "the browser is still running"
        for descriptor in ended:
            waiting.remove(descriptor)
            os.close(descriptor)


def list_descendants(pid: int) -> list[int]:
    found = (path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children"))
    children = [int(child) for listed in found for child in listed]
    return [*children, *(each for child in children for each in list_descendants(child))]
