"""kill -9 of workers, and of the Temporal server, while runs are in flight: each ends, and nothing is done twice.

Workers note every charge in a file outside of the store, and the simulated provider notes every answer that it bills.

    BRIDLE_CAMPAIGN=10 pytest -s tests/campaigns/test_killed_workers.py    # ten times as many kills

The figures are in docs/evidence.md.
"""

import asyncio
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from contextlib import suppress
from decimal import Decimal
from pathlib import Path

import pytest

from bridle import Agent
from bridle.config.agent_loader import load_agents
from bridle.run.context.resources import copy_agent
from bridle.testing import scripted
from tests.engines.engine_fixtures import WORKER_FILE, new_queue, read_lines
from tests.engines.temporal_server import MISSING, TemporalServer, find_program
from tests.suite.bills import price_usage
from tests.suite.campaign import SCALE, scale
from tests.suite.fork_server import ForkServer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_program() is None, reason=f"Temporal is not installed: {MISSING}"),
]
WORKER_KILLS, SERVER_KILLS = scale(4), max(1, int(SCALE) // 12)
WORKERS, PARTS_AT_ONCE, RUNS_AT_ONCE, CHARGES = 4, 4, 12, 3
LIFE_SECONDS = (0.0, 4.0)
"""Life of a worker after its first record."""
RUN_SECONDS = 900


def warm_up():
    from bridle.stores import open_store

    open_store("postgresql://")
    asyncio.run(Agent(scripted("nothing to do")).run("Go."))
    import bridle.engines.temporal  # noqa: F401


def work(host, store, queue, folder):
    """A worker of its own process, until it is killed."""
    os.environ["LEDGER"] = folder
    from bridle.engines.temporal import TemporalEngine, connect_temporal

    async def serve():
        agent = copy_agent(load_agents([str(WORKER_FILE)])["cashier"], store=store)
        engine = TemporalEngine(agent, await connect_temporal(host), queue)
        await engine.worker(parts_at_once=PARTS_AT_ONCE).run()

    note_first_record(Path(folder, f"working-{os.getpid()}"))
    asyncio.run(serve())


def note_first_record(path):
    """Make this file when the process records its first event: it has work."""
    is_due = True

    def note(name, _):
        nonlocal is_due
        if is_due and name == "bridle.recorded":
            is_due = False
            path.touch()

    sys.addaudithook(note)


class Campaign:
    """Runs in flight, workers that die, and the check of what is left."""

    def __init__(self, server, store, folder, forks):
        from bridle.engines.temporal import WorkflowLimits

        self.server, self.store, self.folder, self.forks = server, store, folder, forks
        self.queue, self.random = new_queue(), random.Random(7)
        self.limits = WorkflowLimits(heartbeat_seconds=2.0, sticky_seconds=2.0, retry_seconds_max=2.0)
        self.agent = copy_agent(load_agents([str(WORKER_FILE)])["cashier"], store=store)
        self.living = [self.start_worker() for _ in range(WORKERS)]
        self.started, self.results, self.is_over = 0, {}, asyncio.Event()

    def start_worker(self):
        given = self.server.host, self.store, self.queue, str(self.folder)
        return self.forks.start("work", *given, output=self.folder / "worker.log")

    async def keep_runs(self):
        """Start a run whenever one ends, until the kills are over."""
        from bridle.engines.temporal import TemporalEngine, connect_temporal

        engine = TemporalEngine(
            self.agent, await connect_temporal(self.server.host), self.queue, limits=self.limits
        )

        async def run_one():
            while not self.is_over.is_set():
                self.started += 1
                name = f"r{self.started}"
                steps = [f'!call charge {{"order": "{name}-{number}"}}' for number in range(CHARGES)]
                run = None
                while run is None:
                    try:
                        run = await engine.start("\n!then\n".join((*steps, "!say done")), session=name)
                    except Exception as error:
                        run = await self.start_again(engine, name, error)
                async with asyncio.timeout(RUN_SECONDS):
                    self.results[name] = await run.result()

        await asyncio.gather(*(run_one() for _ in range(RUNS_AT_ONCE)))

    async def start_again(self, engine, name, error):
        await asyncio.sleep(0.2)
        if not await self.agent.store.read(name):
            return None
        try:
            return await engine.resume(name)
        except Exception as again:
            print("start again", name, type(error).__name__, str(again)[:100])
            return engine.get(name) if "has a run" in str(again) else None

    async def kill_workers(self, kills):
        """Kill workers at random moments of their life, and replace each; returns those that live."""
        left = iter(range(kills))

        async def keep_killing(place):
            for _ in left:
                working = self.folder / f"working-{self.living[place]}"
                while not working.exists():
                    await asyncio.sleep(0.02)
                await asyncio.sleep(self.random.uniform(*LIFE_SECONDS))
                os.kill(self.living[place], signal.SIGKILL)
                self.living[place] = self.start_worker()

        await asyncio.gather(*(keep_killing(place) for place in range(WORKERS)))
        return self.living

    async def check(self):
        charges = Counter(read_lines(self.folder / "charges"))
        assert not [order for order, count in charges.items() if count > 1], "charged twice"
        bill = [json.loads(line) for line in read_lines(self.folder / "bill")]
        answered = Counter((each["id"], price_usage(each)) for each in bill)
        unknown, logged, recorded, unanswered, replied = 0, Decimal(0), Counter(), Counter(), Counter()
        for name, result in self.results.items():
            assert result.stop == "done" and result.text == "done", (name, result.stop, result.reason)
            records = await self.agent.store.read(name)
            for event in (record.event for record in records):
                kind = type(event).__name__
                unanswered[name] += {"ModelAsked": 1, "ModelReplied": -1, "ModelFailed": -1}.get(kind, 0)
                if kind == "ToolFinished":
                    order = json.loads(event.arguments)["order"]  # type: ignore[arg-type]
                    unknown += event.result.outcome == "unknown"
                    assert event.result.outcome == "unknown" or charges[order] == 1, order
                if kind == "ModelReplied":
                    recorded[event.reply.id, event.usd] += 1
                    replied[name] += 1
            logged += Decimal(str(result.cost))
        assert not recorded - answered, "a reply that the provider did not bill"
        # Answers to requests whose worker was killed before it could record them.
        lost = answered - recorded
        lost_of_run = Counter(each["run"] for each in bill) - replied
        assert not lost_of_run - unanswered, "an answer without a request in the log"
        costs = [sum(usd * count for (_, usd), count in each.items()) for each in (recorded, answered, lost)]
        assert logged == costs[0]
        billed, unrecorded = costs[1:]
        assert billed == logged + unrecorded
        return (
            f"{sum(charges.values())} charges, 0 twice, {unknown} in doubt; the provider billed ${billed} for"
            f" {answered.total()} answers: ${logged} in the logs, ${unrecorded} for {lost.total()} answers of killed"
            " workers, each to a request in the logs"
        )


def run_campaign(postgres, folder, worker_kills, server_kills):
    os.environ["LEDGER"] = str(folder)
    server = TemporalServer(find_program())  # type: ignore[arg-type]
    began = time.monotonic()
    try:
        with ForkServer(__file__) as forks:
            campaign = Campaign(server, postgres.new_url(), folder, forks)

            async def everything():
                working = asyncio.create_task(campaign.keep_runs())
                killing = asyncio.create_task(campaign.kill_workers(worker_kills))
                for _ in range(server_kills):
                    await asyncio.sleep(campaign.random.uniform(1, 4))
                    server.kill()
                    await asyncio.to_thread(server.start)
                await asyncio.wait((working, killing), return_when=asyncio.FIRST_COMPLETED)
                campaign.is_over.set()
                await working
                for process in await killing:
                    with suppress(ProcessLookupError):
                        os.kill(process, signal.SIGKILL)
                return await campaign.check()

            found = asyncio.run(everything())
    finally:
        server.remove()
    print(
        f"\n{worker_kills} workers and {server_kills} servers killed in {time.monotonic() - began:.0f} s: "
        f"{len(campaign.results)} runs, all ended; {found}"
    )
    assert len(campaign.results) == campaign.started


def test_killed_workers(postgres, tmp_path):
    run_campaign(postgres, tmp_path, WORKER_KILLS, 0)


@pytest.mark.full
def test_killed_servers(postgres, tmp_path):
    run_campaign(postgres, tmp_path, 1, SERVER_KILLS)
