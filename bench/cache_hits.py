"""How much of what could be read from the prompt cache is read, by our own harness.

An agent takes fifty steps, each with a call and a result.  It writes its requests as it
would for the real endpoint; they go to a simulated provider in this process whose cache
is as strict as the real one.  Ideal is every token of a step that the step before had
sent already, as soon as that is long enough for the model to keep.

    python bench/cache_hits.py [--steps 50] [--wait 5] [--json]
"""

import argparse
import asyncio
import json
import random

from bridle import Agent, Budget, tool
from bridle.providers import load
from bridle.providers.catalogue import find
from bridle.run.line import Line
from bridle.sim.simulator import Simulator
from bridle.testing.clock import FakeClock
from bridle.transports.inprocess import InProcessTransport
from bridle.values.message import Reply, Stop
from bridle.values.model import Origin
from bridle.values.parts import Text, ToolCall

MODELS = (
    "anthropic:claude-sonnet-5-5",
    "openai:gpt-6.1-sol",
    "deepseek:deepseek-v4-pro",
    "openai:gpt-5.4",
    "openai-chat:gpt-6.1-sol",
    "gemini:gemini-3.8-flash",
    "bedrock:global.anthropic.claude-sonnet-5-5",
)
TARGET = 0.95
INSTRUCTIONS = " ".join(f"Rule {n}: look before you leap, and write down what you saw." for n in range(60))
SIZES = (20, 80, 200, 400)


def main():
    options = parse()
    rows = [measured(model, options.steps, options.wait) for model in MODELS]
    if options.json:
        print(json.dumps(rows))
        return
    print(f"{'model':52} {'steps':>5} {'ideal':>9} {'read':>9} {'written':>9} {'fresh':>9} {'share':>7}")
    for row in rows:
        counts = " ".join(f"{row[name]:>9,}" for name in ("ideal", "read", "written", "fresh"))
        print(f"{row['model']:52} {row['steps']:>5} {counts} {row['share']:>6.1%}")


def measured(model, steps, wait):
    clock, usages = FakeClock(), []
    simulator = Simulator(brain=walker(steps), clock=clock)

    async def answer(outgoing):
        clock.advance(wait)
        return await simulator.answer(outgoing)

    asyncio.run(walk(model, answer, steps, usages))
    least = find(model, environ={}).abilities.cache_minimum_tokens
    ideal = sum(usage.prompt for usage in usages[:-1] if usage.prompt >= least)
    read = sum(usage.cache_read for usage in usages)
    return {
        "model": model,
        "steps": len(usages),
        "ideal": ideal,
        "read": read,
        "written": sum(usage.cache_write for usage in usages),
        "fresh": sum(usage.input for usage in usages),
        "share": read / ideal,
        "enough": read >= TARGET * ideal,
    }


async def walk(model, answer, steps, usages):
    located = find(model, environ={})
    codec, transport = load(located.endpoint.family), InProcessTransport(answer)
    line = Line(model=located, codec=codec, transport=transport)
    sizes = random.Random(7)

    @tool(effect="read")
    def look(at: int) -> str:
        """Look at one place."""
        return " ".join(f"At {at} there is item {n}." for n in range(sizes.choice(SIZES) // 7))

    agent = Agent(
        line, tools=[look], instructions=INSTRUCTIONS, budget=Budget(steps=steps + 1), repeats_max=None
    )
    async for event in agent.stream("Go through all places, one by one."):
        usage = getattr(getattr(event, "reply", None), "usage", None)
        if usage is not None:
            usages.append(usage)


def walker(steps):
    """A mind that looks at one place after another and then says so."""

    def decide(request):
        seen = sum(message.role == "assistant" for message in request.messages)
        endpoint = request.model.endpoint
        origin = Origin(family=endpoint.family, endpoint=endpoint.home, model=request.model.id)
        if seen >= steps - 1:
            return Reply(parts=(Text(text="Done."),), stop=Stop.DONE, origin=origin, id=f"sim_{seen}")
        call = ToolCall(id=f"call_{seen}", wire_id=f"call_{seen}", name="look", arguments=f'{{"at": {seen}}}')
        parts = (Text(text=f"I look at place {seen}."), call)
        return Reply(parts=parts, stop=Stop.TOOLS, origin=origin, id=f"sim_{seen}")

    return decide


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--wait", type=float, default=5, help="seconds between two requests")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
