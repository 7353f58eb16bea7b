"""What must be on disk before something happens: the intent before a mutating tool, everything before it is reported.

The store holds back the acknowledgement of one event.  As long as it does, nothing that depends on the event may have
happened: no tool has run, no caller has a result, no watcher has seen the record.
"""

import asyncio

import pytest

from bridle import Agent, tool
from bridle.stores.memory import MemoryStore
from bridle.testing import FakeClock, scripted
from bridle.testing.scripted_model import call_reply
from bridle.values import events as e

LOOP_TURNS = 200


class HoldingStore(MemoryStore):
    """Acknowledges an append with an event of this kind only after `release`."""

    def __init__(self, kind):
        super().__init__()
        self.kind, self.reached, self.release = kind, asyncio.Event(), asyncio.Event()

    async def append(self, session, after, records, *, epoch=None):
        if any(isinstance(record.event, self.kind) for record in records):
            self.reached.set()
            await self.release.wait()
        await super().append(session, after, records, epoch=epoch)


class Witness:
    def __init__(self):
        self.seen = []

    def on_event(self, session, happening):
        if hasattr(happening, "event"):
            self.seen.append(type(happening.event))


async def run_held(kind, effect):
    """Run until the event is being written; returns what has happened by then, and after it was acknowledged."""
    ran = []

    @tool(effect=effect)
    async def pay() -> str:
        """Pay."""
        ran.append("pay")
        return "paid"

    store, witness = HoldingStore(kind), Witness()
    agent = Agent(
        scripted(call_reply(("pay", {})), "Done."),
        tools=[pay],
        store=store,
        watchers=[witness],
        clock=FakeClock(),
    )
    running = asyncio.ensure_future(agent.run("Pay.", "s"))
    await store.reached.wait()
    for _ in range(LOOP_TURNS):
        await asyncio.sleep(0)
    held = list(ran), running.done(), kind in witness.seen
    store.release.set()
    result = await running
    return held, (ran, result.text, kind in witness.seen)


@pytest.mark.parametrize("effect", ["write", "read"])
def test_a_tool_runs_only_when_its_start_is_on_disk(effect):
    held, after = asyncio.run(run_held(e.ToolStarted, effect))
    assert held == ([], False, False)
    assert after == (["pay"], "Done.", True)


@pytest.mark.parametrize("kind", [e.Prompted, e.ModelAsked])
def test_no_model_is_called_before_the_question_is_on_disk(kind):
    held, after = asyncio.run(run_held(kind, "write"))
    assert held == ([], False, False)
    assert after == (["pay"], "Done.", True)


@pytest.mark.parametrize("kind", [e.ToolFinished, e.RunEnded])
def test_nothing_is_reported_before_it_is_on_disk(kind):
    held, after = asyncio.run(run_held(kind, "write"))
    assert held == (["pay"], False, False)
    assert after == (["pay"], "Done.", True)
