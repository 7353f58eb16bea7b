"""Runs whose tools need a context are continued without their caller: one function makes it, for both commands."""

import asyncio
import json
import os
import signal
import subprocess
import sys

import pytest

from bridle.events import RunEnded
from bridle.stores import open_store
from tests.suite.command import bridle, start_bridle
from tests.suite.in_loop import in_loop
from tests.suite.patience import PATIENCE_SECONDS

CLINIC = '''
import os, signal
from pathlib import Path
from typing import NamedTuple
from bridle import Agent, RunContext, tool

class Clinic(NamedTuple):
    tenant: str
    caller: str

async def make_clinic(owner):
    return Clinic(owner.tenant, owner.caller)

@tool(effect="write", on_unknown="retry")
def write_off(run: RunContext[Clinic], usd: int) -> str:
    """Write off an amount; the first process does not live to see it."""
    if not Path("killed").exists():
        Path("killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    with Path("books").open("a") as file:
        file.write(f"{run.context.tenant} {run.context.caller} {usd}\\n")
    return "done"

clerk = Agent("sim:", name="clerk", tools=[write_off])
if __name__ == "__main__":
    clerk = Agent("sim:", name="clerk", tools=[write_off], store=os.environ["BRIDLE_STORE"])
    clerk.run_sync('!call write_off {"usd": 7}\\n!then\\n!say ok', "a", context=Clinic("?", "?"), tenant="acme", caller="ann")
'''


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A folder with an agent and the log of its run, whose process was killed."""
    monkeypatch.setenv("BRIDLE_STORE", str(tmp_path / "log.db"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "clinic.py").write_text(CLINIC)
    killed = subprocess.run([sys.executable, "clinic.py"], timeout=PATIENCE_SECONDS, check=False)
    assert killed.returncode == -signal.SIGKILL
    return tmp_path


def test_resume_all_makes_contexts(home):
    without = bridle("resume", "--all", "-a", "clinic.py", "--json")
    assert json.loads(without.out)[0]["reason"].startswith("tool `write_off` needs a context of type Clinic")
    done = bridle(
        "resume", "--all", "-a", "clinic.py", "--yes", "--context", "clinic.py:make_clinic", "--json"
    )
    assert done.code == 2 and "--yes" in done.err  # the agent has its own rules
    done = bridle("resume", "--all", "-a", "clinic.py", "--context", "clinic.py:make_clinic", "--json")
    assert (done.code, json.loads(done.out)[0]["status"]) == (0, "done"), done.err
    assert (home / "books").read_text() == "acme ann 7\n"


def test_resume_of_one_session_makes_its_context(home):
    done = bridle("resume", "a", "-a", "clinic.py", "--context", "clinic.py:make_clinic")
    assert done.code == 0, done.err
    assert (home / "books").read_text() == "acme ann 7\n"


async def wait_for_end(store, session):
    after = 0
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (records := await store.read(session, after)) or not isinstance(
            records[-1].event, RunEnded
        ):
            after = records[-1].seq if records else after
            await store.wait_for_records(session, after)


@in_loop
async def test_a_server_makes_contexts_with_the_same_function(home):
    options = ("--port", "0", "--json", "--context", "clinic.py:make_clinic")
    store = open_store(os.environ["BRIDLE_STORE"])
    with start_bridle("serve", "clinic.py", *options, cwd=home, environment={**os.environ}) as server:
        assert json.loads(server.stdout.readline())["url"]
        await wait_for_end(store, "a")
        server.terminate()
        assert server.wait(PATIENCE_SECONDS) == 0
    assert (home / "books").read_text() == "acme ann 7\n"
    await store.close()


@pytest.mark.parametrize(
    ("reference", "problem"),
    [("clinic.py:Nobody", "has no 'Nobody'"), ("clinic.py:clerk", "not a function that makes a context")],
)
def test_a_name_that_is_no_function_is_refused(home, reference, problem):
    done = bridle("resume", "--all", "-a", "clinic.py", "--context", reference)
    assert done.code == 2 and problem in done.err
