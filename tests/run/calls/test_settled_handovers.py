"""A crash behind a hand-over: the agent that had the call settles it, with `resume` and with the next prompt."""

from typing import Any

import pytest

from bridle import Agent, RunContext, StoreError, tool
from bridle.stores.memory import MemoryStore
from bridle.values.events import ApprovalAsked, Configured, ToolFinished, ToolStarted
from tests.suite.in_loop import in_loop

PROMPT = '!call transfer_to_payer {}\n!then\n!call pay {"number": 7}\n!then\n!say paid it'


class Team:
    """A desk that hands over to a payer; the process of the first run dies after the payment."""

    def __init__(self, policy, *, is_paid=True):
        self.store, self.paid, self.probed, self.is_dead = CrashingStore(), {}, [], False
        self._policy, self._is_paid = policy, is_paid

    def make(self, *, lists_payer=True):
        def find_payment(number: int, call: RunContext) -> str | None:
            self.probed.append(number)
            return f"paid {number}, says the bank" if call.idempotency_key in self.paid else None

        probe: dict[str, Any] = {"probe": find_payment} if self._policy == "probe" else {}

        @tool(effect="write", on_unknown=self._policy, **probe)
        async def pay(number: int, call: RunContext) -> str:
            if self._is_paid or self.store.has_crashed:
                assert call.idempotency_key not in self.paid
                self.paid[call.idempotency_key] = number
            if not self.store.has_crashed:
                self.store.is_dead = True
            return f"paid {number}"

        payer = Agent("sim:", tools=[pay], name="payer")
        return Agent("sim:", name="desk", handover=[payer] if lists_payer else [], store=self.store)

    async def crash(self):
        with pytest.raises(StoreError):
            await self.make().run(PROMPT, "s")
        self.store.is_dead, self.store.has_crashed = False, True

    async def outcomes(self):
        events = [record.event for record in await self.store.read("s")]
        return [
            (e.source, e.result.outcome) for e in events if isinstance(e, ToolFinished) and e.name == "pay"
        ]


class CrashingStore(MemoryStore):
    """The store of a process that dies, at once or after some more records."""

    is_dead = has_crashed = False
    left = None

    async def append(self, session, after, records, *, epoch=None):
        if self.is_dead or self.left == 0:
            raise StoreError("the process is gone")
        self.left = None if self.left is None else self.left - 1
        await super().append(session, after, records, epoch=epoch)


@pytest.mark.parametrize("is_paid", [True, False])
@pytest.mark.parametrize("how", ["resume", "prompt"])
@in_loop
async def test_probe_of_the_agent_behind_a_handover_runs(how, is_paid):
    team = Team("probe", is_paid=is_paid)
    await team.crash()
    desk = team.make()
    result = await (desk.resume("s") if how == "resume" else desk.run("!say hello again", "s"))
    assert result.stop == "done"
    assert result.text == ("paid it" if how == "resume" else "hello again")
    assert team.probed == [7]
    assert [*team.paid.values()] == [7]
    assert await team.outcomes() == [("probe", "ok") if is_paid else ("run", "ok")]
    # The first agent has the run again after a prompt.
    state_name = [
        e.event.settings.name for e in await team.store.read("s") if isinstance(e.event, Configured)
    ][-1]
    assert state_name == ("payer" if how == "resume" else "desk")
    assert (await desk.run("!say bye", "s")).text == "bye"


@in_loop
async def test_person_decides_about_a_call_behind_a_handover_before_the_next_prompt():
    team = Team("ask")
    await team.crash()
    desk = team.make()
    result = await desk.run("!say hello again", "s")
    assert result.stop == "waiting"
    (question,) = await desk.approvals("s")
    assert (question.question, question.tool) == ("in_doubt", "pay")
    await desk.settle("s", question.id, "paid 7, says ann")
    result = await desk.resume("s")
    assert (result.stop, result.text) == ("done", "hello again")
    assert await team.outcomes() == [("person", "ok")]
    assert sum(isinstance(e.event, ApprovalAsked) for e in await team.store.read("s")) == 1


@pytest.mark.parametrize("records", range(1, 12))
@in_loop
async def test_crash_while_the_call_is_settled_loses_nothing(records):
    team = Team("probe")
    await team.crash()
    desk = team.make()
    team.store.left = records
    try:
        await desk.run("!say hello again", "s")
    except StoreError:
        team.store.left = None
        result = await desk.resume("s")
        assert (result.stop, result.text) in (("done", "hello again"), ("done", "paid it"))
    assert [*team.paid.values()] == [7]
    assert await team.outcomes() == [("probe", "ok")]


@in_loop
async def test_started_call_of_an_unlisted_agent_is_reported_as_unknown():
    team = Team("probe")
    await team.crash()
    result = await team.make(lists_payer=False).run("!say hello again", "s")
    assert result.text == "hello again"
    assert await team.outcomes() == [("run", "unknown")]
    assert (
        sum(
            isinstance(e.event, ToolStarted)
            for e in await team.store.read("s")
            if getattr(e.event, "name", "") == "pay"
        )
        == 1
    )
