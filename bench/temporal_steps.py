"""Sessions on Temporal: time and history per step, and the same with Pydantic AI's integration.

    python bench/temporal_steps.py [STEPS ...] [--bytes 20000] [--peer PYTHON]

Starts a Temporal server, a PostgreSQL server and the simulator as processes of their own. PYTHON belongs to an environment
with `pydantic-ai-slim[temporal,anthropic]`; each size is then run by both sides in turns, and by the peer once more
with its handler for long runs. A line of JSON for each run; CPU time is that of the process that has client and worker.
"""

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from temporalio.client import Client

from bridle import Agent, Budget, tool
from bridle.engines.temporal import TemporalEngine
from tests.engines.temporal_server import remove_shared_temporal, shared_temporal
from tests.suite.postgres_server import remove_shared_server, shared_server

PEER = Path(__file__).with_name("temporal_pydantic_ai.py")
PEER_SECONDS_MAX = 400
CONTEXT_TOKENS = 200_000
"""Window of the model; a longer conversation is compacted."""
SIMULATOR = [sys.executable, "-m", "bridle.cli.main", "sim", "--port", "0", "--json"]


@tool(effect="read")
def look(at: int) -> str:
    """Look."""
    return f"place {at} is fine"


@contextmanager
def served_replies(steps: int, size: int) -> Iterator[str]:
    """Serve replies with one call and this much text each, then an answer; yields the URL."""
    text = ("a sentence of some words " * (size // 25 + 1))[:size]
    replies = [f'!say {text}\n!call look {{"at": {number}}}\n!then\n' for number in range(steps - 1)]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as script:
        script.write("".join(replies) + "!say done")
        script.flush()
        command = [*SIMULATOR, "--script", script.name]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
            assert server.stdout is not None
            try:
                yield json.loads(server.stdout.readline())["url"]
            finally:
                server.send_signal(signal.SIGINT)


async def run_ours(host: str, url: str, steps: int) -> dict[str, object]:
    database = shared_server()
    assert database is not None
    client, name = await Client.connect(host), f"ours-{time.time_ns()}"
    agent = Agent(
        f"anthropic:claude-sonnet-5-5@{url}", name=name, tools=[look], store=database.new_url(), repeats_max=None,
        budget=Budget(steps=2 * steps + 10), context_tokens=CONTEXT_TOKENS,
    )  # fmt: skip
    engine = TemporalEngine(agent, client, name, streams=False)
    async with engine.worker():
        began, cpu = time.monotonic(), time.process_time()
        run = await engine.start("Go.", session=name)
        result = await run.result()
        took, cpu = time.monotonic() - began, time.process_time() - cpu
        sizes, events = [], []
        run_id = run._handle.first_execution_run_id
        while run_id:
            handle = client.get_workflow_handle(run.workflow_id, run_id=run_id)
            info = (await handle.describe()).raw_description.workflow_execution_info
            sizes.append(info.history_size_bytes)
            events.append(info.history_length)
            last = [event async for event in handle.fetch_history_events()][-1]
            run_id = last.workflow_execution_continued_as_new_event_attributes.new_execution_run_id
    stored = sum(len(record.data) for record in await agent.store.read(name))
    await agent.store.close()
    return {
        "stop": result.stop, "steps": result.steps, "seconds": took, "cpu_seconds": cpu, "workflow_runs": len(sizes),
        "history_bytes": sum(sizes), "largest_history_bytes": max(sizes), "largest_history_events": max(events),
        "log_bytes": stored,
    }  # fmt: skip


def run_peer(python: str, host: str, url: str, *mode: str) -> dict[str, object]:
    done = subprocess.run(
        [python, str(PEER), host, url, *mode], capture_output=True, text=True, timeout=PEER_SECONDS_MAX,
    )  # fmt: skip
    if done.returncode:
        return {"stop": done.stderr.strip()[-400:]}
    return json.loads(done.stdout.splitlines()[-1])


def show(side: str, figures: dict[str, object]) -> None:
    if steps := figures.get("steps"):
        figures["ms_per_step"] = round(1000 * figures["seconds"] / steps, 1)
        figures["cpu_ms_per_step"] = round(1000 * figures["cpu_seconds"] / steps, 1)
        figures["history_bytes_per_step"] = round(figures["history_bytes"] / steps)
        del figures["seconds"], figures["cpu_seconds"]
    print(json.dumps({"side": side, "load": round(os.getloadavg()[0], 1), **figures}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("steps", type=int, nargs="*", default=[200])
    parser.add_argument("--bytes", type=int, default=20_000, help="text of a reply")
    parser.add_argument("--peer", default="", help="Python with pydantic-ai-slim[temporal,anthropic]")
    parser.add_argument(
        "--only-continued", action="store_true", help="the peer with its handler for long runs only"
    )
    options = parser.parse_args()
    os.environ.setdefault("ANTHROPIC_API_KEY", "sim")
    temporal = shared_temporal()
    assert temporal is not None
    for steps in options.steps:
        with served_replies(steps, options.bytes) as url:
            show("bridle", asyncio.run(run_ours(temporal.host, url, steps)))
        modes = [("continue",)] if options.only_continued else [(), ("continue",)]
        for mode in modes if options.peer else []:
            with served_replies(steps, options.bytes) as url:
                figures = run_peer(options.peer, temporal.host, url, *mode)
            show(" ".join(("pydantic-ai", *mode)), figures)


if __name__ == "__main__":
    try:
        main()
    finally:
        remove_shared_temporal()
        remove_shared_server()
