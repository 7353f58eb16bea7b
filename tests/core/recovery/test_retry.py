"""Retries: the table of delays on its own, then whole runs against the simulator with its clock."""

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridle import Agent, Budget, Deadlines
from bridle.core.recovery.failure_policy import (
    BREAKER_WAITS_MAX,
    FAILURE_POLICY,
    RETRY_AFTER_SECONDS_MAX,
    WAIT_SECONDS_FIRST,
    WAIT_SECONDS_MAX,
    GiveUp,
    RetryWait,
    next_attempt,
)
from bridle.ports.codec import HttpReply
from bridle.providers import load_codec
from bridle.run.model_connection import ModelConnection
from bridle.sim.simulator import Simulator
from bridle.stores.memory import MemoryStore
from bridle.testing import FakeClock, simulator
from bridle.testing.scripted_model import scripted
from bridle.transports.inprocess import InProcessTransport
from bridle.values import events as e
from bridle.values.errors import Failure, MisuseError
from bridle.values.result import AttemptRestarted, TextDelta
from bridle.values.settings import ATTEMPTS_DEFAULT
from tests.sim.sim_families import MODELS
from tests.suite.campaign import scale

OVERLOADED = Failure(kind="overloaded", message="busy")
SEEDS = scale(40)


def make_failure(kind="overloaded", **fields):
    return Failure(kind=kind, message="no", **fields)


def test_the_ceiling_doubles_up_to_a_limit():
    waits = [next_attempt(OVERLOADED, tries) for tries in range(1, ATTEMPTS_DEFAULT)]
    assert waits == [RetryWait(seconds=0.5 * 2**n, source="backoff") for n in range(ATTEMPTS_DEFAULT - 1)]
    assert next_attempt(OVERLOADED, ATTEMPTS_DEFAULT) == GiveUp(why="busy")


@given(st.sampled_from(list(FAILURE_POLICY)), st.integers(0, ATTEMPTS_DEFAULT), st.floats(0, 1))
def test_a_wait_of_ours_is_drawn_from_nothing_to_the_ceiling(kind, tries, chance):
    wait = next_attempt(make_failure(kind), tries, random_draw=chance)
    if isinstance(wait, RetryWait) and wait.source == "backoff":
        ceiling = min(WAIT_SECONDS_MAX, WAIT_SECONDS_FIRST * 2 ** max(0, tries - 1))
        assert wait.seconds == ceiling * chance


def test_the_providers_word_beats_the_table():
    assert isinstance(next_attempt(make_failure(should_retry=False), 1), GiveUp)
    assert next_attempt(make_failure("invalid", should_retry=True), 1) == RetryWait(
        seconds=0.5, source="backoff"
    )
    assert next_attempt(make_failure(retry_after_seconds=7.0), 1) == RetryWait(
        seconds=7.0, source="retry-after"
    )


def test_an_exhausted_quota_is_not_retried():
    spent = make_failure("quota", should_retry=True, retry_after_seconds=1.0, status=429)
    assert isinstance(next_attempt(spent, 1), GiveUp)


def test_a_wait_that_is_too_long_is_an_end_that_says_so():
    hour = next_attempt(make_failure(retry_after_seconds=3600.0), 1)
    assert isinstance(hour, GiveUp)
    assert "asks to wait 3600 s" in hour.why
    assert f"{RETRY_AFTER_SECONDS_MAX:g} s at most; resume" in hour.why
    late = next_attempt(make_failure(retry_after_seconds=9.0), 1, left_seconds=5.0)
    assert isinstance(late, GiveUp)
    assert "5 s of the run's time are left; resume" in late.why
    assert next_attempt(make_failure(retry_after_seconds=4.0), 1, left_seconds=5.0) == RetryWait(
        seconds=4.0, source="retry-after"
    )


