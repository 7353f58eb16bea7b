"""A coding agent for a folder: it reads, edits, runs the tests, and asks before it changes anything.

    python examples/coder/coder.py "Find out why the tests fail and fix it." --model anthropic:claude-sonnet-5-5
    python examples/coder/coder.py --resume SESSION     # after Ctrl-C, a crash or a reached budget
    python examples/coder/coder.py --undo SESSION       # restore the files that the last task changed

Commands run in a sandbox. The log is outside of the folder, so that the agent cannot change its own history.
"""

import argparse
import asyncio
import os
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

from bridle import (
    Agent,
    BridleError,
    Budget,
    Model,
    ModelConnection,
    PendingApproval,
    PermissionRule,
    Policy,
    Stream,
    toolkit,
)
from bridle.events import ToolStarted
from bridle.messages import escape_text
from bridle.sessions import ApprovalVerdict
from bridle.testing import simulated
from repair_model import repair

INSTRUCTIONS = """\
You are a careful programmer. Work in the current folder with the tools.
Find the relevant files before you change them, and read a file before you edit it.
Make the smallest change that solves the task, run the tests afterwards, and say what you changed."""
LINE_MAX = 100
POLICY = Policy(
    rules=(PermissionRule(decision="ask", effects=("write", "exclusive"), name="it may change something"),)
)


def show(text: str) -> None:
    print("\n".join(escape_text(line, exact=True) for line in text.splitlines()))


async def ask(question: PendingApproval) -> ApprovalVerdict | None:
    """Show the call and its diff, and read the answer; at the end of the input the question stays open."""
    show(f"\n{question.tool}({question.complete_arguments})")
    show("".join(f"   │ {line}\n" for line in question.preview.splitlines()))
    try:
        answer = await asyncio.to_thread(input, "allow it? [y/N] ")
    except EOFError:
        return None
    return ApprovalVerdict(answer="approve" if answer.strip().lower() == "y" else "reject", by="terminal")


def choose_model(name: str) -> str | ModelConnection:
    """The offline model for `sim:…`, else the model of that name."""
    return simulated(repair, model=name) if name.startswith("sim:") else name


def make_agent(
    model: str | Model | ModelConnection, folder: str | Path, *, asks: bool, **options: Any
) -> Agent[object, str]:
    """Build the agent for a folder; `options` are further ones of `Agent`."""
    return Agent(
        choose_model(model) if isinstance(model, str) else model,
        name="coder",
        tools=toolkit.tools(folder),
        instructions=INSTRUCTIONS,
        budget=Budget(usd=Decimal(1), steps=40),
        policy=POLICY if asks else None,
        **{"approver": ask if asks else None, **options},
    )


async def watch(stream: Stream[str]) -> int:
    async for event in stream:
        print(escape_text(event.text), end="", flush=True)
        if isinstance(event, ToolStarted):
            show(f"\n· {event.name} {event.arguments[:LINE_MAX]}")
    result = await stream.result()
    show(
        f"\n[{result.session}: {result.stop}{', ' + result.reason if result.reason else ''}, ${result.cost}]"
    )
    return 0 if result.done else 1


async def main() -> int:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("task", nargs="?")
    options.add_argument(
        "--model", default=os.environ.get("BRIDLE_MODEL", "sim:"), help="default: $BRIDLE_MODEL or sim:"
    )
    options.add_argument(
        "--folder", default=".", help="the only folder that is read and changed (default: here)"
    )
    options.add_argument("--store", default=str(Path.home() / ".local/share/bridle/coder.db"), help="the log")
    options.add_argument("--session", help="name of the session, to find it again")
    options.add_argument("--resume", metavar="SESSION", help="continue a session")
    options.add_argument(
        "--undo", metavar="SESSION", help="restore the files that the last task of a session changed"
    )
    options.add_argument("--yes", action="store_true", help="change files and run commands without asking")
    given = options.parse_args()
    if sum(map(bool, (given.task, given.resume, given.undo))) != 1:
        options.error("give a task, --resume or --undo")
    agent = make_agent(given.model, given.folder, asks=not given.yes, store=given.store)
    if given.undo:
        for item in await agent.compensate(given.undo):
            show(f"{item.state}: {item.tool} {item.result}")
        return 0
    return await watch(
        agent.resume_stream(given.resume) if given.resume else agent.stream(given.task, given.session)
    )


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(main()))
    except BridleError as error:
        sys.exit(escape_text(str(error), exact=True))
    except KeyboardInterrupt:
        sys.exit("\ninterrupted; --resume SESSION continues (`bridle sessions` lists them)")
