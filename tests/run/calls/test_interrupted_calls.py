"""A call that the end of a run interrupts is in doubt, as after a crash: `on_unknown` decides when the session goes on."""

import asyncio
import re

import pytest

from bridle import Agent, Budget, RunContext, StoreError, tool
from bridle.core.audit.report import audit_log
from bridle.sessions import ApprovalVerdict
from bridle.stores.memory import MemoryStore
from bridle.testing import scripted, simulated
from bridle.testing.scripted_model import call_reply
from bridle.values.events import ApprovalAsked, RunEnded, ToolFinished, ToolProbed, ToolStarted

PAYMENTS = 5
POINTS_MAX = 60
PAY = call_reply(("pay", {"number": 1}))


class StoppableStore(MemoryStore):
    """The store of a process that is killed or cancelled after a chosen record."""

    def __init__(self, how, record=0):
        super().__init__()
        self.how, self.left, self.is_dead, self.task = how, record, False, None

    async def append(self, session, after, records, *, epoch=None):
        if self.is_dead:
            raise StoreError("the process is gone")
        await super().append(session, after, records, epoch=epoch)
        self.left -= len(records)
        if self.left <= 0 <= self.left + len(records) - 1:
            self.stop()
            await asyncio.sleep(0)  # a cancellation arrives here

    def stop(self):
        if self.how == "kill":
            self.is_dead = True
        elif self.task is not None:
            self.task.cancel()

    async def run_until_stopped(self, work):
        self.task = asyncio.ensure_future(work)
        try:
            await self.task
            return False
        except (StoreError, asyncio.CancelledError):
            return True
        finally:
            self.is_dead, self.left, self.task = False, 0, None


class Bank:
    """A payment tool that may be stopped inside a call, and the payments by idempotency key."""

    def __init__(self, policy, store, stops_in=0, **options):
        self.ledger, self._store, self._calls = {}, store, 0

        def find_payment(call: RunContext, number: int) -> str | None:
            return f"paid {number}, says the bank" if call.idempotency_key in self.ledger else None

        probe = {"probe": find_payment} if policy == "probe" else {}

        @tool(effect="write", on_unknown=policy, **probe, **options)  # type: ignore[call-overload]
        async def pay(number: int, call: RunContext) -> str:
            """Pay a bill."""
            self.ledger[call.idempotency_key] = number
            self._calls += 1
            if self._calls == stops_in:
                store.stop()
                if store.how != "kill":
                    await asyncio.Event().wait()
            await asyncio.sleep(0)
            return f"paid {number}"

        self.tool = pay

    async def answer(self, question):
        """A person who asks the bank: a payment that was made is settled, another one may run."""
        number = int(re.findall(r"\d+", question.arguments)[0])
        if number in self.ledger.values():
            return ApprovalVerdict(answer="done", reason=f"paid {number}")
        return ApprovalVerdict(answer="approve")


def pay_until_paid(facts):
    """A model that calls `pay` for every bill until it reads that the bill is paid, or that this is unknown."""
    done = [each.text for each in facts.exchanges if each.text.startswith("paid") or "unknown" in each.text]
    return call_reply(("pay", {"number": len(done) + 1})) if len(done) < PAYMENTS else "Done."


async def stop_and_resume(policy, how, record=0, stops_in=0):
    """The payments, and the decisions about calls in doubt; None if the run ended before it was stopped."""
    store = StoppableStore(how, record)
    bank = Bank(policy, store, stops_in)
    agent = Agent(simulated(pay_until_paid), tools=[bank.tool], store=store, approver=bank.answer)
    if not await store.run_until_stopped(agent.run("Pay all bills.", "s")):
        return None
    if not await store.read("s") or len(await store.read("s")) < 2:
        return [], []
    result = await agent.resume("s")
    assert result.stop == "done", result.reason
    return sorted(bank.ledger.values()), await list_decisions(store)


async def list_decisions(store):
    events = [record.event for record in await store.read("s")]
    decisions = []
    for event in events:
        match event:
            case ToolProbed() | ToolFinished(source="probe"):
                decisions.append((event.call_id, "probed"))
            case ApprovalAsked(question="in_doubt"):
                decisions.append((event.call_id, "asked"))
            case ToolStarted(attempt=attempt, rule=rule) if attempt > 1 and "approved" not in rule:
                decisions.append((event.call_id, "repeated"))
    return sorted(
        {each for each in decisions if each[1] != "repeated" or (each[0], "probed") not in decisions}
    )


@pytest.mark.parametrize("policy", ["probe", "ask", "retry", "report"])
def test_a_cancelled_payment_is_settled_like_one_that_a_crash_interrupted(policy):
    bills = [*range(1, PAYMENTS + 1)]
    doubted = 0
    for number in bills:
        killed = asyncio.run(stop_and_resume(policy, "kill", stops_in=number))
        cancelled = asyncio.run(stop_and_resume(policy, "cancel", stops_in=number))
        assert killed == cancelled
        assert killed[0] == bills
        doubted += len(killed[1])
    assert doubted == (0 if policy == "report" else PAYMENTS)


