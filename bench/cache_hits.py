"""How much of what could be read from the prompt cache is read, by our own harness.

An agent takes fifty steps.  It writes its requests as it would for the real endpoint; they go to a
simulated provider in this process whose cache is as strict as the real one.  Ideal is every token of a
step that the step before had sent already, as soon as that is long enough for the model to keep.

    steady   each step is a call and a result
    bursts   half way through comes a prompt of sixty parts, and every eighth step adds sixty blocks and more
    fork     ten steps on, from the middle of a steady session, in a session of its own
    compact  steady, in a window so small that old turns give way to summaries several times; here ideal is
             the longest beginning that a prompt shares with any prompt before it, as its provider lays it
             out: what a summary moved could not have been read, and what it did not move could

    python bench/cache_hits.py [--steps 50] [--wait 5] [--json]
"""

import argparse
import asyncio
import json
import random
import re

from bridle import Agent, Budget, tool
from bridle.providers import load_codec
from bridle.providers.catalogue import find_model
from bridle.run.model_connection import ModelConnection
from bridle.sim.families import lay_out_for_family
from bridle.sim.simulator import Simulator
from bridle.testing.fake_clock import FakeClock
from bridle.transports.inprocess import InProcessTransport
from bridle.values.events import ModelReplied
from bridle.values.message import Reply, Stop, Text, ToolCall
from bridle.values.model import Origin
from bridle.values.result import History

MODELS = (
    "anthropic:claude-sonnet-5-5",
    "openai:gpt-6.1-sol",
    "deepseek:deepseek-v4-pro",
    "openai:gpt-5.4",
    "openai-chat:gpt-6.1-sol",
    "gemini:gemini-3.8-flash",
    "bedrock:global.anthropic.claude-sonnet-5-5",
    "anthropic-vertex:claude-sonnet-5-5",
    "anthropic-foundry:claude-sonnet-5-5",
)
ENVIRON = {"ANTHROPIC_VERTEX_PROJECT_ID": "bench", "ANTHROPIC_FOUNDRY_RESOURCE": "bench"}
SHAPES = ("steady", "bursts", "fork", "compact")
WINDOW_TOKENS = 6_000
BURST_EVERY, BURST_CALLS, PROMPT_PARTS = 8, 30, 60
FORK_STEPS = 10
TARGET = 0.95
INSTRUCTIONS = " ".join(f"Rule {n}: look before you leap, and write down what you saw." for n in range(60))
SIZES = (20, 80, 200, 400)


def main():
    options = parse()
    rows = [measured(model, shape, options.steps, options.wait) for model in MODELS for shape in SHAPES]
    if options.json:
        print(json.dumps(rows))
        return
    print(
        f"{'model':44} {'shape':7} {'steps':>5} {'ideal':>9} {'read':>9} {'written':>9} {'fresh':>9} {'share':>7}"
    )
    for row in rows:
        counts = " ".join(f"{row[name]:>9,}" for name in ("ideal", "read", "written", "fresh"))
        print(f"{row['model']:44} {row['shape']:7} {row['steps']:>5} {counts} {row['share']:>6.1%}")


def measured(model, shape, steps, wait=5):
    clock = FakeClock()
    simulator = Simulator(responder=walker(shape), clock=clock)

    bodies = []

    async def answer(outgoing):
        clock.advance(wait)
        bodies.append(json.loads(outgoing.body))
        return await simulator.answer(outgoing)

    located = find_model(model, environ=ENVIRON)
    line = ModelConnection(
        model=located, codec=load_codec(located.endpoint.family), transport=InProcessTransport(answer)
    )
    before, usages = asyncio.run(walk(line, clock, shape, steps))
    least = located.abilities.cache_minimum_tokens
    ideal = sum(tokens for tokens in (before, *(usage.prompt for usage in usages[:-1])) if tokens >= least)
    if shape == "compact":
        ideal = shared(
            [lay_out_for_family(located.endpoint.family, body, located.abilities) for body in bodies], least
        )
    read = sum(usage.cache_read for usage in usages)
    return {
        "model": model,
        "shape": shape,
        "steps": len(usages),
        "ideal": ideal,
        "read": read,
        "written": sum(usage.cache_write for usage in usages),
        "fresh": sum(usage.input for usage in usages),
        "share": read / ideal,
        "enough": read >= TARGET * ideal,
    }


