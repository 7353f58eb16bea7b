"""Runs inside tools: they draw from the outer budgets at any depth, and are reported separately."""

import asyncio
import queue
import threading
from decimal import Decimal

import pytest

from bridle import Agent, Budget, Limits, SharedBudget, StoredBudget, tool
from bridle.core.recovery.log_repair import fold_log
from bridle.stores.memory import MemoryStore
from bridle.testing import FakeClock, scripted
from bridle.testing.scripted_model import call_reply
from bridle.values import events as e
from bridle.values.budget import Amount, SubrunCharged, SubrunStarted, budget_log_name
from tests.suite.patience import PATIENCE_SECONDS, allow_longer

RESEARCH = '!call research {"question": "Why?"}\n!then\n!say It is so.'
NESTED = '!call deeper {"question": "Why?"}\n!then\n!say It is so.'


class House:
    """An agent whose tool runs an agent, whose tool runs an agent."""

    def __init__(self, *, inner_budget=None, inner_store=None, prompt="!say Because.", **outer):
        self.results = []
        store = inner_store or MemoryStore()
        self.inner = Agent("sim:", store=store, budget=inner_budget)

        @tool(effect="read")
        async def research(question: str) -> str:
            """Find out."""
            result = await self.inner.run(prompt)
            self.results.append(result)
            return f"{result.stop}: {result.text}"

        @tool(effect="read")
        def research_sync(question: str) -> str:
            """Find out."""
            result = self.inner.run_sync(prompt)
            self.results.append(result)
            return f"{result.stop}: {result.text}"

        self.middle = Agent("sim:", tools=[research], store=store)

        @tool(effect="read")
        async def deeper(question: str) -> str:
            """Ask somebody who asks somebody."""
            result = await self.middle.run(RESEARCH)
            self.results.append(result)
            return f"{result.stop}: {result.text}"

        self.store = outer.pop("store", None) or MemoryStore()
        self.outer = Agent("sim:", tools=[research, research_sync, deeper], store=self.store, **outer)

    def events(self, kind):
        records = asyncio.run(self.store.read("s"))
        return [record.event for record in records if isinstance(record.event, kind)]


@pytest.mark.parametrize("tool_name", ["research", "research_sync"])
@pytest.mark.parametrize("stream", [False, True])
def test_what_is_spent_inside_is_told_apart_and_together(tool_name, stream):
    house = House()
    prompt = RESEARCH.replace("research", tool_name)

    async def run():
        if not stream:
            return await house.outer.run(prompt, session="s", tenant="acme", caller="ann")
        shown = [
            event async for event in house.outer.stream(prompt, session="s", tenant="acme", caller="ann")
        ]
        return shown[-1].result

    result = asyncio.run(run())
    (inner,) = house.results
    assert (result.stop, inner.stop) == ("done", "done")
    assert result.cost == pytest.approx(result.own_cost + inner.cost)
    assert result.usage.total == result.own_usage.total + inner.usage.total
    (told,) = result.subruns
    assert (told.session, told.tool, told.steps) == (inner.session, tool_name, 1)
    assert float(told.usd) == pytest.approx(inner.cost)
    assert [each.session for each in house.events(SubrunStarted)] == [inner.session]
    state = fold_log(asyncio.run(house.store.read("s"))).state
    assert (state.totals.nested_spent.steps, state.totals.spent.steps) == (1, 2)
    prompted = asyncio.run(house.inner.store.read(inner.session))[1].event
    assert (prompted.tenant, prompted.caller, prompted.parent_session) == ("acme", "ann", "s")


def test_it_is_drawn_from_all_that_are_around_it():
    house = House()
    result = house.outer.run_sync(NESTED, session="s")
    inner, middle = house.results
    assert middle.cost == pytest.approx(middle.own_cost + inner.cost)
    assert result.cost == pytest.approx(result.own_cost + middle.own_cost + inner.cost)
    assert {each.session for each in result.subruns} == {middle.session, inner.session}
    assert sum(each.steps for each in result.subruns) == 3


LIMITS = {
    "usd": (Budget(usd="0.0016"), Budget(usd=1)),
    "tokens": (Budget(tokens=1_000), Budget(tokens=100_000)),
    "steps": (Budget(steps=1), Budget(steps=9)),
    "of the session": (Budget(session=Limits(steps=1)), Budget(session=Limits(steps=9))),
}


