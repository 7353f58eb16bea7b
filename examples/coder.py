"""A coding agent for the current folder: it reads, edits, runs the tests, and asks before it changes anything.

    python examples/coder.py "Find out why test_dates.py fails and fix it." --model anthropic:claude-sonnet-5-5

Commands run in a sandbox.  `bridle compensate SESSION --toolkit` takes the changes of the last task back.
"""

import argparse
import asyncio
from pathlib import Path

from bridle import Agent, ApprovalVerdict, Budget, PendingApproval, PermissionRule, Policy, toolkit
from bridle.values.text import escape_text

INSTRUCTIONS = """\
You are a careful programmer. Work in the current folder with the tools.
Find the relevant files before you change them, and read a file before you edit it.
Make the smallest change that solves the task, run the tests afterwards, and say what you changed."""
POLICY = Policy(
    rules=(PermissionRule(decision="ask", effects=("write", "exclusive"), name="it may change something"),)
)


async def ask(question: PendingApproval) -> ApprovalVerdict:
    print(escape_text(f"\n{question.tool}({question.complete_arguments})", exact=True))
    for line in question.preview.splitlines():
        print("   │", escape_text(line, exact=True))
    answer = await asyncio.to_thread(input, "allow it? [y/N] ")
    return ApprovalVerdict(answer="approve" if answer.strip().lower() == "y" else "reject", by="terminal")


async def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("task")
    options.add_argument("--model", default="sim:")
    options.add_argument("--store", default=str(Path.home() / ".local/share/bridle/coder.db"))
    options.add_argument("--yes", action="store_true", help="change files and run commands without asking")
    given = options.parse_args()
    agent = Agent(
        given.model,
        tools=toolkit.tools("."),
        instructions=INSTRUCTIONS,
        budget=Budget(usd=1.0, steps=40),
        policy=None if given.yes else POLICY,
        approver=ask,
        store=given.store,
    )
    async for event in agent.stream(given.task):
        print(event.text, end="", flush=True)
    print()


if __name__ == "__main__":
    asyncio.run(main())
