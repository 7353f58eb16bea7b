"""A paused owner, a takeover that dies at any point, and one that completes it; with runs inside tools, on both stores.

The inner runs are those of agents, of programs (code mode), and of a model that an MCP server asks.  A process is
stopped or killed before or after any operation of its store.  Each tool writes its runs to a file.  Every 31st point
is tried; BRIDLE_CAMPAIGN=31 tries all.  The figures are in docs/evidence.md.
"""

import asyncio
import json
import os
import signal
import tempfile
from collections import Counter
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bridle import Agent, CodeMode, PermissionRule, Policy, tool
from bridle.stores import open_store
from bridle.stores.postgres.store import PostgresStore
from bridle.stores.sqlite.store import SqliteStore
from bridle.values import events as e
from bridle.values.errors import Conflict
from tests.suite.campaign import SCALE
from tests.suite.fork_server import FAILED, STOPPED, ForkServer
from tests.tools.mcp.mcp_servers import more_hostile

STRIDE = max(1, round(31 / max(SCALE, 1)))
REFUSED = 7
LOCKED = "another process keeps it locked"
POINTS_MAX = 600
COUNTS = Counter()
"""Rounds that passed, by store, scenario and kind; printed with `pytest -s`."""


def call_tool(name, arguments, then):
    return f"!call {name} {json.dumps(arguments)}\n!then\n{then}"


DEEP = call_tool("book", {"seat": 2}, "!say deep")
INNER = call_tool("book", {"seat": 1}, call_tool("deep", {"prompt": DEEP}, "!say in"))
CODE = f"""
book(seat=1)
print(deep(prompt={DEEP!r}))
book(seat=3)
"""
SAMPLING = {"method": "sampling/createMessage", "tries": 2}
SCENARIOS = {
    # prompt, how often each seat is booked at least
    "agents": (call_tool("inner", {"prompt": INNER}, "!say done"), {"1", "2"}),
    "program": (call_tool("run_code", {"code": CODE}, "!say done"), {"1", "2", "3"}),
    "sampling": (call_tool("mcp__h__ask", SAMPLING, call_tool("book", {"seat": 1}, "!say done")), {"1"}),
}


def make_agent(scenario, folder, store):
    @tool(effect="write", on_unknown="retry")
    def book(seat: int) -> str:
        """Book a seat."""
        with (Path(folder) / "booked").open("a") as file:
            file.write(f"{os.getpid()} {seat}\n")
        return f"seat {seat}"

    deep = Agent("sim:", name="deep", tools=[book]).as_tool()
    if scenario == "agents":
        inner = Agent("sim:", name="inner", tools=[book, deep])
        return Agent("sim:", tools=[inner.as_tool()], store=store)
    if scenario == "program":
        return Agent("sim:", tools=[book, deep], code_mode=CodeMode(sandbox=None), store=store)
    allowed = Policy(rules=(PermissionRule(decision="allow", tools=("mcp_sampling__h", "book")),))
    return Agent("sim:", tools=[more_hostile(trust=True, sampling=True), book], policy=allowed, store=store)


class Points:
    """Sends its process a signal at the n-th point."""

    def __init__(self, how, at):
        self._how, self._at, self.count = how, at, 0

    def reach(self):
        self.count += 1
        if self.count == self._at:
            os.kill(os.getpid(), self._how)


def make_store(log, points):
    """A store with a point before and after each of its operations."""

    class StoppingStore(PostgresStore if "://" in log else SqliteStore):  # type: ignore[misc]
        async def append(self, *arguments, **named):
            points.reach()
            await super().append(*arguments, **named)
            points.reach()

        async def read(self, *arguments):
            points.reach()
            return await super().read(*arguments)

        async def raise_epoch(self, *arguments):  # of SQLite
            points.reach()
            await super().raise_epoch(*arguments)
            points.reach()

        @asynccontextmanager
        async def lease(self, *arguments, **named):
            points.reach()
            async with super().lease(*arguments, **named) as lease:
                points.reach()
                yield lease

    return StoppingStore(log)


def warm_up():
    open_store("postgresql://")
    with tempfile.TemporaryDirectory() as folder:
        for scenario, (prompt, _) in SCENARIOS.items():
            asyncio.run(make_agent(scenario, folder, None).run(prompt, "s"))


def drive(scenario, folder, log, action, how=0, at=0):
    """Run, resume or take over the session in this process, which gets the signal `how` at its `at`-th point."""
    points = Points(how, at)

    async def main():
        agent = make_agent(scenario, folder, make_store(log, points))
        if action == "run":
            return await agent.run(SCENARIOS[scenario][0], "s")
        return await agent.resume("s", take_over=action == "take_over")

    try:
        result = asyncio.run(main())
    except Conflict as error:
        print(error)
        return REFUSED
    print(result.stop, result.text, result.reason, points.count)
    assert (result.stop, result.text) == ("done", "done")
    return 0


@pytest.fixture(scope="module")
def server():
    with ForkServer(__file__) as started:
        yield started
    for counted, number in sorted(COUNTS.items()):
        print("\n", *counted, number, end="")


