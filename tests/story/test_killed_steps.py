"""kill -9 after every record of a run with five payments, and again while it is resumed: on both stores.

BRIDLE_CAMPAIGN above 1 tries every policy on every store, and kills the resumed run at more of its records.

    python test_killed_steps.py --serve

reads words from its input, one process to a line: FOLDER POLICY COUNT.  It forks each, which runs or resumes the
payments and is killed after so many records, and answers with its status.
"""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from crashes import kill_after_record
from kill_agent import main
from test_kill import _check_all

from bridle import Agent
from bridle.stores import open_store
from bridle.testing import scripted

AMOUNTS = [1, 2, 3, 4, 5]
CAMPAIGN = int(os.environ.get("BRIDLE_CAMPAIGN", "1"))
EVERY = [(store, policy) for store in ("sqlite", "postgres") for policy in ("retry", "probe", "report")]
AGAIN = (2,) if CAMPAIGN == 1 else (1, 2, 3, 4)
"""Records of the resumed run after which it is killed too."""
RECORDS_MAX = 80


def serve():
    # What a run imports is imported once, and not by every process.
    open_store("postgresql://")
    asyncio.run(Agent(scripted("nothing to pay")).run("Pay."))
    for line in sys.stdin:
        folder, policy, count = line.split()
        child = os.fork()
        if child == 0:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            kill_after_record(int(count))
            asyncio.run(main(Path(folder), policy, "never", AMOUNTS))
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


@pytest.fixture
def run_and_kill():
    """Runs or resumes the payments of a folder in a process; returns True if it was killed before its end."""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", __file__, "--serve"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:

        def ask(folder, policy, count):
            server.stdin.write(f"{folder} {policy} {count}\n")
            server.stdin.flush()
            status = int(server.stdout.readline())
            assert status in (0, -signal.SIGKILL)
            return status != 0

        yield ask
        server.stdin.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("store", "policy"), EVERY if CAMPAIGN > 1 else [("postgres", "probe"), ("postgres", "report")]
)
def test_killed_after_every_record(request, tmp_path, run_and_kill, store, policy):
    url = request.getfixturevalue("postgres").new_url() if store == "postgres" else ""
    points = 0
    for count in range(1, RECORDS_MAX):
        folder = tmp_path / str(count)
        folder.mkdir()
        if url:
            (folder / "store").write_text(f"{url}_{count}")
        if not run_and_kill(folder, policy, count):
            break
        points += 1 + sum(run_and_kill(folder, policy, again) for again in AGAIN)
        _check_all(folder, policy, AMOUNTS)
    print(f"\n{store} {policy}: {points} kills")
    assert points >= 15


if __name__ == "__main__":
    serve()
