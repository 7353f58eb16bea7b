"""What an open session takes: objects that the garbage collector visits, all blocks of memory, and their bytes.

    python bench/session_objects.py

The counts are the same on every run of one Python version. The collector visits each object that it knows; values are unknown
to it, except those that can be part of a cycle: they hold an object or a function of the user.
"""

import asyncio
import gc
import sys
import tracemalloc

from bridle import Agent, tool
from bridle.testing.scripted_model import call_reply, scripted

SESSIONS, held, release = 50, 0, asyncio.Event()


@tool(effect="read")
async def hold(text: str) -> str:
    """Wait."""
    global held
    held += 1
    await release.wait()
    return text


def count():
    gc.collect()
    return len(gc.get_objects()), sys.getallocatedblocks(), tracemalloc.get_traced_memory()[0]


async def main():
    agent = Agent(scripted(call_reply(("hold", {"text": "a"})), "done"), tools=[hold])
    tasks = [asyncio.create_task(agent.run("Go."))]
    while held < 1:
        await asyncio.sleep(0)
    tracemalloc.start()
    before = count()
    tasks += [asyncio.create_task(agent.run("Go.")) for _ in range(SESSIONS)]
    while held < SESSIONS + 1:
        await asyncio.sleep(0)
    after = count()
    names = ("objects of the collector", "blocks", "bytes")
    for name, early, late in zip(names, before, after, strict=True):
        print(f"{(late - early) / SESSIONS:10,.1f} {name} per open session")
    release.set()
    await asyncio.wait(tasks)


asyncio.run(main())
