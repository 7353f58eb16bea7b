"""An open session takes few objects: they are counted, because the count is the same on every machine.

The collector visits each object that it knows, and memory grows with all of them. Values are unknown to the collector,
except those that can be part of a cycle: they hold an object or a function of the user.
"""

import gc
import importlib
import json
import pkgutil
import subprocess
import sys
import typing
import weakref
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from enum import Enum
from types import NoneType, UnionType

import pytest

import bridle.core
import bridle.values
from bridle import Budget
from bridle.hooks import TextPattern
from bridle.values.base import UNTRACKED_MODULES, Value
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
KNOWN_MAX, BLOCKS_MAX, BYTES_MAX = 133, 320, 32_000
"""Per session: objects that the collector knows, all blocks of memory, and their bytes."""


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


PLAIN = (str, int, float, bytes, NoneType, Decimal, Enum)
CONTAINERS = (tuple, frozenset, list, dict, Mapping, Sequence, typing.Union, UnionType)


def list_values():
    """Every value class of the modules whose values are unknown to the collector."""
    for package in (bridle.core, bridle.values):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    found, open_classes = set(), [Value]
    while open_classes:
        new = set(open_classes.pop().__subclasses__()) - found
        found |= new
        open_classes += new
    return [each for each in found if each.__module__.startswith(UNTRACKED_MODULES)]


def can_hold_user_objects(kind, known=None):
    """True if a field of this type, or a value in it, can hold an object that can refer to it."""
    known = {} if known is None else known
    origin = typing.get_origin(kind)
    if origin is typing.Literal or kind is Ellipsis:
        return False
    if origin in CONTAINERS:
        return any(can_hold_user_objects(each, known) for each in typing.get_args(kind))
    if not isinstance(kind, type) or not issubclass(kind, Value):
        return origin is not None or not isinstance(kind, type) or not issubclass(kind, PLAIN)
    if kind not in known:
        known[kind] = False
        known[kind] = any(can_hold_user_objects(each, known) for each in typing.get_type_hints(kind).values())
    return known[kind]


def test_the_collector_knows_every_value_that_can_be_part_of_a_cycle():
    values = list_values()
    holders = {each for each in values if can_hold_user_objects(each)}
    assert len(values) > 200 and {each.__name__ for each in holders} >= {"ApprovalVerdict", "Change"}
    assert [each for each in holders if not each.__struct_config__.gc] == []
    assert can_hold_user_objects(dict[str, Callable[[], None]]) and not can_hold_user_objects(tuple[str, ...])


def test_a_value_with_a_method_of_its_owner_is_freed():
    class Card:
        def __init__(self):
            self.pattern = TextPattern(
                name="card", pattern="[0-9]{16}", open_end="[0-9]*", check=self.is_card
            )

        def is_card(self, text):
            return True

    card = weakref.ref(Card())
    gc.collect()
    assert card() is None


def test_a_user_can_extend_a_value():
    class TeamBudget(Budget):
        team: str = ""

    assert TeamBudget(usd=1, team="a").team == "a" and TeamBudget.__struct_config__.gc
