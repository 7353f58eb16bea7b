"""A run that is cancelled after any of its records and resumed: no reply is paid for twice.

Every scenario runs once to its end, and once per record with a cancel right after that record.  A reply that is recorded
whole and asks for no tool is the answer of the resumed run; the model is not called for it again.
"""

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from bridle import Agent, ModelRetry, tool
from bridle.core.budget.ledger import list_entries
from bridle.hooks import Change, Refuse
from bridle.stores.memory import MemoryStore
from bridle.testing.scripted_model import call_reply, responder_of, scripted, text_reply
from bridle.values import events as e
from bridle.values.record import Record
from bridle.values.usage import Usage
from tests.suite.bills import BilledModel, read_bill
from tests.suite.ledger_sum import sum_entries
from tests.suite.replayed import replay_store

RECORDS_MAX = 60


class SlowStore(MemoryStore):
    """A store whose writes take a turn of the loop, so that a cancel can arrive before any of them."""

    async def append(self, session, after, records, *, epoch=None):
        await asyncio.sleep(0)
        await super().append(session, after, records, epoch=epoch)


class CancelAfter:
    """A watcher that cancels a task after the `count`-th record that it sees."""

    def __init__(self, count):
        self.left, self.task, self.last = count, None, None

    def on_event(self, session, shown):
        if isinstance(shown, Record):
            self.left -= 1
            if self.left == 0:
                self.last = shown.event
                self.task.cancel()


@dataclass
class Refund:
    order: int
    cents: int


class SignReplies:
    """Reviews every reply, and notes the calls of its methods."""

    def __init__(self):
        self.calls = []

    def before_model(self, run, request):
        self.calls.append(f"before_model {run.step}")

    async def after_model(self, run, reply):
        self.calls.append(f"after_model {reply.text}")
        await asyncio.sleep(0)
        return None if reply.calls else Change(text=f"{reply.text} Signed.")

    def on_end(self, run, end):
        self.calls.append(f"on_end {end.stop}")


@tool(effect="read")
async def look(at: str) -> str:
    """Look."""
    return f"{at} is fine"


def check_cents(refund: Refund) -> None:
    if refund.cents > 100:
        raise ModelRetry("at most 100 cents")


ANSWERS = ("nothing", '{"order": 7, "cents": 900}', '{"order": 7, "cents": 90}')
"""No answer, one that the validator sends back, and one that it accepts."""


def answer_after_problems(facts):
    return ANSWERS[facts.history.count("cannot be used")]


class AnsweringModel(BilledModel):
    def __init__(self, path):
        super().__init__(path)
        self._simulator.responder = responder_of(answer_after_problems)


SCENARIOS = {
    "text": ("!say Done.", {}),
    "tools": ('!call look {"at": "a"}\n!then\n!say Done.', {"tools": [look]}),
    "checked": ("Refund.", {"output": Refund, "validate": check_cents}),
    "hooked": ("!say Done.", {"hooks": [SignReplies()]}),
}


class Life:
    """One run of a scenario that is cancelled after its `count`-th record."""

    def __init__(self, scenario, bill, count=0):
        self.prompt, options = SCENARIOS[scenario]
        self.bill, self.store, self.watcher = bill, SlowStore(), CancelAfter(count)
        model = AnsweringModel(bill).connect()
        self.agent = Agent(model, store=self.store, watchers=[self.watcher], **options)  # type: ignore[arg-type]

    async def run(self):
        """The result; None if the run was cancelled before its end."""
        self.watcher.task = task = asyncio.create_task(self.agent.run(self.prompt, "s"))
        await asyncio.wait((task,))
        return None if task.cancelled() else task.result()

    async def check_bill(self, result):
        spent = sum_entries(list_entries("s", await self.store.read("s"))).usd
        assert spent == sum(read_bill(self.bill)) and result.cost == pytest.approx(float(spent))


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_whole_reply_is_paid_for_once(tmp_path, scenario):
    async def main():
        life = Life(scenario, tmp_path / "bill")
        whole = await life.run()
        assert whole.stop == "done", whole.reason
        await life.check_bill(whole)
        reply_count, kinds = len(read_bill(life.bill)), set()
        for count in range(3, RECORDS_MAX):
            life = Life(scenario, tmp_path / f"bill{count}", count)
            if await life.run() is not None:
                assert e.ModelReplied in kinds
                return
            last = life.watcher.last
            kinds.add(type(last))
            result = await life.agent.resume("s")
            assert (result.stop, result.text) == (whole.stop, whole.text), last
            if not isinstance(last, e.ModelAsked):  # the cost of a reply that was cut off is estimated
                assert len(read_bill(life.bill)) == reply_count, last
                await life.check_bill(result)
            assert (await replay_store(life.store, [life.agent]))[2] == []
        raise AssertionError("the run was never finished before the cancel")

    asyncio.run(main())


