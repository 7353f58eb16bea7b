"""Drivers that change something between two prompts, or end the process in the middle of a call."""

import asyncio

from harness_agents import LONG, make_careful_tools, make_tools, rule

from bridle import Agent, Budget, Limits, Policy, StoreError, tool
from bridle.events import ToolFinished
from bridle.sim.stored_objects import StoredObjects


class ResultLosingStore:
    """The store of a process that ends after its tool has run and before the result is recorded."""

    def __init__(self, inner):
        self._inner = inner

    def __getattr__(self, name):
        return getattr(self._inner, name)

    async def append(self, session, after, records, **given):
        if any(isinstance(each.event, ToolFinished) for each in records):
            raise StoreError("the process is gone")
        await self._inner.append(session, after, records, **given)


class CancellingStore(ResultLosingStore):
    """The store of a run that is cancelled after its tool has run and before the result is recorded."""

    task = None

    async def append(self, session, after, records, **given):
        if any(isinstance(each.event, ToolFinished) for each in records):
            self.task.cancel()
            await asyncio.Event().wait()
        await super().append(session, after, records, **given)


def make_other(setup, tools=None, **options):
    """Another agent for the same session, as after a new deployment."""
    return Agent(
        list(setup.models),
        tools=make_tools(setup.world) if tools is None else tools,
        **{"store": setup.store, "clock": setup.clock, **options},
    )


async def interrupt(setup, agent):
    """End the process while a call runs, then resume: it is unknown whether the call took effect."""
    tools = make_careful_tools(setup.world)
    broken = make_other(setup, tools, store=ResultLosingStore(setup.store))
    try:
        await broken.run(setup.task.prompts[0], setup.session)
    except StoreError:
        return await agent.resume(setup.session)
    raise AssertionError("no call had a result")


async def cancel(setup, agent):
    """Cancel the run while a call runs, then resume; the same doubt as after `interrupt`."""
    await cancel_in_call(setup)
    return await agent.resume(setup.session)


async def cancel_and_prompt(setup, agent):
    """Cancel the run while a call runs, then send the next prompt."""
    await cancel_in_call(setup)
    return await agent.run(setup.task.prompts[1], setup.session)


async def cancel_in_call(setup):
    store = CancellingStore(setup.store)
    stopped = make_other(setup, make_careful_tools(setup.world), store=store)
    store.task = asyncio.ensure_future(stopped.run(setup.task.prompts[0], setup.session))
    await asyncio.wait([store.task])
    assert store.task.cancelled(), "no call had a result"


async def settle_doubt(setup, agent):
    """A person says what became of the call that was interrupted."""
    asked = await interrupt(setup, agent)
    for pending in await agent.approvals(setup.session):
        await agent.settle(setup.session, pending.id, "mailed by hand", by="ann")
    return [asked, await agent.resume(setup.session)]


async def change_policy(setup, agent):
    """Approve a call, and resume with an agent that has another policy."""
    first = await agent.run(setup.task.prompts[0], setup.session)
    (pending,) = await agent.approvals(setup.session)
    await agent.approve(setup.session, pending.id, by="ann")
    stricter = Policy(rules=(rule("ask", "pay", arguments={"amount": ">= 10"}),))
    return [first, await make_other(setup, policy=stricter).resume(setup.session)]


async def allow_rejected(setup, agent):
    """Reject a call, and resume with an agent whose policy allows it."""
    first = await agent.run(setup.task.prompts[0], setup.session)
    (pending,) = await agent.approvals(setup.session)
    await agent.reject(setup.session, pending.id, reason="too much", by="ann")
    open_policy = Policy(rules=(rule("allow", "pay"),))
    return [first, await make_other(setup, policy=open_policy).resume(setup.session)]


async def nap_twice(setup, agent):
    """Two runs of eight seconds, in a session of ten."""

    @tool(effect="read")
    def nap() -> str:
        """Sleep."""
        setup.world.note("nap")
        setup.clock.advance(8)
        return "slept"

    sleepy = make_other(setup, [nap], budget=Budget(session=Limits(seconds=10)))
    return [await sleepy.run(prompt, setup.session) for prompt in setup.task.prompts]


async def pause(setup, agent):
    """Wait for ten minutes between the prompts."""
    results = []
    for prompt in setup.task.prompts:
        results.append(await agent.run(prompt, setup.session))
        setup.clock.advance(600)
    return results


async def forget(setup, agent):
    """Make the provider lose what it stores, between two prompts. Wires that store nothing just go on."""
    stores = agent.settings.model.endpoint.family == "openai_responses"
    chained = make_other(setup, instructions=LONG, chain=stores)
    first = await chained.run(setup.task.prompts[0], setup.session)
    setup.provider.simulator.stored = StoredObjects()
    return [first, await chained.run(setup.task.prompts[1], setup.session)]
