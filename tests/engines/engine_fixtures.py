"""Agents and helpers for tests of engines."""

import asyncio
import os
import re
import subprocess
import sys
from itertools import groupby
from pathlib import Path
from uuid import uuid4

from msgspec.structs import replace

from bridle import Agent, tool
from bridle.values.events import ToolFinished
from tests.suite.patience import PATIENCE_SECONDS

VOLATILE = (
    "latency", "random_draw", "started_at", "expires_at", "epoch", "asked_at", "key", "proof", "request", "engine",
)  # fmt: skip
"""Fields that differ between two runs of one process too; and the one that says that an engine resumed a run."""


@tool(effect="read")
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool(effect="write", approve=True, on_unknown="retry")
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def new_queue():
    return f"test-{uuid4().hex[:8]}"


def describe_log(records):
    """The events of a log, without what differs between two equal runs, such as which parallel call ends first."""
    shown = []
    for record in records:
        event = record.event
        fields = {name: None for name in VOLATILE if getattr(event, name, None) is not None}
        shown.append(replace(event, **fields) if fields else event)
    return [
        event
        for kind, group in groupby(shown, type)
        for event in (sorted(group, key=lambda each: each.result.call_id) if kind is ToolFinished else group)
    ]


async def wait_until(look):
    """The first true result of an async function."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (found := await look()):
            await asyncio.sleep(0.01)
        return found


async def wait_for_question(run):
    async def look():
        return (await run.status()).state == "waiting" and await run.approvals()

    return (await wait_until(look))[0]


def make_agent(store, **options):
    given = {"name": "clerk", "tools": [add, pay], "random_source": lambda: 0.5, **options}
    return Agent("sim:", store=store, **given)


HISTORIES = Path(__file__).with_name("histories")
WORKER_FILE = Path(__file__).with_name("engine_worker.py")


class WorkerProcess:
    """A process `bridle worker`, which tests kill."""

    def __init__(self, host, store, queue, folder, *options, **environment):
        command = [sys.executable, "-m", "bridle.cli.main", "worker", str(WORKER_FILE), "--temporal", host]
        command += ["--queue", queue, "--store", store, "--json", *options]
        variables = {**os.environ, "LEDGER": str(folder), **environment}
        with (folder / "worker.log").open("ab") as log:
            self.process = subprocess.Popen(
                command, env=variables, stdout=subprocess.PIPE, stderr=log, text=True
            )

    def wait_until_ready(self):
        line = self.process.stdout.readline()
        assert line, "the worker did not start"
        return self

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def save_history(history, name):
    """Save a history to be replayed by later releases, if $BRIDLE_SAVE_HISTORY names this one; without the machine's name."""
    if release := os.environ.get("BRIDLE_SAVE_HISTORY"):
        HISTORIES.mkdir(exist_ok=True)
        text = re.sub(r"\d+@[\w.-]+", "worker", history.to_json())
        (HISTORIES / f"{release}-{name}.json").write_text(text + "\n")


def read_lines(path):
    return path.read_text().splitlines() if path.exists() else []
