"""Two thousand sessions at once where a process may open 1,024 files: all of them finish.

Every session waits in a tool until all the others are there too.  The provider is in the process, or the simulator in
a process of its own, which is asked over sockets.  The suite runs fewer sessions; BRIDLE_CAMPAIGN multiplies them, and

    python -m tests.campaigns.run_campaign crowds SESSIONS

runs both crowds with as many.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.campaigns.simulator_process import SERVER
from tests.suite.campaign import scale

SESSIONS = scale(1_500)
"""More than there may be open files."""
LIMITED = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))\n"
CROWD = """
import asyncio, resource, sys
from bridle import Agent
model, path, sessions = sys.argv[1], sys.argv[2], int(sys.argv[3])
assert resource.getrlimit(resource.RLIMIT_NOFILE) == (1024, 1024)
arrived, everybody = [], asyncio.Event()

async def meet():
    "Wait for all the others."
    arrived.append(1)
    if len(arrived) == sessions:
        everybody.set()
    await everybody.wait()
    return "here"

async def main():
    agent = Agent(model, tools=[meet], store=path)
    prompts = (f"!call meet {{}}\\n!then\\n!say hello {n}" for n in range(sessions))
    results = await asyncio.gather(*(agent.run(prompt, session=f"s{n}") for n, prompt in enumerate(prompts)))
    print(sum(result.done and result.text == f"hello {n}" for n, result in enumerate(results)))

asyncio.run(main())
"""
PLACES = ("in the process", "over sockets")


def count_finished(place: str, path: Path, sessions: int) -> int:
    """How many sessions of a crowd finished with their own words."""
    if place == "in the process":
        return crowd_of("sim:anthropic/claude-sonnet-5-5", path, sessions)
    with subprocess.Popen(
        [sys.executable, "-c", LIMITED + SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            found = {"ANTHROPIC_BASE_URL": server.stdout.readline().strip(), "ANTHROPIC_API_KEY": "sim"}
            return crowd_of("anthropic:claude-sonnet-5-5", path, sessions, **found)
        finally:
            server.communicate()


def crowd_of(model: str, path: Path, sessions: int, **environment: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED + CROWD, model, path, str(sessions)],
        env={**os.environ, **environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return int(done.stdout)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="limits on a process are POSIX")
@pytest.mark.parametrize("place", PLACES)
def test_more_sessions_at_once_than_there_may_be_open_files(tmp_path, place):
    assert count_finished(place, tmp_path / "log.db", SESSIONS) == SESSIONS


def main(sessions: int) -> None:
    for place in PLACES:
        with tempfile.TemporaryDirectory() as folder:
            begun = time.monotonic()
            count = count_finished(place, Path(folder) / "log.db", sessions)
            print(
                f"{place}: {count:,} of {sessions:,} sessions finished in {time.monotonic() - begun:.0f} s",
                flush=True,
            )
            assert count == sessions


if __name__ == "__main__":
    main(int(sys.argv[1]))
