"""Many sessions at once on one Temporal worker: CPU of each process per step, calls of the store, size of the database.

    python bench/temporal_load.py [--sessions 40] [--steps 10] [--bytes 4000]

The inputs of docs/capacity.md. The simulator is a process of its own, so the CPU of the worker is that of a production
worker. A second batch of the same size is measured, after a first one. The last line is JSON.
"""

import argparse
import asyncio
import collections
import functools
import json
import os
import random
import resource
import signal
import subprocess
import time
from pathlib import Path

from temporal_steps import (
    SIMULATOR,
    look,
    remove_shared_server,
    remove_shared_temporal,
    shared_server,
    shared_temporal,
)
from temporalio.client import Client

from bridle import Agent, Budget
from bridle.engines.temporal import TemporalEngine
from bridle.stores.postgres.store import PostgresStore

COUNTED = ("append", "read", "read_with_snapshot", "put_blob", "lease", "is_leased")
CALLS: collections.Counter[str] = collections.Counter()


def count_calls(name: str) -> None:
    original = getattr(PostgresStore, name)

    @functools.wraps(original)
    def counted(*arguments, **options):
        CALLS[name] += 1
        return original(*arguments, **options)

    setattr(PostgresStore, name, counted)


def read_cpu(process: int) -> float:
    """CPU seconds of a process, its ended children and its living children."""
    ticks = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if process == int(folder.name):
            ticks += sum(map(int, fields[11:15]))
        elif process == int(fields[1]):
            ticks += sum(map(int, fields[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


async def measure(url: str, sessions: int, steps: int, size: int) -> dict[str, object]:
    temporal, database = shared_temporal(), shared_server()
    assert temporal is not None and database is not None and temporal.process and database.process
    client = await Client.connect(temporal.host)
    agent = Agent(
        f"anthropic:claude-sonnet-5-5@{url}", name="load", tools=[look], store=database.new_url(), repeats_max=None,
        budget=Budget(steps=2 * steps + 10), compaction=None,
    )  # fmt: skip
    engine = TemporalEngine(agent, client, "load", streams=False)
    # Random letters: PostgreSQL would compress words that repeat.
    text = "".join(random.Random(1).choices("abcdefghij klmnopqrstuvwxyz", k=size)).strip()

    async def run_one(name: str) -> tuple[int, int, int]:
        prompt = f'!say {text}\n!call look {{"at": 1}}\n!repeat {steps - 1}\n!then\n!say done'
        run = await engine.start(prompt, session=name)
        result = await run.result()
        assert (result.stop, result.steps) == ("done", steps), result
        info = (await run._handle.describe()).raw_description.workflow_execution_info
        records = await agent.store.read(name)
        return info.history_size_bytes, len(records), sum(len(record.data) for record in records)

    def read_all() -> dict[str, float]:
        return {
            "worker": sum(resource.getrusage(resource.RUSAGE_SELF)[:2]),
            "temporal": read_cpu(temporal.process.pid), "postgres": read_cpu(database.process.pid),
        }  # fmt: skip

    def read_size() -> int:
        tables = "relkind = 'r' AND relname IN ('events', 'sessions', 'blobs')"
        return int(database.sql(f"SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE {tables}"))

    async with engine.worker():
        await asyncio.gather(*(run_one(f"warm-{number}") for number in range(sessions)))
        before, began, tables = read_all(), time.monotonic(), read_size()
        CALLS.clear()
        figures = await asyncio.gather(*(run_one(f"load-{number}") for number in range(sessions)))
        took, after = time.monotonic() - began, read_all()
    calls = {name: round(count / sessions / steps, 2) for name, count in CALLS.items()}
    growth = read_size() - tables
    await agent.store.close()
    history, records, stored = (sum(column) for column in zip(*figures, strict=True))
    every = sessions * steps
    return {
        "sessions": sessions, "steps": every, "load": round(os.getloadavg()[0], 1), "steps_per_second": round(every / took, 1),
        "cpu_ms_per_step": {name: round(1000 * (after[name] - before[name]) / every, 1) for name in after},
        "calls_per_step": calls, "records_per_step": round(records / every, 2), "log_bytes_per_step": round(stored / every),
        "table_bytes_per_step": round(growth / every), "history_bytes_per_step": round(history / every),
        "worker_megabytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sessions", type=int, default=40)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--bytes", type=int, default=4_000)
    options = parser.parse_args()
    os.environ.setdefault("ANTHROPIC_API_KEY", "sim")
    for name in COUNTED:
        count_calls(name)
    with subprocess.Popen(SIMULATOR, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        try:
            assert server.stdout is not None
            url = json.loads(server.stdout.readline())["url"]
            print(json.dumps(asyncio.run(measure(url, options.sessions, options.steps, options.bytes))))
        finally:
            server.send_signal(signal.SIGINT)


if __name__ == "__main__":
    try:
        main()
    finally:
        remove_shared_temporal()
        remove_shared_server()
