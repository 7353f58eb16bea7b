"""Runs with tools over HTTP, simulator and harness together, on the cores there are.

    python bench/sim_runs.py [--runs 1000] [--steps 10] [--at-once 20] [--profile]

The simulator is a process of its own (`bridle sim`), the harness another; each run asks for one
tool call a step and ends with an answer.  Prints runs, steps and requests a second.
"""

import argparse
import asyncio
import cProfile
import json
import os
import pstats
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

from bridle import Agent

MODEL = "anthropic:claude-sonnet-5-5@{url}"


def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


async def runs(url: str, count: int, steps: int, at_once: int) -> int:
    model, done = MODEL.format(url=url), 0
    places = asyncio.Semaphore(at_once)

    async def one(number: int) -> None:
        nonlocal done
        async with places:
            prompt = f'Run {number}.\n!call add {{"a": {number}, "b": 1}}\n!repeat {steps}\n!then\n!say Done.'
            result = await Agent(model, tools=[add], repeats_max=None).run(prompt)
            assert (result.stop, result.text, result.steps) == ("done", "Done.", steps + 1), result
            done += 1

    await asyncio.gather(*(one(number) for number in range(count)))
    return done


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--at-once", type=int, default=20)
    parser.add_argument(
        "--profile", action="store_true", help="also show where the simulator spends its time"
    )
    options = parser.parse_args()
    os.environ.setdefault("ANTHROPIC_API_KEY", "sim")
    command = [sys.executable]
    if options.profile:
        command += ["-m", "cProfile", "-o", "/tmp/bridle_sim.prof"]
    command += ["-m", "bridle.cli.main", "sim", "--port", "0", "--json"]
    source = str(Path(__file__).parent.parent / "src")
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": source}
    ) as server:
        url = json.loads(server.stdout.readline())["url"]
        started = time.perf_counter()
        watch = cProfile.Profile()
        if options.profile:
            watch.enable()
        done = asyncio.run(runs(url, options.runs, options.steps, options.at_once))
        watch.disable()
        seconds = time.perf_counter() - started
        server.send_signal(signal.SIGINT)
        server.wait()
    ours, theirs = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    spent = [used.ru_utime + used.ru_stime for used in (ours, theirs)]
    requests = done * (options.steps + 1)
    print(
        f"{done} runs of {options.steps} tool steps: {seconds:.1f} s,"
        f" {done / seconds:.1f} runs/s, {requests / seconds:.0f} requests/s;"
        f" processor time {spent[0]:.1f} s for the harness, {spent[1]:.1f} s for the simulator"
    )
    if options.profile:
        pstats.Stats("/tmp/bridle_sim.prof").sort_stats("cumulative").print_stats(45)
        pstats.Stats(watch).sort_stats("cumulative").print_stats(25)


if __name__ == "__main__":
    main()
