"""Change the course of a run while it works: steer it, pause it, resume it.

    python examples/steering.py

It runs on the built-in simulated model, whose lines in the prompts (`!call`, `!say`) say what the model does;
with a real one, write plain words instead.
"""

import asyncio

from bridle import Agent, tool
from bridle.events import ToolStarted


async def main() -> None:
    counted = asyncio.Event()

    @tool
    async def count_stock(hall: str) -> str:
        """Count the stock of a hall."""
        await counted.wait()  # in the meantime, the person has second thoughts
        return f"{hall}: 12 pallets"

    agent = Agent("sim:", tools=[count_stock])
    prompt = '!call count_stock {"hall": "north"}\n!then\n!say Twelve pallets.'
    run = agent.stream(prompt, "stock").start()
    async for event in run.view():
        if isinstance(event, ToolStarted):
            await run.steer("!say Twelve pallets, as you asked in between.")
            await run.pause()
            counted.set()
    paused = await run.result()
    print(f"{paused.stop}: {paused.reason}, after {paused.steps} step")

    result = await agent.resume("stock")
    print(f"{result.stop}: {result.text}")


if __name__ == "__main__":
    asyncio.run(main())
