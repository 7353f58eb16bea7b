"""A refund that needs a person, on Temporal: its worker is killed while it waits, and another one continues.

    make temporal

starts a Temporal server and a PostgreSQL database for it.  The workers are processes of their own: `bridle worker`.
"""

import asyncio
import os
import subprocess
import sys

from bridle import Agent, tool
from bridle.engines.temporal import TemporalEngine, connect_temporal

HOST, STORE = os.environ.get("TEMPORAL_ADDRESS", "127.0.0.1:7233"), os.environ.get("BRIDLE_STORE")
QUEUE = "refunds"
TASK = '!call find_order {"order": 7}\n!then\n!call refund {"order": 7, "euros": 20}\n!then\n!say Order 7 is refunded.'


@tool(effect="read")
def find_order(order: int) -> str:
    """Find an order."""
    return f"order {order}: paid 20 euros"


@tool(effect="write", approve=True, on_unknown="report")
def refund(order: int, euros: float) -> str:
    """Refund an order."""
    return f"refunded {euros:g} euros for order {order}"


clerk = Agent("sim:", name="clerk", tools=[find_order, refund], store=STORE)


def start_worker() -> "subprocess.Popen[str]":
    command = [
        sys.executable,
        "-m",
        "bridle.cli.main",
        "worker",
        __file__,
        "--temporal",
        HOST,
        "--queue",
        QUEUE,
    ]
    worker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    print(f"worker {worker.pid}: {worker.stdout.readline().strip()}")
    return worker


async def main() -> None:
    engine = TemporalEngine(clerk, await connect_temporal(HOST), QUEUE)
    first = start_worker()
    run = await engine.start(TASK)
    print(f"session {run.session}, workflow {run.workflow_id}")
    while not (questions := await run.approvals()):  # noqa: ASYNC110 - a person would look at `bridle approvals`
        await asyncio.sleep(0.1)
    print(f"it waits for a person: {questions[0].tool} {questions[0].arguments}")
    first.kill()
    print(f"worker {first.pid} is killed; the run waits in Temporal")
    second = start_worker()
    await run.approve(questions[0].id, by="ann")
    print("approved by ann")
    async for event in run.stream():
        print(f"  {type(event).__name__}")
    result = await run.result()
    print(f"{result.stop}: {result.text}  ${result.cost:.4f}")
    second.terminate()
    second.wait()


if __name__ == "__main__":
    asyncio.run(main())
