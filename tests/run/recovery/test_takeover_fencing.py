"""Which runs inside tools a resume takes over: those that a replaced process may still drive, and no others."""

import asyncio

from bridle import Agent, PermissionRule, Policy, tool
from bridle.stores.memory import MemoryStore
from bridle.values import events as e

HELPER = "shared-helper"
WITH_APPROVAL = "!call ask_helper {}\n!then\n!call pay {}\n!then\n!say done"


class Crash(Exception):
    """Ends a process as it were: nothing is recorded after it."""


class CrashingStore(MemoryStore):
    """A store that fails with the receipts of the outer calls while it is told to."""

    is_failing = False

    async def append(self, session, after, records, *, epoch=None):
        if self.is_failing and session == "outer" and isinstance(records[0].event, e.ToolFinished):
            raise Crash
        await super().append(session, after, records, epoch=epoch)


class Scene:
    """An agent whose tool prompts a helper in a session that other programs prompt too."""

    def __init__(self):
        self.store = CrashingStore()
        self.goes_on, self.is_inside = asyncio.Event(), asyncio.Event()

        @tool(effect="write")
        async def wait() -> str:
            """Wait."""
            self.is_inside.set()
            await self.goes_on.wait()
            return "waited"

        self.helper = Agent("sim:", store=self.store, tools=[wait])

        @tool(effect="read")
        async def ask_helper() -> str:
            """Ask the helper."""
            return (await self.helper.run("!say helped", session=HELPER)).text or ""

        @tool(effect="write")
        async def pay() -> str:
            """Pay."""
            return "paid"

        policy = Policy(rules=(PermissionRule(tools=("pay",), decision="ask"),))
        self.outer = Agent("sim:", store=self.store, tools=[ask_helper, pay], policy=policy)

    async def start_other_run(self):
        """A run of another program in the helper's session: it is alive and answers."""
        running = asyncio.create_task(self.helper.run("!call wait {}\n!then\n!say done", session=HELPER))
        await self.is_inside.wait()
        return running

    async def crash(self, work):
        self.store.is_failing = True
        try:
            await work
        except Crash:
            self.store.is_failing = False
            return
        raise AssertionError("the run did not crash")


def test_a_resume_long_after_a_takeover_leaves_a_healthy_run_of_a_finished_call_alone():
    async def main():
        scene = Scene()
        assert (await scene.outer.run(WITH_APPROVAL, session="outer")).stop == "waiting"
        assert (await scene.outer.resume("outer", take_over=True)).stop == "waiting"
        running = await scene.start_other_run()
        (question,) = await scene.outer.approvals("outer")
        await scene.outer.approve("outer", question.call_id, by="boss")
        assert (await scene.outer.resume("outer")).stop == "done"
        scene.goes_on.set()
        assert (await running).stop == "done"
        assert await scene.store.read_epoch(HELPER) == 0

    asyncio.run(main())


def test_a_takeover_that_was_completed_is_not_repeated_by_the_next_resume():
    async def main():
        scene = Scene()
        await scene.crash(scene.outer.run("!call ask_helper {}\n!then\n!say done", session="outer"))
        await scene.crash(scene.outer.resume("outer", take_over=True))
        assert await scene.store.read_epoch(HELPER) == 1
        running = await scene.start_other_run()
        await scene.outer.resume("outer")
        scene.goes_on.set()
        assert (await running).stop == "done"
        assert await scene.store.read_epoch(HELPER) == 1

    asyncio.run(main())


def test_a_takeover_that_died_at_once_is_completed_by_the_next_resume():
    async def main():
        scene = Scene()
        await scene.crash(scene.outer.run("!call ask_helper {}\n!then\n!say done", session="outer"))
        async with scene.store.lease("outer", take_over=True):
            pass  # this process ends before it has read the log
        running = await scene.start_other_run()  # as the old process would
        assert (await scene.outer.resume("outer")).stop == "done"
        assert await scene.store.read_epoch(HELPER) == 1
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(main())