def test_an_endpoint_at_rest_is_waited_for_a_few_times():
    resting = make_failure("unavailable", retry_after_seconds=10.0)
    assert next_attempt(resting, 0, breaker_waits=BREAKER_WAITS_MAX) == RetryWait(
        seconds=10.0, source="breaker"
    )
    assert isinstance(next_attempt(resting, 0, breaker_waits=BREAKER_WAITS_MAX + 1), GiveUp)


async def collect_stream(agent, prompt, **options):
    """What a viewer sees, and the result."""
    seen = []
    async for each in agent.stream(prompt, "s", **options):
        seen.append(each)
    return seen[:-1], seen[-1].result


def asks_in(events):
    return [event for event in events if isinstance(event, e.ModelAsked)]


def run_sim(prompt, faults=(), *, chance=lambda: 0.5, model="sim:", budget=None, **options):
    async def story():
        clock, store = FakeClock(), MemoryStore()
        async with simulator(clock=clock, faults=faults, **options) as provider:
            agent = Agent(
                provider.model(model), clock=clock, store=store, random_source=chance, budget=budget
            )
            seen, result = await collect_stream(agent, prompt)
            return seen, result, clock, [record.event for record in await store.read("s")], provider

    return asyncio.run(story())


def test_every_attempt_is_in_the_log_with_its_reason_its_wait_and_who_asked_for_it():
    seen, result, clock, events, provider = run_sim("!error 429 2\n!error 529\n!error 500\n!say fine")
    assert (result.stop, result.text) == ("done", "fine")
    assert [
        (ask.attempt, ask.after_failure, ask.wait_seconds, ask.wait_source) for ask in asks_in(events)
    ] == [
        (1, None, 0.0, ""),
        (2, "rate_limited", 2.0, "retry-after"),
        (3, "overloaded", 0.5, "backoff"),
        (4, "server", 1.0, "backoff"),
    ]
    assert clock.slept == [2.0, 0.5, 1.0]
    assert len(provider.exchanges) == 4
    restarts = [each for each in seen if isinstance(each, AttemptRestarted)]
    assert [(each.attempt, each.wait_source, each.is_text_void) for each in restarts] == [
        (2, "retry-after", False),
        (3, "backoff", False),
        (4, "backoff", False),
    ]


def test_what_was_drawn_is_recorded_so_that_folding_needs_no_dice():
    dice = random.Random(7)
    _, result, clock, events, _ = run_sim("!error 529\n!error 529\n!say fine", chance=dice.random)
    again = random.Random(7)
    drawn = [event.random_draw for event in events if isinstance(event, e.ModelFailed)]
    assert drawn == [again.random(), again.random()]
    assert clock.slept == [0.5 * drawn[0], 1.0 * drawn[1]]
    assert result.text == "fine"


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("fault", ["overloaded-in-stream", "missing-end", "reset:400"])
def test_words_shown_before_a_break_are_announced_as_void_and_never_joined(model, fault):
    words = "one two three four five six seven eight nine ten " * 12
    seen, result, _, events, provider = run_sim(f"!say {words.strip()}", [fault], model=MODELS[model])
    assert (result.stop, result.text.strip()) == ("done", words.strip())
    assert len(provider.exchanges) == len(asks_in(events)) == 2
    at = next(at for at, each in enumerate(seen) if isinstance(each, AttemptRestarted))
    before = "".join(each.text for each in seen[:at] if isinstance(each, TextDelta))
    after = "".join(each.text for each in seen[at:] if isinstance(each, TextDelta))
    assert after.strip() == words.strip()
    assert seen[at].is_text_void is bool(before)
    assert bool(seen[at].text) is bool(before)


