"""What tenants of one agent read from the cache of what they share, by where their notes stand.

Five tenants, each with notes of its own, make four calls one after another, on simulated providers whose
caches are as strict as the real ones.  `first` is what a later tenant's first call reads of its prompt.

    behind    notes as memory: behind tools and instructions, marked before and behind (what Bridle does)
    before    the same words at the beginning of the instructions
    clock     behind, and a clock at the end of the instructions, as many prompts have one
    facts     behind, and the clock as a fact beside the prompt

    python bench/tenants.py [--json]
"""

import argparse
import asyncio
import json

from bridle import Agent, Budget, Memory
from bridle.memory import Notes
from bridle.providers import load_codec
from bridle.providers.catalogue import find_model
from bridle.run.model_connection import ModelConnection
from bridle.sim.simulator import Simulator
from bridle.stores.memory import MemoryStore
from bridle.testing.fake_clock import FakeClock
from bridle.transports.inprocess import InProcessTransport
from bridle.values.message import Reply, Stop, Text
from bridle.values.model import Origin

MODELS = (
    "anthropic:claude-sonnet-5-5",
    "anthropic-vertex:claude-sonnet-5-5",
    "bedrock:global.anthropic.claude-sonnet-5-5",
    "deepseek:deepseek-v4-pro",
    "openai:gpt-5.4",
    "openai:gpt-6.1-sol",
    "gemini:gemini-3.8-flash",
)
ENVIRON = {"ANTHROPIC_VERTEX_PROJECT_ID": "bench"}
SHAPES = ("behind", "before", "clock", "facts")
TENANTS, CALLS = 5, 4
INSTRUCTIONS = " ".join(f"Rule {n}: look before you leap, and write down what you saw." for n in range(300))
NOTE = "Tenant {tenant} is a customer of ours, pays late and is fond of tea. "


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    rows = [measured(model, shape) for model in MODELS for shape in SHAPES]
    if parser.parse_args().json:
        print(json.dumps(rows))
        return
    print(f"{'model':44} {'notes':7} {'prompt':>7} {'first':>7} {'all read':>9} {'of':>8}")
    for row in rows:
        print(
            f"{row['model']:44} {row['shape']:7} {row['prompt']:>7,} {row['first']:>7.1%}"
            f" {row['read']:>9,} {row['sent']:>8,}"
        )


def measured(model, shape):
    return asyncio.run(_measured(model, shape))


async def _measured(model, shape):
    clock, store, located = FakeClock(), MemoryStore(), find_model(model, environ=ENVIRON)
    simulator = Simulator(responder=answering, clock=clock)
    line = ModelConnection(
        model=located,
        codec=load_codec(located.endpoint.family),
        transport=InProcessTransport(simulator.answer),
    )
    firsts, read, sent, prompt = [], 0, 0, 0
    for tenant in range(TENANTS):
        words = NOTE.format(tenant=tenant) * 10
        await Notes(store).add(words, tenant=f"t{tenant}")
        for call in range(CALLS):
            clock.advance(7)
            told = f"The time is {clock.now():.0f}."
            agent = Agent(
                line,
                store=store,
                clock=clock,
                instructions={"before": f"{words}\n{INSTRUCTIONS}", "clock": f"{INSTRUCTIONS}\n{told}"}.get(
                    shape, INSTRUCTIONS
                ),
                memory=None if shape == "before" else Memory(tools=False),
                facts={"time": told} if shape == "facts" else None,
                budget=Budget(steps=3),
                cache_ttl="5m",
                cache_by="agent",
            )
            result = await agent.run(f"Question {call}.", session=f"s{tenant}", tenant=f"t{tenant}")
            usage = result.usage
            read, sent = read + usage.cache_read, sent + usage.prompt
            if call == 0 and tenant:
                firsts.append(usage.cache_read / usage.prompt)
                prompt = usage.prompt
    return {
        "model": model,
        "shape": shape,
        "prompt": prompt,
        "first": sum(firsts) / len(firsts),
        "read": read,
        "sent": sent,
    }


def answering(request):
    seen = sum(message.role == "assistant" for message in request.messages)
    endpoint = request.model.endpoint
    origin = Origin(family=endpoint.family, endpoint=endpoint.endpoint_id, model=request.model.id)
    return Reply(parts=(Text(text=f"Answer {seen}."),), stop=Stop.DONE, origin=origin, id=f"r{seen}")


if __name__ == "__main__":
    main()
