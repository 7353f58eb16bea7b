"""Actions that are done once (`once_per`) and were interrupted: a repeated call follows `on_unknown`."""

import asyncio

import pytest

from bridle import Agent, MisuseError, RunContext, StoreError, tool
from bridle.sessions import ApprovalVerdict
from bridle.stores.memory import MemoryStore
from bridle.testing import scripted
from bridle.testing.fake_clock import FakeClock
from bridle.testing.scripted_model import call_reply
from bridle.values.events import ApprovalAsked, Prompted, ToolFinished, ToolStarted

PAY = ("pay", {"amount": 5})
SAME = ("pay", {"note": "", "amount": 5.0})
POLICIES = ("report", "ask", "probe", "retry")
WRITES_MAX = 60


class Mortal(MemoryStore):
    """A store whose process dies at a chosen write, before or after it."""

    def __init__(self):
        super().__init__()
        self.left, self.is_written = None, False

    async def append(self, session, after, records, *, epoch=None):
        if self.left is not None:
            self.left -= 1
            if self.left == 0:
                if self.is_written:
                    await super().append(session, after, records, epoch=epoch)
                raise StoreError("the process is gone")
        await super().append(session, after, records, epoch=epoch)


class Bank:
    """A payment tool, and what was really paid: a world that survives every process."""

    def __init__(self, policy, once_per="session", *, first_pays=True, **options):
        self.paid, self.started, self.looked = [], 0, []

        def look(call: RunContext) -> str | None:
            self.looked.append(call.idempotency_key)
            return "paid, says the bank" if call.idempotency_key in self.paid else None

        probe = {"probe": look} if policy == "probe" else {}

        @tool(effect="write", once_per=once_per, on_unknown=policy, **probe, **options)  # type: ignore[call-overload]
        def pay(amount: int, call: RunContext, note: str = "") -> str:
            """Pay somebody."""
            self.started += 1
            if self.started > 1 or first_pays:
                self.paid.append(call.idempotency_key)
            return f"payment {self.started}"

        self.tool = pay


class Person:
    """An approver with one answer to every question about a call in doubt."""

    def __init__(self, answer):
        self._answer, self.asked = answer, []

    async def __call__(self, question):
        self.asked.append(question)
        if self._answer == "done":
            return ApprovalVerdict(answer="done", reason="the bank says so")
        return ApprovalVerdict(answer=self._answer)


async def events_of(store, session, kind):
    return [record.event for record in await store.read(session) if isinstance(record.event, kind)]


class World:
    """One session whose first payment is cut off, and the processes that come after it."""

    def __init__(self, policy, once_per="session", *, answer="reject", first_pays=True, **options):
        self.store, self.clock = Mortal(), FakeClock()
        self.bank = Bank(policy, once_per, first_pays=first_pays, **options)
        self.person = Person(answer)

    def agent(self, *script, **options):
        options = {"approver": self.person, "tools": [self.bank.tool], **options}
        return Agent(scripted(*script), store=self.store, clock=self.clock, **options)

    async def die(self, agent, at, *, is_written=False, prompt="pay", session="s"):
        """Run and die at a write; False when the run ended before that."""
        self.store.left, self.store.is_written = at, is_written
        try:
            await agent.run(prompt, session=session)
        except StoreError:
            return True
        finally:
            self.store.left = None
        return False

    async def die_in_doubt(self, *script):
        """The first payment is started, durably, and its receipt is never written."""
        for at in range(1, WRITES_MAX):
            world = World("report")
            await world.die(world.agent(*script), at)
            started = await events_of(world.store, "s", ToolStarted)
            if started and world.bank.started:
                assert await self.die(self.agent(*script), at)
                assert self.bank.started == 1
                assert not await events_of(self.store, "s", ToolFinished)
                return
        raise AssertionError("the payment was never started")


async def repeat(world, way, script):
    """A later process in which the model makes the same call again; the session it is in."""
    agent = world.agent(*script)
    if way == "fork":
        await agent.fork("s", new="f")
        await agent.run("pay again", session="f")
        return "f"
    if way == "resume":
        await agent.resume("s")
    else:
        await agent.run("pay again", session="s")
    return "s"


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("first_pays", [True, False])
@pytest.mark.parametrize("way", ["resume", "turn", "fork"])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_crash_at_every_write_never_leads_to_a_second_action(policy, way, first_pays):
    script = (call_reply(PAY), call_reply(SAME), call_reply(PAY), "done", call_reply(SAME), "done")

    async def live(at, is_written):
        world = World(policy, first_pays=first_pays)
        died = await world.die(world.agent(*script), at, is_written=is_written)
        if await events_of(world.store, "s", Prompted):
            started = world.bank.started
            await repeat(world, way, script)
            if policy in ("report", "ask"):
                assert world.bank.started <= 1, (at, is_written)
            elif started and first_pays and policy == "probe":
                assert world.bank.started == 1, (at, is_written)
            assert len(set(world.bank.paid)) <= 1, (at, is_written)
            assert policy == "retry" or len(world.bank.paid) <= 1, (at, is_written)
        return died

    async def live_all():
        for is_written in (False, True):
            deaths = 0
            while await live(deaths + 1, is_written):
                deaths += 1
            assert deaths > 10

    asyncio.run(live_all())


