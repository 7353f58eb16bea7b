"""A program that tests control: one run of an agent in a process of its own.

python controlled.py STORE SESSION PROMPT [--kill-after COUNT] [--resume] [--take-over] [--memory-approver]
"""

import argparse
import asyncio
import json
import os
from pathlib import Path

from bridle import Agent, tool
from bridle.sessions import wait_for_answers
from tests.suite.crashes import kill_after_record


@tool(effect="read")
async def wait_for(name: str) -> str:
    """Wait for a file."""
    return await wait_for_file(name)


async def wait_for_file(name: str) -> str:
    Path(f"{name}.started").touch()
    while not Path(name).exists():
        await asyncio.sleep(0.005)
    return "it is there"


@tool(effect="write", approve=True, on_unknown="retry")
def pay(amount: int) -> str:
    """Pay."""
    with Path("paid").open("a") as file:
        file.write(f"{amount} ")
    return "paid"


@tool(effect="write", on_unknown="retry")
async def hold(name: str) -> str:
    """Note the process, and wait for a file."""
    with Path("held").open("a") as file:
        file.write(f"{os.getpid()}:{name} ")
    return await wait_for_file(name)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("store")
    parser.add_argument("session")
    parser.add_argument("prompt")
    parser.add_argument("--kill-after", type=int, default=0)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--take-over", action="store_true")
    options = parser.parse_args()
    if options.kill_after:
        kill_after_record(options.kill_after)
    inner = Agent("sim:", name="inner", tools=[hold])
    agent = Agent(
        "sim:",
        tools=[wait_for, pay, inner.as_tool(description="Ask.")],
        store=options.store,
        approver=wait_for_answers,
    )
    if options.resume:
        result = asyncio.run(agent.resume(options.session, take_over=options.take_over))
    else:
        result = asyncio.run(agent.run(options.prompt, options.session))
    print(json.dumps({"stop": result.stop, "reason": result.reason, "text": result.text}))


if __name__ == "__main__":
    main()
