"""A pool shared by many runs: never exceeded, and no reservation remains after a failure."""

import asyncio
import threading
from decimal import Decimal

import pytest
from msgspec.structs import replace

from bridle import Agent, Budget, MisuseError, SharedBudget, tool
from bridle.run.budget.source import CallCost, OpenReservation
from bridle.run.model_connection import find_model_by_name
from bridle.stores.memory import MemoryStore
from bridle.testing import scripted
from bridle.values.events import ModelAsked
from bridle.values.usage import Reservation, Usage
from tests.suite.patience import allow_longer

RUNS = 50


@tool(effect="read")
def get_weather(city: str) -> str:
    """The weather in a city."""
    return "It is sunny. " * 20


class Auditor:
    """Looks into the pool at everything that happens in any run."""

    def __init__(self, pool):
        self.pool, self.committed, self.asked = pool, [], []

    def on_event(self, session, happening):
        self.committed.append(self.pool.spent.usd + self.pool.reserved.usd)
        if isinstance(getattr(happening, "event", None), ModelAsked):
            self.asked.append(happening.event)


@pytest.mark.parametrize("limit", ["0.010", "0.030", "0.045"])
def test_fifty_runs_at_once_never_exceed_it(limit):
    pool = SharedBudget(usd=limit, name="nightly")
    auditor = Auditor(pool)
    store = MemoryStore()

    async def all_at_once():
        agents = [
            Agent("sim:", tools=[get_weather], pool=pool, max_tokens=100, store=store, watchers=[auditor])
            for _ in range(RUNS)
        ]
        return await asyncio.gather(*(agent.run("What is the weather in Paris?") for agent in agents))

    results = asyncio.run(all_at_once())
    assert pool.spent.usd <= pool.usd
    assert max(auditor.committed) <= pool.usd, "nor with what was set aside"
    assert (pool.overshoot_usd, pool.excess.usd, pool.excess.tokens) == (0, 0, 0)
    assert (pool.reserved.usd, pool.reserved.tokens) == (0, 0)
    assert float(pool.spent.usd) == pytest.approx(sum(result.cost for result in results))
    assert pool.spent.tokens == sum(result.usage.total for result in results)
    assert {result.stop for result in results} <= {"done", "budget"}
    assert any(result.stop == "budget" for result in results)
    assert all("'nightly'" in result.reason for result in results if result.stop == "budget")
    assert all(asked.reservation.pool == "nightly" and asked.reservation.usd > 0 for asked in auditor.asked)
    assert pool.usd - pool.spent.usd < Decimal("0.003"), "and what was there was used"


def test_runs_on_several_threads_share_it_too():
    pool = SharedBudget(usd="0.02")
    results = []

    def some():
        async def run():
            agent = Agent("sim:", tools=[get_weather], pool=pool, max_tokens=100)
            return await asyncio.gather(*(agent.run("What is the weather in Paris?") for _ in range(6)))

        results.extend(asyncio.run(run()))

    threads = [threading.Thread(target=some) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 24
    assert 0 < pool.spent.usd <= pool.usd
    assert pool.reserved.usd == 0


def test_whoever_is_raised_can_go_on():
    store, pool = MemoryStore(), SharedBudget(tokens=100)
    stopped = Agent("sim:", tools=[get_weather], pool=pool, store=store).run_sync(
        "What is the weather in Rome?"
    )
    assert stopped.stop == "budget"
    more = Agent("sim:", tools=[get_weather], pool=SharedBudget(tokens=100_000), store=store)
    assert asyncio.run(more.resume(stopped.session)).stop == "done"


def test_a_cancelled_run_gives_back_what_it_did_not_use():
    pool = SharedBudget(usd=1, tokens=1_000_000)

    async def cancelled():
        agent = Agent("sim:", pool=pool)
        run = asyncio.ensure_future(agent.run("Tell me a long story."))
        while not pool.reserved.tokens:
            await asyncio.sleep(0)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run

    asyncio.run(cancelled())
    assert (pool.reserved.usd, pool.reserved.tokens) == (0, 0)
    assert pool.spent.usd < Decimal("0.01")


def test_time_spent_waiting_for_room_is_the_runs():
    async def wait(pool, seconds):
        others = await pool.reserve(Reservation(pool="shared", tokens=10_000), lambda usd, tokens: None)
        assert isinstance(others, OpenReservation)
        result = await Agent("sim:", pool=pool, budget=Budget(seconds=seconds)).run("Hi")
        await others.release()
        return result

    def check(seconds):
        pool = SharedBudget(tokens=10_000)
        result = asyncio.run(wait(pool, seconds))
        assert result.stop == "seconds"
        assert "shared budget" in result.reason
        assert pool.spent.tokens == 0

    allow_longer(check, 0.05)


def test_a_cost_above_the_reserved_worst_case_is_reported():
    pool = SharedBudget(usd=1)

    async def one():
        wanted = Reservation(pool="shared", tokens=10, usd=Decimal("0.9"))
        hold = await pool.reserve(wanted, lambda usd, tokens: None)
        await hold.settle(CallCost(Usage(input=12), Decimal("1.2"), 1))
        await hold.settle(CallCost(Usage(input=5), Decimal(5), 1))

    asyncio.run(one())
    assert (pool.overshoot_usd, pool.excess.usd) == (Decimal("0.2"), Decimal("0.3"))


def test_unknown_usage_is_charged_as_the_whole_reservation():
    pool = SharedBudget(usd=1)

    async def one():
        wanted = Reservation(pool="shared", tokens=10, usd=Decimal("0.9"))
        hold = await pool.reserve(wanted, lambda usd, tokens: None)
        await hold.settle(CallCost(Usage(incomplete=True), None, 0))

    asyncio.run(one())
    assert (pool.spent.usd, pool.spent.tokens) == (Decimal("0.9"), 10)


def test_dollars_need_a_price_here_too():
    unpriced = replace(find_model_by_name("sim:"), price=None)
    with pytest.raises(MisuseError, match="no price is known"):
        Agent(scripted("x", model=unpriced), pool=SharedBudget(usd=1)).run_sync("Hi")
    with pytest.raises(MisuseError, match="takes a number"):
        SharedBudget(usd="much")