@pytest.mark.parametrize("policy", ["probe", "ask", "retry"])
def test_a_run_that_is_stopped_after_any_record_pays_every_bill_once(policy):
    bills, points = [*range(1, PAYMENTS + 1)], 0
    for record in range(1, POINTS_MAX):
        killed = asyncio.run(stop_and_resume(policy, "kill", record))
        cancelled = asyncio.run(stop_and_resume(policy, "cancel", record))
        if killed is None or cancelled is None:
            break
        points += 1
        for each in (killed, cancelled):
            assert each[0] in (bills, []), record
        assert cancelled[1] == killed[1], record
    assert points > 3 * PAYMENTS


async def cancel_in_call(policy, **options):
    store = StoppableStore("cancel")
    bank = Bank(policy, store, 1, **options)
    agent = Agent(scripted(PAY, "Done.", "Done."), tools=[bank.tool], store=store)
    assert await store.run_until_stopped(agent.run("Pay.", "s"))
    return agent, store, bank


def test_the_end_of_the_run_names_the_call_in_doubt_and_what_settles_it():
    async def main():
        _, store, _ = await cancel_in_call("probe")
        records = await store.read("s")
        end = records[-1].event
        assert end == RunEnded(
            stop="cancelled",
            reason="cancelled by the caller; pay (c1_0) started and has no result; resume or the next prompt"
            " runs its probe",
            in_doubt=("c1_0",),
        )
        entries = [each for each in audit_log("s", records).entries if each.kind == "in doubt"]
        assert [(each.tool, each.call_id, each.record) for each in entries] == [("pay", "c1_0", len(records))]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("policy", "told"), [("probe", "paid 1, says the bank"), ("retry", "paid 1"), ("report", "unknown")]
)
def test_a_new_prompt_follows_the_outcome_of_the_call_in_doubt(policy, told):
    async def main():
        agent, _, bank = await cancel_in_call(policy)
        result = await agent.run("And now?", "s")
        assert result.stop == "done"
        roles = [(message.role, message.text) for message in result.messages[2:4]]
        assert roles[0][0] == "tool"
        assert roles[1] == ("user", "And now?")
        assert told in result.messages[2].results[0].text
        assert [*bank.ledger.values()] == [1]

    asyncio.run(main())


def test_a_new_prompt_waits_for_the_person_who_settles_the_call():
    async def main():
        agent, _, bank = await cancel_in_call("ask")
        asked = await agent.run("And now?", "s")
        (question,) = await agent.approvals("s")
        assert (asked.stop, question.question) == ("waiting", "in_doubt")
        again = await agent.run("Hello?", "s")  # a second prompt does not pass it by either
        assert again.stop == "waiting"
        await agent.settle("s", question.id, "paid by hand", by="ann")
        done = await agent.resume("s")
        assert done.stop == "done"
        texts = [message.text for message in done.messages if message.role == "user"]
        assert texts == ["Pay.", "And now?", "Hello?"]
        assert [*bank.ledger.values()] == [1]

    asyncio.run(main())


@pytest.mark.parametrize("prompt", ["", "And now?"])
def test_a_run_inside_a_call_that_was_cancelled_settles_its_own_call(prompt):
    async def main():
        store = StoppableStore("cancel")
        bank = Bank("probe", store, 1)
        payer = Agent(scripted(PAY, "Paid it."), tools=[bank.tool], store=store)
        outer = Agent(
            scripted(call_reply(("payer", {"prompt": "Pay."})), "Done."),
            tools=[payer.as_tool("payer", "Pays bills.")],
            store=store,
        )
        assert await store.run_until_stopped(outer.run("Pay.", "s"))
        result = await (outer.run(prompt, "s") if prompt else outer.resume("s"))
        assert result.stop == "done"
        assert "Paid it." in str([message.results for message in result.messages if message.role == "tool"])
        assert [*bank.ledger.values()] == [1]

    asyncio.run(main())


@pytest.mark.parametrize("policy", ["probe", "ask"])
def test_a_call_that_is_cut_at_its_timeout_is_settled_too(policy):
    async def main():
        store = StoppableStore("none")
        bank = Bank(policy, store, 1, timeout=0.05)
        agent = Agent(scripted(PAY, "Done."), tools=[bank.tool], store=store, approver=bank.answer)
        result = await agent.run("Pay.", "s")
        assert result.messages[2].results[0].text.startswith("paid 1")
        assert [*bank.ledger.values()] == [1]

    asyncio.run(main())


def test_a_call_that_the_time_of_the_run_cuts_is_settled_with_the_next_budget():
    async def main():
        store = StoppableStore("none")
        bank = Bank("probe", store, 1)
        agent = Agent(scripted(PAY, "Done."), tools=[bank.tool], store=store)
        late = await agent.run("Pay.", "s", budget=Budget(seconds=0.3))
        assert late.stop == "seconds"
        done = await agent.resume("s", budget=Budget(seconds=600))
        assert done.stop == "done"
        assert done.messages[2].results[0].text == "paid 1, says the bank"

    asyncio.run(main())


def test_undoing_the_run_settles_what_it_left_in_doubt():
    async def main():
        undone = []

        def take_back(number: int) -> str:
            undone.append(number)
            return "taken back"

        agent, _, _ = await cancel_in_call("probe", compensate=take_back)
        found = await agent.compensate("s", settled=["c1_0"])
        assert [(each.call_id, each.state) for each in found] == [("c1_0", "done")]
        result = await agent.run("And now?", "s")
        assert (result.stop, undone) == ("done", [])

    asyncio.run(main())