@pytest.mark.parametrize("limit", LIMITS)
def test_limits_around_hold_inside(limit):
    tight, wide = LIMITS[limit]
    house = House(prompt="!say " + "Because. " * 400, budget=tight)
    result = house.outer.run_sync(RESEARCH, session="s")
    assert result.stop in ("done", "budget", "steps"), "what is left may do for an answer"
    if tight.usd is not None:
        assert Decimal(str(result.cost)) <= tight.usd
    if tight.tokens is not None:
        assert result.usage.total <= tight.tokens
    assert house.results[0].stop in ("budget", "failed"), "it had too little room, or none"
    if result.stop != "done":
        raised = House(budget=wide, store=house.store)
        assert asyncio.run(raised.outer.resume("s", budget=wide)).stop == "done"


def test_what_is_left_around_is_shared_by_all_who_are_inside():
    """Four at once, and room for three: never more than that."""
    house = House(budget=Budget(steps=4))
    call = '!call research {{"question": "{}"}}\n'
    result = house.outer.run_sync("".join(map(call.format, "abcd")) + "!then\n!say x", session="s")
    assert sorted(each.stop for each in house.results) == ["budget", "done", "done", "done"]
    assert (result.stop, len(house.events(SubrunCharged))) == ("steps", 3)


def test_time_around_is_time_inside():
    clock = FakeClock()
    inner = Agent("sim:", store=MemoryStore())

    @tool(effect="read")
    async def research() -> str:
        """Find out."""
        clock.advance(4)
        result = await inner.run("!say Because.")
        return (await inner.store.read(result.session))[1].event.budget.seconds  # type: ignore[return-value]

    outer = Agent(scripted(call_reply(("research", {})), "fine"), tools=[research], clock=clock)
    result = outer.run_sync("?", budget=Budget(seconds=10))
    assert result.messages[2].parts[0].text == "6.0"


def test_its_own_limits_hold_as_well():
    house = House(inner_budget=Budget(tokens=50), budget=Budget(tokens=100_000))
    house.outer.run_sync(RESEARCH, session="s")
    assert house.results[0].stop == "budget"


@pytest.mark.parametrize("shared", [True, False])
def test_pools_around_are_drawn_from_once(shared):
    pool = SharedBudget(usd=1) if shared else StoredBudget(usd=1, name="q4")
    store = MemoryStore()
    house = House(inner_store=store, store=store, pool=pool)
    house.inner = Agent("sim:", store=store, pool=pool)
    result = house.outer.run_sync(RESEARCH, session="s")
    if shared:
        spent = pool.spent
    else:
        records = asyncio.run(store.read(budget_log_name("q4", 1)))
        spent = sum(
            (r.event.amount for r in records if r.event.__class__.__name__ == "BudgetSettled"), Amount()
        )
    assert float(spent.usd) == pytest.approx(result.cost)
    assert spent.steps == 3


def test_a_tenant_pays_for_what_is_inside_in_whatever_store():
    house = House(budget=Budget(tenant=Limits(steps=3)))
    stops = [house.outer.run_sync(RESEARCH, tenant="acme").stop for _ in range(2)]
    assert stops == ["done", "budget"]
    assert [each.stop for each in house.results] == ["done"]


def test_a_call_that_is_over_spends_nothing_more():
    """An ordinary function cannot be stopped; what it goes on to ask for is not asked."""
    release = []
    inner = Agent("sim:", store=MemoryStore())
    ended = []

    @tool(effect="read", timeout=0.05)
    async def stubborn() -> str:
        """Go on whatever anybody says."""
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            release.append(asyncio.create_task(_later()))
            raise
        return ""

    async def _later():
        while not finished:
            await asyncio.sleep(0)
        ended.append(await inner.run("!say Because."))

    finished = []

    @tool(effect="read")
    async def wait() -> str:
        """Wait for the other one."""
        finished.append(True)
        await asyncio.gather(*release)
        return "waited"

    outer = Agent(
        scripted(call_reply(("stubborn", {})), call_reply(("wait", {})), "fine"),
        tools=[stubborn, wait],
        store=MemoryStore(),
    )
    assert outer.run_sync("?", session="s").stop == "done"
    assert [(each.stop, each.steps) for each in ended] == [("budget", 0)]
    assert "has ended" in ended[0].reason


