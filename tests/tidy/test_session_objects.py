"""An open session takes few objects: they are counted, because the count is the same on every machine.

The collector visits each object that it knows, and memory grows with all of them. Values are unknown to the collector,
except those that can be part of a cycle: they hold an object or a function of the user.
"""

import gc
import json
import subprocess
import sys

import pytest

from bridle.values.events import ModelReplied
from bridle.values.message import Message, Reply, Stop, Text
from bridle.values.model import Origin
from bridle.values.usage import Usage

PROGRAM = """
import asyncio, gc, json, sys, tracemalloc
from bridle import Agent, tool
from bridle.testing.scripted_model import call_reply, scripted

SESSIONS, held, release = 50, 0, asyncio.Event()

@tool(effect="read")
async def hold(text: str) -> str:
    "Wait."
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
    print(json.dumps([(late - early) / SESSIONS for early, late in zip(before, after)]))
    release.set()
    await asyncio.wait(tasks)

asyncio.run(main())
"""
KNOWN_MAX, BLOCKS_MAX, BYTES_MAX = 133, 325, 32_000
"""Per session: objects that the collector knows, all blocks of memory, and their bytes."""


@pytest.mark.slow
@pytest.mark.skipif(
    sys.version_info[:2] != (3, 11), reason="other Pythons lay out frames and objects differently"
)
def test_an_open_session_takes_few_objects():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    known, blocks, size = json.loads(done.stdout)
    assert known <= KNOWN_MAX, known
    assert blocks <= BLOCKS_MAX, blocks
    assert size <= BYTES_MAX, size


def test_the_collector_does_not_know_values():
    origin = Origin(family="f", endpoint="e", model="m")
    reply = Reply(parts=(Text(text="a"),), stop=Stop.DONE, usage=Usage(), origin=origin)
    for value in (reply, ModelReplied(reply=reply), Message(role="user", parts=reply.parts, at=0.0)):
        assert not gc.is_tracked(value)