@pytest.mark.parametrize(
    ("headers", "wait", "source"),
    [
        ({"retry-after": "7"}, 7.0, "retry-after"),
        ({"retry-after-ms": "1500", "retry-after": "7"}, 1.5, "retry-after"),
        (
            {"retry-after": "Sun, 15 Nov 2026 10:00:30 GMT", "date": "Sun, 15 Nov 2026 10:00:00 GMT"},
            30.0,
            "retry-after",
        ),
        ({"retry-after": "soon"}, 0.25, "backoff"),
        ({"retry-after": "3600"}, None, ""),
        ({"x-should-retry": "false"}, None, ""),
        ({"x-should-retry": "true", "retry-after": "1"}, 1.0, "retry-after"),
    ],
)
@pytest.mark.parametrize("family", ["anthropic", "openai_responses", "openai_chat", "gemini"])
def test_what_a_provider_says_about_waiting_is_what_is_done(family, headers, wait, source):
    async def story():
        clock, store, sim, asked = FakeClock(), MemoryStore(), Simulator(), []

        async def answer(outgoing):
            asked.append(outgoing)
            said = await sim.answer(outgoing)
            if len(asked) == 1:
                body = b'{"error": {"message": "slow down", "code": 429}}'
                return HttpReply(status=429, headers=tuple(headers.items()), frames=(body,))
            return said

        transport = InProcessTransport(answer, clock=clock)
        line = ModelConnection(model=MODELS[family], codec=load_codec(family), transport=transport)
        result = await Agent(line, clock=clock, store=store, random_source=lambda: 0.5).run("!say fine", "s")
        asks = asks_in([record.event for record in await store.read("s")])
        assert len(asks) == len(asked)
        if wait is None:
            assert (result.stop, len(asked), clock.slept) == ("failed", 1, [])
        else:
            assert (result.text, clock.slept) == ("fine", [wait])
            assert (asks[1].wait_seconds, asks[1].wait_source, asks[1].after_failure) == (
                wait,
                source,
                "rate_limited",
            )

    asyncio.run(story())


def test_nothing_left_to_spend_is_asked_once():
    _, result, clock, events, provider = run_sim("!say hi", ["quota"])
    assert (result.stop, result.failure.kind) == ("failed", "quota")
    assert (len(provider.exchanges), clock.slept) == (1, [])
    assert len(asks_in(events)) == 1


def test_a_wait_beyond_the_runs_time_ends_it_at_once_and_it_can_be_resumed():
    async def story():
        clock, store = FakeClock(), MemoryStore()
        async with simulator(clock=clock) as provider:
            agent = Agent(provider.model(), clock=clock, store=store, budget=Budget(seconds=20))
            first = await agent.run("!error 429 60\n!say fine", "s")
            slept = list(clock.slept)
            second = await agent.resume("s", budget=Budget(seconds=60))
            return first, slept, second

    first, slept, second = asyncio.run(story())
    assert (first.stop, slept) == ("failed", [])
    assert "20 s of the run's time are left; resume" in first.reason
    assert (second.stop, second.text) == ("done", "fine")


def test_a_wait_longer_than_a_run_waits_ends_it_at_once():
    _, result, clock, _, _ = run_sim("!error 429 3600\n!say fine")
    assert (result.stop, clock.slept) == ("failed", [])
    assert "asks to wait 3600 s, and a run waits 120 s at most" in result.reason


def test_deadlines_are_the_agents_and_the_failure_names_the_one_that_fired():
    clock = FakeClock()
    agent = Agent("sim:", clock=clock, deadlines=Deadlines(first_byte_seconds=5.0), random_source=lambda: 0.0)
    result = asyncio.run(agent.run("!stall 60\n!say hi"))
    assert (result.stop, result.failure.kind) == ("failed", "timeout")
    assert "sent nothing for 5 s (first_byte_seconds)" in result.reason
    assert [seconds for seconds in clock.slept if seconds] == [5.0] * ATTEMPTS_DEFAULT
    patient = Agent("sim:", clock=clock, deadlines=Deadlines(total_seconds=90.0))
    assert asyncio.run(patient.run("!stall 60\n!say hi")).text == "hi"
    late = asyncio.run(patient.run("!stall 100\n!say hi"))
    assert "had not finished after 90 s (total_seconds)" in late.reason


