"""Rate limits: calls wait until they fit, in one process and across processes, visibly and within the run's time."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from bridle import Agent, Budget, MisuseError, RateLimit, tool
from bridle.errors import BadTool
from bridle.events import ModelAsked, Progress, ToolFinished, ToolStarted
from bridle.providers.wire.failures import read_provider_limits
from bridle.run.budget.rates import RATE_LOGS, RateLimiter, name_rate_log
from bridle.stores import open_store
from bridle.stores.memory import MemoryStore
from bridle.testing import FakeClock, scripted
from bridle.testing.scripted_model import call_reply


def list_model_calls(store, session):
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
    limits = (RateLimit(per=per, requests=2),)
    shown = []

    async def main():
        for number in range(3):
            agent = Agent(scripted("ok"), store=store, clock=clock, rate_limits=limits)
            async for event in agent.stream("hi", f"s{number}", tenant="acme"):
                if isinstance(event, Progress):
                    shown.append(event.message)
            clock.advance(10)

    asyncio.run(main())
    waits = [
        (event.wait_seconds, event.wait_source)
        for n in range(3)
        for event in list_model_calls(store, f"s{n}")
    ]
    assert waits == [(0.0, ""), (0.0, ""), (40.0, "rate-limit")], "the first call was 20 s ago"
    assert len(shown) == 1
    assert shown[0].startswith("waits 40 s for the rate limit of ")


def test_tenants_do_not_wait_for_each_other():
    clock, store = FakeClock(), MemoryStore()
    for tenant in ("a", "b"):
        limits = (RateLimit(per="tenant", requests=1),)
        Agent(scripted("ok"), store=store, clock=clock, rate_limits=limits).run_sync(
            "hi", tenant, tenant=tenant
        )
        assert list_model_calls(store, tenant)[0].wait_seconds == 0


def test_reserved_tokens_are_replaced_by_the_actual_ones():
    clock, store = FakeClock(), MemoryStore()
    limits = (RateLimit(tokens=5_000),)
    agent = Agent(scripted("ok", "ok"), store=store, clock=clock, rate_limits=limits, max_tokens=4_000)
    for name in ("one", "two"):
        agent.run_sync("hi", name)
        assert list_model_calls(store, name)[0].wait_seconds == 0, "4,000 were reserved, a few were used"


def test_a_tool_waits_and_the_run_ends_if_its_time_is_too_short():
    @tool(effect="read")
    def search(query: str) -> str:
        """Search."""
        return query

    calls = [call_reply(("search", {"query": str(number)})) for number in range(2)]
    limits = (RateLimit(per="tool", tool="search", requests=1, seconds=30),)
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
    agent = Agent(scripted("ok", "ok"), store=store, clock=clock, rate_limits=(RateLimit(requests=1),))
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
        limits = (RateLimit(requests=1),)
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

    async def main():
        agents = [
            Agent(scripted("ok"), store=tmp_path / "log.db", clock=clock, rate_limits=(limit,))
            for _ in range(3)
        ]
        runs = (agent.run("hi", f"s{n}", tenant="acme") for n, agent in enumerate(agents))
        results = await asyncio.gather(*runs)
        assert all(result.done for result in results)
        logs = [name_rate_log(limit, "tenant:acme", number) for number in range(RATE_LOGS)]
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
    assert max((limit.find_wait(1) for limit in read_provider_limits(headers)), default=0) == seconds


def test_a_prompt_larger_than_what_is_left_waits_for_its_part_of_the_refill():
    kinds = {"limit": "30000", "remaining": "10000", "reset": "40s"}
    (limit,) = read_provider_limits({f"x-ratelimit-{kind}-tokens": text for kind, text in kinds.items()})
    waits = [limit.find_wait(tokens) for tokens in (9_000, 10_000, 20_000, 30_000, 90_000)]
    assert waits == [0, 0, 20, 40, 40]
    unused = {"anthropic-ratelimit-output-tokens-remaining": "5", **READ_AT}
    assert read_provider_limits(unused) == (), "the length of a reply is not known before"


READ_AT = {"date": "Mon, 16 Nov 2026 12:00:00 GMT"}
WIRES = {
    "anthropic": "sim:anthropic/claude-sonnet-4-5",
    "openai_responses": "sim:openai/gpt-5.4",
    "openai_chat": "sim:deepseek/deepseek-v4-pro",
    "gemini": "sim:gemini/gemini-3.5-flash",
    "bedrock_converse": "sim:bedrock/anthropic.claude-sonnet-4-5",
}
ANNOUNCED = {
    "requests": {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "12s"},
    "anthropic tokens": {
        **READ_AT,
        "anthropic-ratelimit-input-tokens-remaining": "0",
        "anthropic-ratelimit-input-tokens-reset": "2026-11-16T12:00:12Z",
    },
    "fewer tokens than the prompt": {
        **READ_AT,
        "anthropic-ratelimit-tokens-remaining": "500",
        "anthropic-ratelimit-tokens-reset": "2026-11-16T12:00:12Z",
    },
    "a time": {**READ_AT, "x-ratelimit-remaining": "0", "x-ratelimit-reset": "1794830412000"},
}


@pytest.mark.parametrize("announced", ANNOUNCED)
@pytest.mark.parametrize("wire", WIRES)
def test_the_next_call_waits_for_the_reset_that_the_provider_announces(wire, announced):
    clock, store = FakeClock(), MemoryStore()
    model = scripted("one", "two", model=WIRES[wire])
    transport = model.transport

    class Answer:
        def __init__(self, inner):
            self.status, self.chunks = inner.status, inner.chunks
            self.headers = {**inner.headers, **ANNOUNCED[announced]}

    class Limited:
        @asynccontextmanager
        async def open(self, request):
            async with transport.open(request) as answer:
                yield Answer(answer)

    object.__setattr__(model, "transport", Limited())
    agent = Agent(model, store=store, clock=clock)
    agent.run_sync("hi", "a")
    agent.run_sync("words " * 2_000, "b")
    assert [list_model_calls(store, name)[0].wait_seconds for name in "ab"] == [0.0, 12.0]
    assert clock.slept == [12.0]
    assert model.model.endpoint.family == wire


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
        Agent("sim:", rate_limits=["10/min"])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rate", "expected"),
    [
        ("10/minute", RateLimit(per="tool", tool="search", requests=10)),
        ("1 / second", RateLimit(per="tool", tool="search", requests=1, seconds=1)),
        ("500/day", RateLimit(per="tool", tool="search", requests=500, seconds=86_400)),
        (RateLimit(requests=3, seconds=5), RateLimit(per="tool", tool="search", requests=3, seconds=5)),
        (RateLimit(per="tool", tool="search", requests=3), RateLimit(per="tool", tool="search", requests=3)),
    ],
)
def test_a_tool_has_a_rate_of_its_own(rate, expected):
    @tool(effect="read", rate=rate)
    def search(query: str) -> str:
        """Search."""
        return query

    assert search.spec.rate == expected


@pytest.mark.parametrize(
    "rate",
    [
        "ten/minute", "0/minute", "10/min", "10", 10, RateLimit(per="tenant", requests=1),
        RateLimit(tokens=9), RateLimit(per="tool", tool="other", requests=1),
    ],
)  # fmt: skip
def test_a_wrong_rate_of_a_tool_is_refused_in_one_line(rate):
    with pytest.raises(BadTool, match="tool `search`: rate=") as refusal:

        @tool(rate=rate)
        def search(query: str) -> str:
            """Search."""
            return query

    assert "\n" not in str(refusal.value)


def test_the_wait_of_a_tool_is_shown_and_recorded_and_shared_by_all_agents_of_the_store(tmp_path):
    @tool(effect="read", rate=RateLimit(requests=1, seconds=30))
    def search(query: str) -> str:
        """Search."""
        return query

    clock, shown = FakeClock(at=1_800_000_000.0), []

    async def main(number):
        model = scripted(call_reply(("search", {"query": "x"})), "done")
        agent = Agent(model, tools=[search], store=tmp_path / "log.db", clock=clock)
        async for event in agent.stream("go", f"s{number}"):
            if isinstance(event, Progress):
                shown.append((event.name, event.message, event.call_id))
        return [
            (record.event.wait_seconds, record.event.wait_source)
            for record in await agent.store.read(f"s{number}")
            if isinstance(record.event, ToolStarted)
        ]

    assert asyncio.run(main(0)) == [(0.0, "")]
    clock.advance(10)
    assert asyncio.run(main(1)) == [(20.0, "rate-limit")]
    assert shown == [("search", "waits 20 s for the rate limit of tool:search", "c1_0")]


def test_a_tool_that_cannot_start_in_time_says_so_and_other_tools_still_run():
    @tool(effect="read", rate="1/minute")
    def search(query: str) -> str:
        """Search."""
        return query

    @tool(effect="read")
    def note(text: str) -> str:
        """Note."""
        return text

    turns = [call_reply(("search", {"query": "a"})), call_reply(("search", {"query": "b"}))]
    clock, store = FakeClock(), MemoryStore()
    model = scripted(*turns, call_reply(("note", {"text": "c"})), "done")
    agent = Agent(model, tools=[search, note], store=store, clock=clock)
    result = agent.run_sync("go", "s", budget=Budget(seconds=20))
    finished = [
        record.event for record in asyncio.run(store.read("s")) if isinstance(record.event, ToolFinished)
    ]
    late = finished[1]
    assert late.result.parts[0].text == (
        "This call was not run: its rate limit allows it in 60 seconds, and the run ends before that."
    )
    assert (late.rule, late.result.outcome) == ("rate limit", "cancelled")
    assert finished[2].result.outcome == "ok", "the limit of one tool does not forbid the others"
    assert result.text == "done"


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_thousand_periods_take_no_more_space_than_a_few(kind, tmp_path):
    clock = FakeClock()
    limit = RateLimit(per="tenant", requests=2, tokens=9_999, seconds=10)

    async def main():
        store = MemoryStore() if kind == "memory" else open_store(tmp_path / "log.db")
        rates, key = RateLimiter(store, clock, lambda delta: None), "tenant:acme"
        for number in range(1_000):
            wait = await rates.reserve([(limit, key)], f"call {number}", 100, None, ("", ""))
            assert wait == (0.0, 0.0), "every tenth period is skipped, and no reservation is lost"
            await rates.settle([(limit, key)], f"call {number}", -40)
            clock.advance(10 if number % 10 else 25)
        listed = await store.sessions(2_000)
        await store.close()
        return listed

    listed = asyncio.run(main())
    assert {info.id for info in listed} == {name_rate_log(limit, "tenant:acme", n) for n in range(RATE_LOGS)}
    assert max(info.length for info in listed) <= 4


def test_a_store_that_cannot_start_a_log_again_still_limits():
    class Plain:
        """A store with the required methods only."""

        def __init__(self):
            inner = MemoryStore()
            for name in ("append", "read", "fork", "put_blob", "get_blob", "lease", "sessions", "close"):
                setattr(self, name, getattr(inner, name))

    clock, store = FakeClock(), Plain()
    agent = Agent(scripted("a", "b", "c"), store=store, clock=clock, rate_limits=(RateLimit(requests=1),))  # type: ignore[arg-type]
    for name in "abc":
        agent.run_sync("hi", name)
    assert [list_model_calls(store, name)[0].wait_seconds for name in "abc"] == [0.0, 60.0, 60.0]
