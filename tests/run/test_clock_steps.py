"""A wall clock that is set by a day, forward or back, changes nothing but the stamps of later sessions."""

import asyncio
from typing import Any

import pytest

from bridle import Agent, Budget, RateLimit, tool
from bridle.run.model_connection import ModelConnection
from bridle.run.recovery.breakers import CircuitBreakers
from bridle.stores.memory import MemoryStore
from bridle.testing import FakeClock, scripted
from bridle.testing.scripted_model import call_reply
from bridle.values.calls import ApprovalVerdict
from bridle.values.errors import Failure
from bridle.values.events import ToolFinished

DAY = 86_400.0
STEPS = [DAY, -DAY]


class SteppedClock(FakeClock):
    """A wall clock that somebody sets, beside a monotonic one that nobody can."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead = 0.0

    def now(self) -> float:
        return super().now() + self.ahead

    def monotonic(self) -> float:
        return super().now()


def make_clock_tool(clock, step, seconds=0.0):
    @tool
    async def set_clock() -> str:
        """Set the clock."""
        clock.ahead += step
        await clock.sleep(seconds)
        return "set"

    return set_clock


@pytest.mark.parametrize("step", STEPS)
def test_a_budget_in_seconds_counts_the_seconds_that_passed(step):
    clock, store = SteppedClock(), MemoryStore()
    script = scripted(call_reply(("set_clock", {})), "first", call_reply(("set_clock", {})), "second")
    agent = Agent(script, tools=[make_clock_tool(clock, step, 40)], clock=clock, store=store)
    assert agent.run_sync("go", session="s", budget=Budget(seconds=60)).text == "first"
    ended = agent.run_sync("again", session="s", budget=Budget(seconds=30))
    assert ended.stop == "seconds"
    times = [record.at for record in asyncio.run(store.read("s"))]
    assert times == sorted(times)


@pytest.mark.parametrize("step", STEPS)
def test_a_run_that_is_taken_over_after_a_step_has_the_time_it_had_left(step):
    clock, store = SteppedClock(), MemoryStore()

    @tool(approve=True)
    async def wait() -> str:
        """Wait."""
        await clock.sleep(20)
        return "waited"

    agent = Agent(scripted(call_reply(("wait", {})), "done"), tools=[wait], clock=clock, store=store)
    first = agent.run_sync("go", session="s", budget=Budget(seconds=60))
    assert first.stop == "waiting"
    clock.ahead += step

    async def rest():
        (question,) = await agent.approvals("s")
        await agent.approve("s", question.id)
        return await agent.resume("s")

    assert asyncio.run(rest()).text == "done"


@pytest.mark.parametrize("step", STEPS)
def test_a_question_expires_after_the_seconds_that_passed(step):
    clock, store = SteppedClock(), MemoryStore()

    async def approver(question):
        clock.ahead += step
        return ApprovalVerdict(answer="approve")

    @tool(approve=True)
    async def act() -> str:
        """Act."""
        return "acted"

    agent = Agent(
        scripted(call_reply(("act", {})), "done"), tools=[act], clock=clock, store=store,
        approver=approver, approval_seconds=60,
    )  # fmt: skip
    agent.run_sync("go", session="s")
    events = [record.event for record in asyncio.run(store.read("s"))]
    assert [event.result.text for event in events if isinstance(event, ToolFinished)] == ["acted"]


@pytest.mark.parametrize("step", STEPS)
def test_an_endpoint_rests_for_the_seconds_that_pass(step):
    clock, breakers = SteppedClock(), CircuitBreakers()
    down = Failure(kind="server", message="down", status=500)
    line: Any = scripted(*[down] * 20, "up again")
    line = ModelConnection(model=line.model, codec=line.codec, transport=line.transport, breakers=breakers)
    agent = Agent(line, clock=clock, attempts_max=8)
    assert agent.run_sync("go").stop == "failed"
    clock.ahead += step
    began = clock.monotonic()
    agent.run_sync("go")
    rested = clock.monotonic() - began
    assert 9 <= rested <= 600, rested


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize("step", STEPS)
def test_a_rate_limit_waits_at_most_one_period_after_a_step(step, kind, tmp_path):
    clock = SteppedClock()
    store = MemoryStore() if kind == "memory" else str(tmp_path / "log.db")
    waits = []
    for number in range(6):
        agent = Agent(scripted("ok"), store=store, clock=clock, rate_limits=(RateLimit(requests=2),))
        before = clock.monotonic()
        assert agent.run_sync("go", session=f"s{number}").done
        waits.append(clock.monotonic() - before)
        clock.ahead += step if number == 2 else 0
    assert waits[0] == waits[1] == 0
    assert waits[2] == pytest.approx(60, abs=1)
    assert max(waits) <= 61, waits
    assert sum(waits[3:]) >= 59, "at most one period is free after a step"


def test_a_use_far_ahead_of_the_clock_delays_no_call():
    limit = RateLimit(requests=1, seconds=60)
    now = 1_000_000.0
    assert limit.find_wait([(now + 1, 1, 0)], 0, now) == 61, "the clock of another process is slightly ahead"
    assert limit.find_wait([(now + 3_600, 1, 0)], 0, now) == 0, "the clock was set back"


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize("step", [-1.0, -30.0, -59.0, -61.0, -100.0, -150.0, -3_600.0, -DAY])
def test_a_clock_that_steps_back_lets_no_more_calls_through(step, kind, tmp_path):
    """At most two calls in any 60 seconds that really passed, wherever the clock is set back."""
    clock = SteppedClock()
    store = MemoryStore() if kind == "memory" else str(tmp_path / "log.db")
    moments = []
    for number in range(10):
        agent = Agent(scripted("ok"), store=store, clock=clock, rate_limits=(RateLimit(requests=2),))
        assert agent.run_sync("go", session=f"s{number}").done
        moments.append(clock.monotonic())
        if number in (1, 4):
            clock.ahead += step
    gaps = [later - first for first, later in zip(moments, moments[2:], strict=False)]
    assert min(gaps) >= 59.9, gaps
    assert moments[-1] - moments[0] < 60 * 20, "calls do not wait for the clock to catch up"
