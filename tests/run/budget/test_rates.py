"""Rate limits: calls wait until they fit, in one process and across processes, visibly and within the run's time."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from bridle import Agent, Budget, MisuseError, ModelAsked, Progress, RateLimit, ToolStarted, tool
from bridle.providers.wire.failures import read_limit_pause
from bridle.stores.memory import MemoryStore
from bridle.testing import FakeClock, scripted
from bridle.testing.scripted_model import call_reply


def asked(store, session):
    records = asyncio.run(store.read(session))
    return [record.event for record in records if isinstance(record.event, ModelAsked)]


def starts(store, session, kind):
    return [record.at for record in asyncio.run(store.read(session)) if isinstance(record.event, kind)]


def test_the_wait_is_until_enough_of_the_period_has_passed():
    limit = RateLimit(requests=2, tokens=100)
    assert limit.find_wait([], 500, 1000.0) == 0, "a call above the limit fits into an empty period"
    assert limit.find_wait([(990.0, 1, 10)], 50, 1000.0) == 0
    assert limit.find_wait([(990.0, 1, 10), (995.0, 1, 10)], 50, 1000.0) == 50
    assert limit.find_wait([(990.0, 1, 10), (995.0, 1, 80)], 50, 1000.0) == 55
    assert limit.find_wait([(940.0, 9, 900)], 50, 1000.0) == 0, "what is older than the period is free"


@pytest.mark.parametrize("per", ["endpoint", "tenant"])
def test_model_calls_of_all_agents_of_a_store_wait_for_their_turn(per):
    clock, store = FakeClock(at=1_800_000_030.0), MemoryStore()
    limits = [RateLimit(per=per, requests=2)]
    shown = []

    async def main():
        for number in range(3):
            agent = Agent(scripted("ok"), store=store, clock=clock, rate_limits=limits)
            async for event in agent.stream("hi", f"s{number}", tenant="acme"):
                if isinstance(event, Progress):
                    shown.append(event.message)
            clock.advance(10)

    asyncio.run(main())
    waits = [(event.wait_seconds, event.wait_source) for n in range(3) for event in asked(store, f"s{n}")]
    assert waits == [(0.0, ""), (0.0, ""), (40.0, "rate-limit")], "the first call was 20 s ago"
    assert len(shown) == 1
    assert shown[0].startswith("waits 40 s for the rate limit of ")


def test_tenants_do_not_wait_for_each_other():
    clock, store = FakeClock(), MemoryStore()
    for tenant in ("a", "b"):
        limits = [RateLimit(per="tenant", requests=1)]
        Agent(scripted("ok"), store=store, clock=clock, rate_limits=limits).run_sync(
            "hi", tenant, tenant=tenant
        )
        assert asked(store, tenant)[0].wait_seconds == 0


def test_reserved_tokens_are_replaced_by_the_actual_ones():
    clock, store = FakeClock(), MemoryStore()
    limits = [RateLimit(tokens=5_000)]
    agent = Agent(scripted("ok", "ok"), store=store, clock=clock, rate_limits=limits, max_tokens=4_000)
    for name in ("one", "two"):
        agent.run_sync("hi", name)
        assert asked(store, name)[0].wait_seconds == 0, "4,000 were reserved, a few were used"


def test_a_tool_waits_and_the_run_ends_if_its_time_is_too_short():
    @tool(effect="read")
    def search(query: str) -> str:
        """Search."""
        return query

    calls = [call_reply(("search", {"query": str(number)})) for number in range(2)]
    limits = [RateLimit(per="tool", tool="search", requests=1, seconds=30)]
    clock, store = FakeClock(), MemoryStore()
    agent = Agent(scripted(*calls, "done"), tools=[search], store=store, clock=clock, rate_limits=limits)
    assert agent.run_sync("go", "s").text == "done"
    first, second = starts(store, "s", ToolStarted)
    assert second - first == 30

    clock, store = FakeClock(), MemoryStore()
    agent = Agent(scripted(*calls, "done"), tools=[search], store=store, clock=clock, rate_limits=limits)
    agent.run_sync("go", "s", budget=Budget(seconds=20))
    assert len(starts(store, "s", ToolStarted)) == 1
    assert clock.slept == [], "a wait that is too long is not begun"


def test_a_model_call_that_cannot_start_in_time_ends_the_run():
    clock, store = FakeClock(), MemoryStore()
    agent = Agent(scripted("ok", "ok"), store=store, clock=clock, rate_limits=[RateLimit(requests=1)])
    assert agent.run_sync("hi", "one").done
    late = agent.run_sync("hi", "two", budget=Budget(seconds=30))
    assert (late.stop, "rate limit" in late.reason) == ("seconds", True)
    assert agent.resume_sync("two", budget=Budget(seconds=90)).done


def test_a_wait_can_be_cancelled():
    class Endless(FakeClock):
        async def sleep(self, seconds):
            waiting.set()
            await asyncio.Event().wait()

    waiting = asyncio.Event()

    async def main():
        limits = [RateLimit(requests=1)]
        agent = Agent(scripted("ok", "ok"), clock=Endless(), rate_limits=limits)
        await agent.run("hi", "one")
        run = agent.stream("hi", "two").start()
        await waiting.wait()
        run.cancel()
        return await run.result()

    assert asyncio.run(main()).stop == "cancelled"


def test_two_runs_at_once_never_exceed_the_limit(tmp_path):
    """Two store objects on one file, as two processes have them.

    The times of the reservations are compared.  The requests are recorded later: another run's sleep may move the
    fake clock between a reservation and its request.
    """
    clock = FakeClock()
    limit = RateLimit(per="tenant", requests=1, seconds=30)
    period = int(clock.now() // limit.seconds)

    async def main():
        agents = [
            Agent(scripted("ok"), store=tmp_path / "log.db", clock=clock, rate_limits=[limit])
            for _ in range(3)
        ]
        runs = (agent.run("hi", f"s{n}", tenant="acme") for n, agent in enumerate(agents))
        results = await asyncio.gather(*runs)
        assert all(result.done for result in results)
        logs = [limit.name_log("tenant:acme", period + n) for n in range(10)]
        records = [record for log in logs for record in await agents[0].store.read(log)]
        return sorted(record.at for record in records)

    first, second, third = asyncio.run(main())
    assert second - first >= 30
    assert third - second >= 30


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, 0),
        ({"x-ratelimit-remaining-requests": "1", "x-ratelimit-reset-requests": "9s"}, 0),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "9s"}, 9),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "1m6.5s"}, 66.5),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "120ms"}, 0.12),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "9h"}, 120),
        ({"ratelimit-remaining": "0", "ratelimit-reset": "7"}, 7),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "soon"}, 0),
        (
            {
                "date": "Mon, 16 Nov 2026 12:00:00 GMT",
                "anthropic-ratelimit-input-tokens-remaining": "0",
                "anthropic-ratelimit-input-tokens-reset": "2026-11-16T12:00:08Z",
            },
            8,
        ),
    ],
)
def test_headers_that_say_that_nothing_is_left(headers, seconds):
    assert read_limit_pause(headers) == seconds


def test_the_next_call_waits_for_the_reset_that_the_provider_announces():
    clock, store = FakeClock(), MemoryStore()
    model = scripted("one", "two")
    transport = model.transport

    class Answer:
        def __init__(self, inner):
            self.status, self.chunks = inner.status, inner.chunks
            self.headers = {
                **inner.headers, "x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "12s",
            }  # fmt: skip

    class Limited:
        @asynccontextmanager
        async def open(self, request):
            async with transport.open(request) as answer:
                yield Answer(answer)

    object.__setattr__(model, "transport", Limited())
    agent = Agent(model, store=store, clock=clock)
    agent.run_sync("hi", "a")
    agent.run_sync("hi", "b")
    assert [asked(store, name)[0].wait_seconds for name in "ab"] == [0.0, 12.0]
    assert clock.slept == [12.0]


@pytest.mark.parametrize(
    "wrong",
    [
        {}, {"requests": 0}, {"tokens": -1}, {"requests": 1, "seconds": 0}, {"per": "tool", "requests": 1},
        {"per": "day", "requests": 1}, {"tool": "x", "requests": 1},
        {"per": "tool", "tool": "x", "requests": 1, "tokens": 1},
    ],
)  # fmt: skip
def test_a_wrong_limit_is_refused(wrong):
    with pytest.raises(MisuseError, match="RateLimit"):
        RateLimit(**wrong)


def test_limits_of_another_kind_are_refused():
    with pytest.raises(MisuseError, match="rate_limits must be a list of RateLimit"):
        Agent("sim:", rate_limits=["10/min"])