def test_an_early_call_spends_nothing_before_its_reply_is_complete():
    """A reply that breaks off takes its early calls with it, and nothing was paid for them."""
    house = House()
    prompt = '!call research {"question": "a"}\n!cut 700\n!then\n!say x'

    async def run():
        shown = [event async for event in house.outer.stream(prompt, session="s")]
        return shown[-1].result

    result = asyncio.run(run())
    assert result.stop == "done"
    order = [type(record.event) for record in asyncio.run(house.store.read("s"))]
    assert order.index(SubrunStarted) > order.index(e.ToolStarted)
    assert len(result.subruns) == len({each.session for each in house.events(SubrunCharged)})


def test_a_cancelled_run_books_what_was_spent_inside():
    house = House(prompt="!stall 60\n!say Because.", pool=SharedBudget(usd=1))

    async def cancel():
        run = asyncio.ensure_future(house.outer.run(RESEARCH, session="s"))
        while not any(isinstance(record.event, SubrunStarted) for record in await house.store.read("s")):
            await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run

    asyncio.run(cancel())
    kinds = [type(record.event) for record in asyncio.run(house.store.read("s"))]
    assert kinds[-1] is e.RunEnded
    assert kinds.count(SubrunCharged) == 1
    assert house.outer._pool.reserved == Amount()


def test_a_function_that_goes_on_after_its_run_is_over_ends_by_itself():
    """It cannot be stopped; its call under way is paid, its next one is not made, and nothing hangs."""

    def check(seconds):
        over, entered, ended = threading.Event(), threading.Event(), queue.Queue()

        class HoldsFirstCall:
            """Keeps the first model call of the inner run under way until the outer run is over."""

            def on_event(self, session, happening):
                if isinstance(getattr(happening, "event", None), e.ModelAsked):
                    entered.set()
                    assert over.wait(PATIENCE_SECONDS)

        inner = Agent("sim:", tools=[note], store=MemoryStore(), watchers=[HoldsFirstCall()])

        @tool(effect="read", timeout=seconds)
        def stubborn() -> str:
            """Go on whatever anybody says."""
            ended.put(inner.run_sync('!call note {"words": "x"}\n!then\n!say Because.'))
            return ""

        outer = Agent(scripted(call_reply(("stubborn", {})), "fine"), tools=[stubborn], store=MemoryStore())
        result = asyncio.run(outer.run("?", session="s"))
        over.set()
        assert (result.stop, result.messages[2].parts[0].outcome) == ("done", "timeout")
        assert entered.is_set(), "the time was up before the inner run asked its model"
        late = ended.get(timeout=PATIENCE_SECONDS)
        assert (late.stop, late.steps) == ("budget", 1)
        assert "has ended" in late.reason

    allow_longer(check, 0.05)


def test_a_function_that_was_started_early_for_nothing_spends_nothing():
    """Its reply broke off; what comes after under the same name is another call."""
    inner = Agent("sim:", store=MemoryStore())
    ended, entered = queue.Queue(), []

    @tool(effect="read")
    def research(question: str) -> str:
        """Find out."""
        entered.append(question)
        result = inner.run_sync("!say Because.")
        ended.put(result)
        return result.text

    outer = Agent("sim:", tools=[research], store=MemoryStore(), random_source=lambda: 0.0)
    both = '!call research {"question": "a"}\n!call research {"question": "b"}\n'

    async def run():
        script = f"{both}!pace 5\n!cut 1500\n!then\n!say x"
        return await outer.stream(script, session="s").start().result()

    result = asyncio.run(run())
    assert result.stop == "done"
    events = [record.event for record in asyncio.run(outer.store.read("s"))]
    (failed,) = [event for event in events if isinstance(event, e.ModelFailed)]
    assert failed.discarded_tools
    results = [ended.get(timeout=PATIENCE_SECONDS) for _ in entered]
    assert sorted(each.stop for each in results) == ["budget"] * (len(entered) - 2) + ["done"] * 2
    assert len([event for event in events if isinstance(event, SubrunCharged)]) == 2


@tool(effect="read")
def note(words: str) -> str:
    """Write down."""
    return words