class Place:
    """The files of one session, and its log."""

    def __init__(self, server, folder, log, scenario):
        folder.mkdir()
        self.server, self.folder, self.log, self.scenario = server, folder, log, scenario
        self.ended, self.outputs = set(), {}

    def start(self, action, how=0, at=0):
        arguments = (self.scenario, str(self.folder), self.log, action, int(how), at)
        process = self.server.start("drive", *arguments, output=self.folder / f"{action}.{how}.out")
        self.outputs[process] = self.outputs[action] = self.folder / f"{action}.{how}.out"
        return process

    def run(self, action, how=0, at=0):
        return self.server.wait(self.start(action, how, at))

    def count(self, what):
        COUNTS["postgres" if "://" in self.log else "sqlite", self.scenario, what] += 1

    def replace(self, action, stopped):
        """Run an action that replaces a stopped process.  That may hold the lock of the file: then it is ended."""
        status = self.run(action)
        if status == FAILED and LOCKED in self.read_output(action):
            os.kill(stopped, signal.SIGKILL)
            assert self.server.wait(stopped) == -signal.SIGKILL
            self.ended.add(stopped)
            status = self.run(action)
        assert status == 0, self.read_output(action)

    def read_output(self, started):
        """What a process, or the last one with this action, has printed."""
        return self.outputs[started].read_text()

    def read_booked(self):
        path = self.folder / "booked"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def read_logs(self):
        async def read():
            store = open_store(self.log)
            names = [each.id for each in await store.sessions()]
            logs = {name: list(await store.read(name)) for name in names}
            await store.close()
            return logs

        return asyncio.run(read())

    def has_recorded(self, kind):
        return any(isinstance(record.event, kind) for record in self.read_logs().get("s", ()))

    def check_refused(self, zombie, *, has_work=True):
        """Let the old owner continue: it is refused, starts no other call, and the logs stay as they are."""
        if zombie in self.ended:
            return
        logs, booked = self.read_logs(), self.read_booked()
        os.kill(zombie, signal.SIGCONT)
        status = self.server.wait(zombie)
        if has_work or status != 0:  # otherwise its run has ended
            assert status == REFUSED, self.read_output(zombie)
            assert "another process" in self.read_output(zombie)
        assert self.read_logs() == logs
        late = self.read_booked()[len(booked) :]
        assert len(late) <= 1, "only the call that it had started may still run"

    def check_done(self, where, kept=frozenset()):
        """The run has ended once, in every session; and calls with a result (`kept`) ran once."""
        logs, booked = self.read_logs(), self.read_booked()
        assert {seat for _, seat in booked} == SCENARIOS[self.scenario][1], where
        for name, records in logs.items():
            ends = [record.event.stop for record in records if isinstance(record.event, e.RunEnded)]
            assert ends == ["done"], (where, name)
            results = [
                each.event.result.outcome for each in records if isinstance(each.event, e.ToolFinished)
            ]
            assert set(results) <= {"ok"}, (where, name, results)
        seats = [seat for _, seat in booked]
        assert all(seats.count(seat) == 1 for seat in kept), (where, booked)

    def list_kept(self):
        """The seats whose booking has a result in a log."""
        events = (record.event for records in self.read_logs().values() for record in records)
        finished = (event for event in events if isinstance(event, e.ToolFinished) and event.name == "book")
        return {str(json.loads(event.arguments)["seat"]) for event in finished}


@pytest.fixture(params=["sqlite", "postgres"])
def make_place(request, tmp_path, server):
    made = 0

    def make(scenario):
        nonlocal made
        made += 1
        folder = tmp_path / str(made)
        url = "" if request.param == "sqlite" else request.getfixturevalue("postgres").new_url()
        return Place(server, folder, url or str(folder / "log.db"), scenario)

    return make


def list_points(place, first=1):
    """The points of a run that is not disturbed, which are tried."""
    assert place.run("run") == 0, place.read_output("run")
    place.check_done("undisturbed")
    count = int(place.read_output("run").split()[-1])
    assert count > 60
    return range(first, count + 1, STRIDE)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_an_owner_that_is_killed_anywhere_is_continued_elsewhere(make_place, scenario):
    for at in list_points(make_place(scenario), 2):
        place = make_place(scenario)
        assert place.run("run", signal.SIGKILL, at) == -signal.SIGKILL
        kept, action = place.list_kept(), "resume" if place.has_recorded(e.Prompted) else "run"
        assert place.run(action) == 0, (at, place.read_output(action))
        place.check_done(at, kept)
        place.count("kills of an owner")


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_an_owner_that_is_stopped_anywhere_is_replaced_and_refused(make_place, scenario):
    for at in list_points(make_place(scenario), 5):
        place = make_place(scenario)
        zombie = place.start("run", signal.SIGSTOP, at)
        assert place.server.wait(zombie) == STOPPED
        if not place.has_recorded(e.Prompted):
            continue
        kept = place.list_kept()
        has_ended = place.has_recorded(e.RunEnded)
        place.replace("take_over", zombie)
        place.check_done(at, kept)
        place.check_refused(zombie, has_work=not has_ended)
        place.count("stopped owners")


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_takeover_that_dies_anywhere_is_completed_by_the_next(make_place, scenario, how):
    """A stopped one is taken over as well; a killed one needs no more than a resume."""
    points = list_points(make_place(scenario))
    middle = len(points) * STRIDE * 2 // 3
    for at in range(1, POINTS_MAX, STRIDE):
        place = make_place(scenario)
        zombie = place.start("run", signal.SIGSTOP, middle)
        assert place.server.wait(zombie) == STOPPED
        first = place.start("take_over", how, at)
        status = place.server.wait(first)
        if status == 0:
            break
        assert status == -how
        has_work = at > 5 and not place.has_recorded(e.RunEnded)  # before, it has not read the log
        if how == signal.SIGSTOP or place.run("resume") == REFUSED:
            if how == signal.SIGKILL:  # it died before it had taken anything
                assert place.read_output("resume").startswith("session 's' is in use"), at
            place.replace("take_over", first)
        place.check_done(at)
        if how == signal.SIGSTOP:
            place.check_refused(first, has_work=has_work)
        place.check_refused(zombie)
        place.count(f"takeovers with {how.name}")
    assert at > STRIDE
