"""Ten thousand runs leave nothing behind: no task, no open file, no thread, no object of ours, no cache that grows.

The runs end in every way: whole, streamed, a stream that is left, a cancelled run.  The simulator is a process of its own, which
is asked over sockets; the sessions are in a file.  Objects are counted, not seconds.  The suite makes a few runs;
BRIDLE_CAMPAIGN multiplies them, and

    python -m tests.campaigns.run_campaign leftovers RUNS

makes as many and prints the counts.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.campaigns.simulator_process import SERVER
from tests.suite.campaign import scale

RUNS = scale(120)
PROGRAM = """
import asyncio, functools, gc, json, sys, threading
from collections import Counter
from pathlib import Path
from bridle import Agent
from bridle.stores.sqlite.watching import _Waiter

path, runs = sys.argv[1], int(sys.argv[2])
PROMPT = '!call echo {"text": "a"}\\n!then\\n!say hello, and so on to the end'
WARM_RUNS = 40

async def echo(text: str) -> str:
    "Give the text back."
    return text

async def run_once(agent, number):
    name, way = f"s{number}", number % 4
    if way == 0:
        assert (await agent.run(PROMPT, session=name)).done
    elif way == 1:
        async for _ in agent.stream(PROMPT, session=name):
            pass
    elif way == 2:
        async for _ in agent.stream(PROMPT, session=name):
            break
    else:
        task = asyncio.ensure_future(agent.run(PROMPT, session=name))
        for _ in range(number % 50):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])

async def count():
    # A stream that was left ends its run after the append that was under way.
    if left := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(left, timeout=60)
    for _ in range(20):
        await asyncio.sleep(0)
    gc.collect()
    objects = gc.get_objects()
    ours = [each for each in objects if str(type(each).__module__).startswith("bridle")]
    # The store drops the waiters of ended tasks at its next look.
    own = Counter(type(each).__qualname__ for each in ours if not (type(each) is _Waiter and each.future.done()))
    caches = [each for each in objects if isinstance(each, functools._lru_cache_wrapper)]
    return {
        "tasks": len(asyncio.all_tasks()),
        "timers": sum(not each.cancelled() for each in asyncio.get_running_loop()._scheduled),
        "threads": threading.active_count(),
        "files": len(list(Path("/proc/self/fd").iterdir())),
        "objects": len(objects),
        "blocks": sys.getallocatedblocks(),  # also of values, which the collector does not know
        "own": own,
        "cached": sum(each.cache_info().currsize for each in caches if str(each.__module__).startswith("bridle")),
        "resident_kb": int(Path("/proc/self/statm").read_text().split()[1]) * 4,
    }

async def main():
    agent = Agent("anthropic:claude-sonnet-5-5", tools=[echo], store=path)
    counts = []
    for first, last in ((0, WARM_RUNS), (WARM_RUNS, WARM_RUNS + runs)):
        for number in range(first, last):
            await run_once(agent, number)
        counts.append(await count())
    print(json.dumps(counts))

asyncio.run(main())
"""
SPARE = 12
"""Objects of one kind that may differ: connections and what they hold, of the last runs."""


def count_leftovers(path: Path, runs: int) -> tuple[dict, dict]:
    """What a process holds after the first runs, and after all of them."""
    with subprocess.Popen(
        [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            found = {"ANTHROPIC_BASE_URL": server.stdout.readline().strip(), "ANTHROPIC_API_KEY": "sim"}
            done = subprocess.run(
                [sys.executable, "-c", PROGRAM, path, str(runs)],
                env={**os.environ, **found}, capture_output=True, text=True, check=False,
            )  # fmt: skip
        finally:
            server.communicate()
    assert done.returncode == 0, done.stderr[-2000:]
    first, last = json.loads(done.stdout)
    return first, last


def check_leftovers(first: dict, last: dict, runs: int) -> None:
    assert last["tasks"] == 1
    assert last["timers"] <= first["timers"] + SPARE
    assert last["threads"] <= first["threads"] + 1
    assert last["files"] <= first["files"] + 2
    grown = {name: count for name, count in last["own"].items() if count > first["own"].get(name, 0) + SPARE}
    assert grown == {}
    assert last["cached"] <= first["cached"] + SPARE
    assert last["objects"] <= first["objects"] + max(500, runs // 20)
    assert last["blocks"] <= first["blocks"] + max(2_000, runs // 2)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files are counted in /proc")
def test_runs_leave_nothing_behind(tmp_path):
    check_leftovers(*count_leftovers(tmp_path / "log.db", RUNS), RUNS)


def main(runs: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        begun = time.monotonic()
        first, last = count_leftovers(Path(folder) / "log.db", runs)
        print(f"{runs:,} runs in {time.monotonic() - begun:.0f} s: after the first, and after all of them")
        for name in first:
            if name != "own":
                print(f"  {name:12} {first[name]:>9,} {last[name]:>9,}")
        for name in sorted(last["own"]):
            if last["own"][name] != first["own"].get(name, 0):
                print(f"  {name:28} {first['own'].get(name, 0):>9,} {last['own'][name]:>9,}")
        check_leftovers(first, last, runs)


if __name__ == "__main__":
    main(int(sys.argv[1]))