def test_a_fork_of_a_cancelled_run_ends_with_the_recorded_reply(tmp_path):
    async def main():
        life = Life("checked", tmp_path / "bill", 4)
        assert await life.run() is None and isinstance(life.watcher.last, e.ModelReplied)
        await life.agent.fork("s", new="t")
        result = await life.agent.resume("t")
        assert result.output == Refund(7, 90)
        assert len(read_bill(life.bill)) == len(ANSWERS)

    asyncio.run(main())


@pytest.mark.parametrize("second", range(1, 6))
def test_a_reviewed_reply_that_is_cancelled_twice_is_counted_once(tmp_path, second):
    async def main():
        life = Life("hooked", tmp_path / "bill", 5)
        assert await life.run() is None and isinstance(life.watcher.last, e.ModelReplied)
        life.watcher.left = second
        life.watcher.task = task = asyncio.create_task(life.agent.resume("s"))
        await asyncio.wait((task,))
        result = await life.agent.resume("s")
        assert (result.stop, result.text) == ("done", "Done. Signed.")
        assert len(read_bill(life.bill)) == 1
        await life.check_bill(result)

    asyncio.run(main())


def test_hooks_decide_about_the_end_and_the_requests_of_a_resumed_run():
    async def main():
        hook, watcher, store = SignReplies(), CancelAfter(5), SlowStore()
        agent = Agent("sim:", hooks=[hook], tools=[look], store=store, watchers=[watcher])
        script = '!call look {"at": "a"}\n!then\n!say Done.'
        watcher.task = task = asyncio.create_task(agent.run(script, "s"))
        await asyncio.wait((task,))
        hook.calls.clear()
        await agent.resume("s")
        return hook.calls

    assert asyncio.run(main()) == ["after_model ", "before_model 2", "after_model Done.", "on_end done"]


def cancel_booking(at: str) -> None:
    return None


@tool(effect="write", compensate=cancel_booking)
async def book(at: str) -> str:
    """Book."""
    return f"booked {at}"


async def run_until(count, last, model="sim:", prompt="Go.", **options):
    """The agent and the store of a run that is cancelled after its `count`-th record, an event of the type `last`."""
    watcher, store = CancelAfter(count), SlowStore()
    agent = Agent(model, store=store, watchers=[watcher], **options)
    watcher.task = task = asyncio.create_task(agent.run(prompt, "s"))
    await asyncio.wait((task,))
    assert task.cancelled() and isinstance(watcher.last, last)
    return agent, store


async def kill_after(store, count):
    """A store with the first records, as a killed process leaves it."""
    killed = MemoryStore()
    await killed.append("s", 0, (await store.read("s"))[:count])
    return killed


def test_a_reply_does_not_end_a_run_whose_calls_were_undone():
    """The model has to learn of it."""

    async def main():
        script = '!call book {"at": "a"}\n!then\n!say Booked.'
        agent, store = await run_until(8, e.ModelReplied, prompt=script, tools=[book])
        await agent.compensate("s")
        await agent.resume("s")
        return [record.event for record in await store.read("s")]

    events = asyncio.run(main())
    (resumed,) = (at for at, event in enumerate(events) if isinstance(event, e.Resumed))
    assert not events[resumed].continues_reply and isinstance(events[resumed + 1], e.ModelAsked)