@pytest.mark.parametrize("attempts", [1, 2, 9])
def test_no_more_attempts_are_made_than_were_allowed(attempts):
    async def story():
        clock = FakeClock()
        async with simulator(clock=clock, faults=["error-529=1"]) as provider:
            result = await Agent(provider.model(), clock=clock, attempts_max=attempts).run("!say hi")
            assert result.stop == "failed"
            return len(provider.exchanges)

    assert asyncio.run(story()) == attempts
    with pytest.raises(MisuseError, match="attempts_max must be an integer of at least 1"):
        Agent("sim:", attempts_max=0)


@pytest.mark.parametrize(
    ("fault", "deadline"),
    [
        ("stall-at-connect", "first_byte_seconds"),
        ("stall-at-first-byte", "first_byte_seconds"),
        ("stall-midway", "idle_seconds"),
        ("stall-midway:200", None),
    ],
)
def test_a_provider_that_stalls_is_given_up_and_asked_again(fault, deadline):
    words = " ".join(f"w{n}" for n in range(200))
    _, result, _, events, _ = run_sim(f"!say {words}", [fault])
    assert (result.stop, result.text) == ("done", words)
    failed = [event.failure.message for event in events if isinstance(event, e.ModelFailed)]
    assert len(failed) == (0 if deadline is None else 1)
    assert all(f"({deadline})" in message for message in failed)


def test_a_line_has_deadlines_of_its_own():
    with pytest.raises(MisuseError, match="set them on its transport"):
        Agent(scripted("hi"), deadlines=Deadlines())


def test_a_log_without_chances_folds_as_it_did():
    line = scripted(OVERLOADED, "fine")
    clock = FakeClock()
    result = asyncio.run(Agent(line, clock=clock, random_source=lambda: 1.0).run("hi"))
    assert (result.text, clock.slept) == ("fine", [0.5])
    assert e.ModelFailed(failure=OVERLOADED).random_draw == 1.0


FAULTS = (
    "error-429-wait:1=0.08", "error-500=0.06", "error-529=0.08", "overloaded-in-stream=0.08", "reset=0.08",
    "missing-end=0.05", "truncated-json=0.05", "stall-midway=0.04", "stall-at-first-byte=0.03", "quota=0.01",
)  # fmt: skip


@pytest.mark.parametrize("model", MODELS)
def test_the_attempts_the_provider_counts_are_those_in_the_log(model):
    """Over seeds: attempts agree, calls run once each, and no answer has words of two attempts."""
    prompt = (
        '!call look {"n": 1}\n!call look {"n": 2}\n!then\n!say half and\n!call look {"n": 3}\n!then\n!say all'
    )

    async def one(seed):
        seen = []

        def look(n: int) -> str:
            """Look."""
            seen.append(n)
            return f"saw {n}"

        clock, store, dice = FakeClock(), MemoryStore(), random.Random(seed)
        async with simulator(clock=clock, seed=seed, faults=FAULTS) as provider:
            agent = Agent(
                provider.model(MODELS[model]),
                tools=[look],
                clock=clock,
                store=store,
                random_source=dice.random,
            )
            if seed % 2:
                _, result = await collect_stream(agent, prompt)
            else:
                result = await agent.run(prompt, "s")
            events = [record.event for record in await store.read("s")]
            asked = asks_in(events)
            assert len(asked) == len(provider.exchanges), seed
            ends = [event for event in events if isinstance(event, e.ModelReplied | e.ModelFailed)]
            assert len(ends) == len(asked), seed
            waits = [ask.wait_seconds for ask in asked if ask.wait_seconds]
            assert all(wait in clock.slept for wait in waits), seed
            assert result.stop in ("done", "failed"), (seed, result.reason)
            if result.stop == "done":
                assert (result.text, sorted(seen)) == ("all", [1, 2, 3]), seed
            return result.stop, len(asked)

    async def every():
        return [await one(seed) for seed in range(SEEDS)]

    ends = asyncio.run(every())
    assert sum(stop == "done" for stop, _ in ends) > SEEDS / 2
    assert sum(asked for _, asked in ends) > 3 * SEEDS
