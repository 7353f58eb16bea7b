"""Durable steps per second of many sessions at once: the SQLite store beside the memory store.

    python bench/durable.py [--sessions 100,500] [--steps 10] [--rounds 3] [--json]

Each session has an agent of its own whose replies are ready in the process, so that nothing is measured but Bridle, what it
calls, and the disk.  All sessions of a round share one store, and a step is done when its records are on the disk.
Rounds are interleaved; the figures are medians.
"""

import argparse
import asyncio
import gc
import json
import statistics
import tempfile
import time
from pathlib import Path

from steps import MODELS, Replies, echo

from bridle import Agent, Budget
from bridle.providers import load_codec
from bridle.run.model_connection import ModelConnection, find_model_by_name
from bridle.stores import open_store
from bridle.transports.inprocess import InProcessTransport

FAMILY = "anthropic"
STORES = ("memory", "sqlite")


def make_agent(store, steps):
    connection = ModelConnection(
        model=find_model_by_name(MODELS[FAMILY], {}),
        codec=load_codec(FAMILY),
        transport=InProcessTransport(Replies(FAMILY, steps, stream=False)),
    )
    return Agent(
        connection,
        instructions="Be brief.",
        tools=[echo],
        budget=Budget(steps=None),
        max_tokens=1_000,
        store=store,
    )


async def measure_store(kind, sessions, steps):
    """Steps per second of wall time and of CPU time."""
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(Path(folder) / "log.db" if kind == "sqlite" else None)
        agents = [make_agent(store, steps) for _ in range(sessions)]
        await make_agent(store, 1).run("Count.", session="warm")
        gc.collect()
        wall, cpu = time.perf_counter(), time.process_time()
        await asyncio.gather(*(agent.run("Count.", session=f"s{n}") for n, agent in enumerate(agents)))
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        await store.close()
    return sessions * steps / wall, sessions * steps / cpu


def measure(sessions, steps, rounds):
    found = {kind: [] for kind in STORES}
    for _ in range(rounds):
        for kind in STORES:
            found[kind].append(asyncio.run(measure_store(kind, sessions, steps)))
    return {
        kind: {
            "wall": statistics.median(row[0] for row in rows),
            "cpu": statistics.median(row[1] for row in rows),
        }
        for kind, rows in found.items()
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--sessions", type=lambda text: [int(each) for each in text.split(",")], default=[100, 500]
    )
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures = {str(count): measure(count, options.steps, options.rounds) for count in options.sessions}
    if options.json:
        print(json.dumps(figures))
        return
    for count, row in figures.items():
        for kind, rates in row.items():
            shares = {clock: rates[clock] / row["memory"][clock] for clock in rates}
            print(
                f"{count:>4} sessions {kind:7} {rates['wall']:7,.0f} steps/s of wall time ({shares['wall']:.0%} of memory)"
                f" {rates['cpu']:7,.0f} of CPU time ({shares['cpu']:.0%})"
            )


if __name__ == "__main__":
    main()