def shared(prompts, least):
    """The tokens that each prompt has in common with the one before it that is most like it."""
    return sum(
        max((tokens for before in prompts[:at] if (tokens := common(before, prompt)) >= least), default=0)
        for at, prompt in enumerate(prompts)
    )


def common(before, prompt):
    total = 0
    for old, new in zip(before.blocks, prompt.blocks, strict=False):
        if (old.section, old.kind, old.key, old.text) != (new.section, new.kind, new.key, new.text):
            break
        total += new.tokens
    return total


async def walk(line, clock, shape, steps):
    """What the first step could have read, and what every step did."""
    sizes = random.Random(7)

    @tool(effect="read")
    def look(at: int) -> str:
        """Look at one place."""
        return " ".join(f"At {at} there is item {n}." for n in range(sizes.choice(SIZES) // 7))

    agent = Agent(
        line,
        tools=[look],
        instructions=INSTRUCTIONS,
        budget=Budget(steps=None),
        repeats_max=None,
        clock=clock,
        context_tokens=WINDOW_TOKENS if shape == "compact" else None,
    )
    first = steps // 2 if shape == "bursts" else steps
    result = await agent.run(f"Go through {first} places, one by one.", session="walk")
    if shape == "bursts":
        parts = [Text(text=f"Remember: place {n} is number {n}.") for n in range(PROMPT_PARTS - 1)]
        more = Text(text=f"Go through {steps - first} places, one by one.")
        result = await agent.run([*parts, more], session="walk")
    if shape == "compact":
        records = await agent.store.read("walk")
        return 0, [each.event.reply.usage for each in records if isinstance(each.event, ModelReplied)]
    if shape != "fork":
        return 0, used(result.messages)
    ends = [at for at, message in enumerate(result.messages) if message.role == "assistant"]
    shared = ends[len(ends) // 2]
    history = History(messages=result.messages[:shared])
    forked = await agent.run(f"Go through {FORK_STEPS} places, one by one.", history=history)
    return result.messages[shared].usage.prompt, used(forked.messages[shared:])


def used(messages):
    return [message.usage for message in messages if message.role == "assistant"]


def walker(shape):
    """A mind that looks at as many places as it was told to and then says so."""

    def decide(request):
        endpoint = request.model.endpoint
        origin = Origin(family=endpoint.family, endpoint=endpoint.endpoint_id, model=request.model.id)
        if shape == "compact":
            return compact(request, origin)
        asked = max(at for at, message in enumerate(request.messages) if message.role == "user")
        wanted = int(re.search(r"through (\d+) places", request.messages[asked].text)[1])
        seen = sum(message.role == "assistant" for message in request.messages)
        done = sum(message.role == "assistant" for message in request.messages[asked:])
        if done >= wanted - 1:
            return Reply(parts=(Text(text="Done."),), stop=Stop.DONE, origin=origin, id=f"sim_{seen}")
        burst = shape == "bursts" and done % BURST_EVERY == BURST_EVERY - 1
        places = [f"{seen}{n:02}" for n in range(BURST_CALLS if burst else 1)]
        texts = [Text(text=f"I look at place {place}.") for place in places]
        calls = [
            ToolCall(id=f"call_{place}", wire_id=f"call_{place}", name="look", arguments=f'{{"at": {place}}}')
            for place in places
        ]
        return Reply(parts=(*texts, *calls), stop=Stop.TOOLS, origin=origin, id=f"sim_{seen}")

    return decide


def compact(request, origin):
    """The same mind with nothing to count its steps by but what it is sent."""
    words = "\n".join(str(part) for message in request.messages for part in message.parts)
    place = max(map(int, re.findall(r"(?:At|up to) (\d+)", words)), default=0)
    if "write down what is needed" in request.messages[-1].text:
        told = Text(text=f"I have looked at everything up to {place}; there was nothing to note.")
        return Reply(parts=(told,), stop=Stop.DONE, origin=origin, id=f"summary_{place}")
    if place >= int(re.search(r"through (\d+) places", words)[1]) - 1:
        return Reply(parts=(Text(text="Done."),), stop=Stop.DONE, origin=origin, id=f"sim_{place}")
    name, arguments = f"call_{place}", f'{{"at": {place + 1}}}'
    call = ToolCall(id=name, wire_id=name, name="look", arguments=arguments)
    parts = (Text(text=f"I look at place {place + 1}."), call)
    return Reply(parts=parts, stop=Stop.TOOLS, origin=origin, id=f"sim_{place}")


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--wait", type=float, default=5, help="seconds between two requests")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