def test_a_structured_answer_does_not_end_a_run_whose_calls_were_undone():
    async def main():
        replies = (
            call_reply(("book", {"at": "a"})),
            call_reply(("Refund", {"order": 7, "cents": 90})),
            "It was undone.",
            call_reply(("Refund", {"order": 0, "cents": 0})),
        )
        model = scripted(*replies, model="sim:ollama/x")
        agent, _ = await run_until(9, e.ToolFinished, model, tools=[book], output=Refund)
        await agent.compensate("s")
        return await agent.resume("s")

    assert asyncio.run(main()).output == Refund(0, 0)


class Guard:
    """Refuses at one point."""

    def __init__(self, point):
        self.calls = []
        setattr(self, point, self.refuse)

    def refuse(self, run, subject):
        self.calls.append(type(subject).__name__)
        return Refuse(reason="no")


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize(("point", "count"), [("before_model", 4), ("after_model", 7)])
def test_a_hook_that_refused_decides_again_after_a_resume(point, count, is_killed):
    async def main():
        guard = Guard(point)
        hooks: Any = [SignReplies(), guard]
        store: Any
        agent, store = await run_until(count, e.HookDecided, prompt="!say secret", hooks=hooks)
        if is_killed:
            store = await kill_after(store, count)
            agent = Agent("sim:", hooks=hooks, store=store)
        result = await agent.resume("s")
        assert (result.stop, result.text, len(guard.calls)) == ("refused", "", 2)
        return [record.event for record in await store.read("s")]

    events = asyncio.run(main())
    assert sum(isinstance(event, e.ModelAsked) for event in events) == (point == "after_model")


def test_all_hooks_of_the_end_decide_about_a_run_that_a_later_hook_refused():
    class SignLate(SignReplies):
        pass

    first, last = SignReplies(), SignLate()
    agent: Any = Agent("sim:", hooks=[first, Guard("before_model"), last], store=MemoryStore())  # type: ignore[list-item]
    assert agent.run_sync("!say Done.").stop == "refused"
    assert (first.calls, last.calls) == (["before_model 1", "on_end refused"], ["on_end refused"])


class MarkCancelled:
    def on_end(self, run, end):
        return Change(text="not an answer") if end.stop == "cancelled" else None


def test_the_text_of_a_hook_for_a_cancelled_run_is_not_its_answer():
    async def main():
        prompt = '!say {"order": 7, "cents": 90}'
        agent, _ = await run_until(3, e.ModelAsked, prompt=prompt, hooks=[MarkCancelled()], output=Refund)
        return await agent.resume("s")

    assert asyncio.run(main()).output == Refund(7, 90)


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_reply_to_a_truncated_prompt_does_not_end_a_resumed_run(is_killed):
    async def main():
        replies = [text_reply("I saw half of it.", usage=Usage(input=500, output=5))] * 2
        model, prompt = scripted(*replies, model="sim:ollama/x"), "word " * 20_000
        agent, store = await run_until(4, e.ModelReplied, model, prompt, on_truncation="error")
        if is_killed:
            agent = Agent(model, store=await kill_after(store, 4), on_truncation="error")
        return await agent.resume("s")

    result = asyncio.run(main())
    assert result.stop == "failed" and "left out a part" in result.reason


@dataclass
class Name:
    name: str


@pytest.mark.parametrize("output", [Name, None])
@pytest.mark.parametrize(
    ("mode", "count", "last"), [("tool", 5, e.ToolFinished), ("native", 4, e.ModelReplied)]
)
def test_a_reply_does_not_end_a_run_that_is_resumed_with_another_output_type(mode, count, last, output):
    first, second = '{"order": 7, "cents": 90}', '{"name": "Ada"}'
    if mode == "tool":
        first = call_reply(("Refund", {"order": 7, "cents": 90}))  # type: ignore[assignment]
        second = call_reply(("Name", {"name": "Ada"})) if output else second  # type: ignore[assignment]

    async def main():
        model = scripted(first, second, model="sim:ollama/x" if mode == "tool" else "sim:")
        _, store = await run_until(count, last, model, output=Refund)
        result = await Agent(model, store=store, output=output).resume("s")
        assert result.output == (Name("Ada") if output else second)

    asyncio.run(main())
