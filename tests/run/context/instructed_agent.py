"""An agent whose instructions are written by functions; a program that is killed after a record is durable.

    instructed_agent.py FOLDER SEQ

Every call of a function is a line in `calls`.  The process kills itself with SIGKILL as soon as record SEQ is in
the store; 0 kills never.
"""

import asyncio
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bridle import Agent, PromptTemplate, RunContext, per_turn, tool
from bridle.testing import scripted
from bridle.testing.scripted_model import call_reply
from bridle.values import events as e
from bridle.values.record import Record

SESSION = "s"
GREETING = PromptTemplate("greeting", "You work for {name}.", variables=("name",))


@dataclass
class Shop:
    name: str
    folder: Path

    def count(self, function: str) -> None:
        with (self.folder / "calls").open("a") as file:
            file.write(f"{function}\n")


def greet(ctx: RunContext[Shop]) -> str:
    ctx.context.count("greet")
    return GREETING.fill(name=ctx.context.name)


async def describe(ctx: RunContext[Shop]) -> str:
    ctx.context.count("describe")
    return f"Tenant {ctx.tenant}, caller {ctx.caller}."


async def open_hours(ctx: RunContext[Shop]) -> str:
    ctx.context.count("open_hours")
    return f"Open until six. Step {ctx.step}."


def stock(ctx: RunContext[Shop]) -> str:
    ctx.context.count("stock")
    return "Three apples."


@tool(effect="read")
def price(ctx: RunContext[Shop], fruit: str) -> str:
    """The price of a fruit."""
    return f"{fruit}: 3 at {ctx.context.name}"


class Killing:
    def __init__(self, seq: int) -> None:
        self._seq = seq

    def on_event(self, session: str, happening: Any) -> None:
        if isinstance(happening, Record) and happening.seq == self._seq:
            os.kill(os.getpid(), signal.SIGKILL)


def make_agent(store: Any, *watchers: Any) -> Agent:
    model: Any = scripted(
        call_reply(("price", {"fruit": "apple"})), "Three.", call_reply(("price", {"fruit": "pear"})), "Four."
    )
    instructions: Any = ["Be brief.", greet, per_turn(open_hours), describe, per_turn(stock)]
    return Agent(model, tools=[price], instructions=instructions, store=store, watchers=watchers)


async def drive(agent: Agent, shop: Shop, prompts: int = 2) -> None:
    """Bring the session to the end of its prompts, from wherever it is."""
    records = await agent.store.read(SESSION)
    prompted = [record for record in records if isinstance(record.event, e.Prompted)]
    if prompted:
        await agent.resume(SESSION, context=shop)
    for number in range(len(prompted), prompts):
        await agent.run(f"prompt {number}", SESSION, context=shop, tenant="acme", caller="ann")


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    subject = make_agent(folder / "log.db", Killing(int(sys.argv[2])))
    asyncio.run(drive(subject, Shop("Acme", folder)))