@pytest.mark.parametrize("way", ["turn", "fork"])
def test_report_tells_the_model_and_does_not_run(way):
    async def live():
        world = World("report")
        await world.die_in_doubt(call_reply(PAY), "one")
        session = await repeat(world, way, (call_reply(PAY), call_reply(SAME), "done"))
        finished = await events_of(world.store, session, ToolFinished)
        assert [event.result.outcome for event in finished][-1] == "unknown"
        assert "equals an earlier one (c1_0)" in finished[-1].result.text
        assert world.bank.started == 1

    asyncio.run(live())


@pytest.mark.parametrize("way", ["turn", "fork"])
@pytest.mark.parametrize(("first_pays", "started"), [(True, 1), (False, 2)])
def test_probe_looks_under_the_first_key_and_what_it_finds_is_the_receipt(way, first_pays, started):
    async def live():
        world = World("probe", first_pays=first_pays)
        await world.die_in_doubt(call_reply(PAY), "one")
        session = await repeat(world, way, (call_reply(PAY), call_reply(SAME), call_reply(PAY), "done"))
        keys = {event.key for event in await events_of(world.store, session, ToolStarted)}
        assert (world.bank.started, len(keys), set(world.bank.looked)) == (started, 1, keys)
        assert len(world.bank.looked) == 1
        assert len(world.bank.paid) == 1
        assert (await events_of(world.store, session, ToolFinished))[-1].source == "receipt"

    asyncio.run(live())


def test_a_probe_that_fails_leaves_the_action_in_doubt():
    def look() -> str | None:
        raise OSError("no connection")

    paid = []

    @tool(effect="write", once_per="session", on_unknown="probe", probe=look)
    def pay(amount: int, note: str = "") -> str:
        """Pay somebody."""
        paid.append(amount)
        return "paid"

    async def live():
        world = World("report")
        world.bank.tool = pay
        died = 0
        while not paid:
            died += 1
            world.store = Mortal()
            await world.die(world.agent(call_reply(PAY), "one"), died)
        await repeat(world, "turn", (call_reply(PAY), call_reply(SAME), call_reply(SAME), "done"))
        finished = await events_of(world.store, "s", ToolFinished)
        assert [event.result.outcome for event in finished][-2:] == ["unknown", "unknown"]
        assert "Looking for it failed" in finished[-1].result.text
        assert paid == [5]

    asyncio.run(live())


@pytest.mark.parametrize("way", ["turn", "fork"])
@pytest.mark.parametrize(
    ("answer", "started", "outcome"), [("approve", 2, "ok"), ("reject", 1, "unknown"), ("done", 1, "ok")]
)
def test_ask_puts_the_question_in_doubt_to_a_person(way, answer, started, outcome):
    async def live():
        world = World("ask", answer=answer)
        await world.die_in_doubt(call_reply(PAY), "one")
        session = await repeat(world, way, (call_reply(PAY), call_reply(SAME), call_reply(PAY), "done"))
        assert {question.question for question in world.person.asked} == {"in_doubt"}
        finished = await events_of(world.store, session, ToolFinished)
        assert finished[-1].result.outcome == outcome
        assert world.bank.started == started
        assert len(set(world.bank.paid)) == 1
        rejected = (
            3 if way == "turn" else 2
        )  # the interrupted call itself is asked about before the new prompt
        assert len(world.person.asked) == (rejected if answer == "reject" else 1)

    asyncio.run(live())


def test_the_arguments_of_a_repeated_call_in_doubt_cannot_be_changed():
    async def live():
        world = World("ask")
        await world.die_in_doubt(call_reply(PAY), "one")
        agent = world.agent(call_reply(PAY), call_reply(SAME), "done", approver=None)
        assert (await agent.run("pay again", session="s")).stop == "waiting"
        (question,) = await agent.approvals("s")
        with pytest.raises(MisuseError, match="arguments cannot change"):
            await agent.approve("s", question.id, arguments={"amount": 6})
        assert len(await events_of(world.store, "s", ApprovalAsked)) == 1

    asyncio.run(live())


