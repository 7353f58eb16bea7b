"""Agents for a server in a process of its own: their tools wait for files of the test."""

import asyncio
from pathlib import Path

from bridle import Agent, tool

HERE = Path.cwd()


@tool(effect="read")
async def wait_for(name: str) -> str:
    """Wait for a file."""
    (HERE / f"{name}.started").touch()
    while not (HERE / name).exists():
        await asyncio.sleep(0.05)
    return "it is there"


@tool(effect="read")
def count(number: int) -> str:
    """Count."""
    return f"counted {number}"


@tool(effect="write", on_unknown="retry")
def append(text: str) -> str:
    """Append a line to a file."""
    with (HERE / "appended").open("a") as file:
        file.write(f"{text}\n")
    return "appended"


def find_payment(number: int) -> str | None:
    return f"paid {number} before" if (HERE / "paid").exists() else None


@tool(effect="write", on_unknown="probe", probe=find_payment)
async def pay(number: int) -> str:
    """Pay a bill; the bank never answers."""
    with (HERE / "paid").open("a") as file:
        file.write(f"{number}\n")
    await asyncio.Event().wait()
    return f"paid {number}"


@tool(effect="write", approve=True)
def charge(number: int) -> str:
    """Charge a card, if a person agrees."""
    with (HERE / "charged").open("a") as file:
        file.write(f"{number}\n")
    return f"charged {number}"


worker = Agent(
    "sim:",
    name="worker",
    tools=[
        wait_for,
        count,
        append,
        pay,
        charge,
        Agent("sim:", tools=[charge]).as_tool("ask_clerk", "Ask the clerk."),
    ],
)