@pytest.mark.parametrize("way", ["turn", "fork"])
def test_retry_runs_under_the_first_key(way):
    async def live():
        world = World("retry")
        await world.die_in_doubt(call_reply(PAY), "one")
        await repeat(world, way, (call_reply(PAY), call_reply(SAME), call_reply(PAY), "done"))
        assert world.bank.started == 2
        assert len(set(world.bank.paid)) == 1

    asyncio.run(live())


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("once_per", "later", "holds"), [("run", 0, False), (60, 30, True), (60, 61, False)])
def test_a_doubt_holds_as_long_as_a_receipt(policy, once_per, later, holds):
    async def live():
        world = World(policy, once_per)
        await world.die_in_doubt(call_reply(PAY), "one")
        await world.agent(call_reply(PAY), "one").run("hello", session="s")
        world.clock.advance(later)
        await world.agent(call_reply(PAY), "one", call_reply(SAME), "done").run("pay again", session="s")
        keys = {event.key for event in await events_of(world.store, "s", ToolStarted)}
        assert len(keys) == (1 if holds else 2)

    asyncio.run(live())


@pytest.mark.parametrize("policy", POLICIES)
def test_equal_calls_of_the_interrupted_reply_share_the_doubt(policy):
    async def live():
        world = World(policy)
        await world.die_in_doubt(call_reply(PAY, SAME, PAY), "done")
        await world.agent(call_reply(PAY, SAME, PAY), "done").resume("s")
        assert world.bank.started == (2 if policy == "retry" else 1)
        assert len(set(world.bank.paid)) == 1

    asyncio.run(live())


def test_a_tool_that_was_missing_meanwhile_is_still_in_doubt():
    async def live():
        world = World("report")
        await world.die_in_doubt(call_reply(PAY), "one")
        await world.agent(call_reply(PAY), "one", tools=[]).resume("s")
        await repeat(world, "turn", (call_reply(PAY), "one", call_reply(SAME), "done"))
        assert world.bank.started == 1

    asyncio.run(live())


@pytest.mark.parametrize("policy", POLICIES)
def test_a_cancelled_run_leaves_the_doubt_as_a_killed_one_does(policy):
    begun = asyncio.Event()
    keys = []

    def look(call: RunContext) -> str | None:
        return "paid, says the bank"

    probe = {"probe": look} if policy == "probe" else {}

    @tool(effect="write", once_per="session", on_unknown=policy, **probe)  # type: ignore[call-overload]
    async def pay(amount: int, call: RunContext, note: str = "") -> str:
        """Pay somebody."""
        keys.append(call.idempotency_key)
        if len(keys) == 1:
            begun.set()
            await asyncio.Event().wait()
        return "paid"

    async def live():
        agent = Agent(
            scripted(call_reply(PAY), call_reply(SAME), "done"),
            tools=[pay],
            approver=Person("reject"),
            store=Mortal(),
        )
        running = asyncio.create_task(agent.run("pay", session="s"))
        await begun.wait()
        running.cancel()
        await asyncio.wait([running])
        assert (await agent.run("pay again", session="s")).done
        assert len(keys) == (2 if policy == "retry" else 1)
        assert len(set(keys)) == 1

    asyncio.run(live())


def test_an_interrupted_action_that_was_undone_may_be_done_again():
    undone = []

    @tool(effect="write", on_unknown="retry")
    def pay_back(amount: int) -> str:
        """Pay it back."""
        undone.append(amount)
        return "paid back"

    async def live():
        world = World("report", compensate=pay_back)
        await world.die_in_doubt(call_reply(PAY), "one")
        agent = world.agent(call_reply(PAY), "one", call_reply(SAME), "done")
        await agent.resume("s")
        await agent.compensate("s")
        await agent.run("pay again", session="s")
        assert (len(undone), world.bank.started) == (1, 2)

    asyncio.run(live())


def test_an_action_that_was_run_again_under_its_key_is_undone_once():
    undone = []

    def pay_back(amount: int) -> str:
        """Pay it back."""
        undone.append(amount)
        return "paid back"

    async def live():
        world = World("ask", answer="reject", compensate=pay_back)
        await world.die_in_doubt(call_reply(PAY), "one")
        asked = world.person
        world.person = Person("reject")
        agent = world.agent(
            call_reply(PAY), call_reply(SAME), "done", approver=Turning(asked, Person("approve"))
        )
        await agent.resume("s")
        assert world.bank.started == 2
        await agent.compensate("s")
        assert undone == [5]

    asyncio.run(live())


class Turning:
    """An approver that answers the first question in one way and every later one in another."""

    def __init__(self, first, later):
        self._next, self._later = first, later

    async def __call__(self, question):
        answerer, self._next = self._next, self._later
        return await answerer(question)
