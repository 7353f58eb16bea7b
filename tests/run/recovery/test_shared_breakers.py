"""Circuit breakers shared by runs: which endpoint is skipped, for how long, and the records of it."""

import asyncio
import logging

from msgspec.structs import replace

from bridle import Agent
from bridle.core.recovery.breaker import FAILURES_MAX
from bridle.run.model_connection import connect_model, find_model_by_name
from bridle.run.recovery.breakers import AVOIDED_SECONDS, PROCESS_BREAKERS, AdmittedRequest, CircuitBreakers
from bridle.stores.memory import MemoryStore
from bridle.testing import FakeClock, simulator
from bridle.values import events as e
from bridle.values.errors import Failure
from bridle.values.model import Endpoint, Model
from bridle.values.settings import ATTEMPTS_DEFAULT

ONE = Model(id="one", endpoint=Endpoint(name="here", family="f"))
TWO = replace(ONE, id="two")


def record_failures(breakers, model, kind, times=FAILURES_MAX, now=0.0, **fields):
    for _ in range(times):
        passage = breakers.admit_request(model, now)
        if isinstance(passage, AdmittedRequest):
            with passage:
                passage.record_failure(Failure(kind=kind, message="no", **fields), now)


def test_an_address_that_is_down_is_down_for_all_its_models():
    breakers = CircuitBreakers()
    record_failures(breakers, ONE, "unreachable")
    refused = breakers.admit_request(TWO, 1.0)
    assert isinstance(refused, Failure)
    assert (refused.kind, refused.retry_after_seconds) == ("unavailable", 9.0)
    assert "failed 8 times in a row and is not asked for another 9 s; the last time: no" in refused.message
    assert not breakers.is_healthy(TWO, 1.0)
    assert breakers.is_healthy(TWO, 10.0)


def test_a_busy_model_is_busy_alone():
    breakers = CircuitBreakers()
    record_failures(breakers, ONE, "overloaded")
    assert isinstance(breakers.admit_request(ONE, 0.0), Failure)
    assert isinstance(breakers.admit_request(TWO, 0.0), AdmittedRequest)


def test_a_refusal_is_a_sign_of_life():
    for kind in ("invalid", "unauthorized", "quota", "context"):
        breakers = CircuitBreakers()
        record_failures(breakers, ONE, "server", FAILURES_MAX - 1)
        record_failures(breakers, ONE, kind, 1)
        record_failures(breakers, ONE, "server", FAILURES_MAX - 1)
        assert isinstance(breakers.admit_request(ONE, 0.0), AdmittedRequest), kind


def test_a_refusal_that_no_waiting_mends_is_remembered_for_those_who_may_choose():
    breakers = CircuitBreakers()
    record_failures(breakers, ONE, "quota", 1)
    assert isinstance(breakers.admit_request(ONE, 0.0), AdmittedRequest), "the person may just have paid"
    assert not breakers.is_healthy(ONE, 1.0)
    assert breakers.is_healthy(TWO, 1.0)
    assert breakers.is_healthy(ONE, AVOIDED_SECONDS)
    record_failures(breakers, TWO, "context", 1)
    assert breakers.is_healthy(TWO, 1.0), "a conversation that is too long says nothing about the model"
    breakers.admit_request(ONE, 2.0).record_success()
    assert breakers.is_healthy(ONE, 3.0)


def test_a_probe_that_is_left_without_a_word_counts_for_nothing():
    breakers = CircuitBreakers()
    record_failures(breakers, ONE, "server")
    with breakers.admit_request(ONE, 10.0):
        assert isinstance(breakers.admit_request(ONE, 10.0), Failure)
    assert isinstance(breakers.admit_request(ONE, 10.0), AdmittedRequest)


def test_a_probe_refused_by_the_model_leaves_the_endpoint_free_for_the_others():
    breakers = CircuitBreakers()
    record_failures(breakers, ONE, "overloaded")
    record_failures(breakers, TWO, "server")
    # The endpoint's rest is over together with the model's; the model's own probe is under way elsewhere.
    with breakers.admit_request(TWO, 10.0) as probe:
        assert isinstance(breakers.admit_request(ONE, 10.0), Failure)
        probe.record_answer_begun()
        assert isinstance(breakers.admit_request(ONE, 10.0), AdmittedRequest)


def test_lines_made_from_a_name_share_the_breakers_of_the_process():
    assert (
        connect_model(find_model_by_name("sim:")).breakers
        is connect_model(find_model_by_name("sim:")).breakers
        is PROCESS_BREAKERS
    )


def test_an_endpoint_that_is_down_is_not_hammered_and_the_log_shows_why(caplog):
    async def story():
        clock, store = FakeClock(), MemoryStore()
        async with simulator(clock=clock, faults=["error-500=1"]) as provider:
            line = provider.model()
            agent = Agent(line, clock=clock, store=store, random_source=lambda: 1.0)
            with caplog.at_level(logging.WARNING, logger="bridle"):
                results = [await agent.run("!say hi", f"s{n}") for n in range(6)]
            counted = len(provider.exchanges)
            provider.fail()
            clock.advance(3600)
            results.append(await agent.run("!say hi", "s6"))
            logs = [[record.event for record in await store.read(f"s{n}")] for n in range(7)]
            return results, counted, logs, len(provider.exchanges)

    results, counted, logs, total = asyncio.run(story())
    assert [result.stop for result in results] == ["failed"] * 6 + ["done"]
    asks = sum(isinstance(event, e.ModelAsked) for log in logs for event in log)
    assert asks == total
    assert counted < 6 * ATTEMPTS_DEFAULT, "without a breaker, every run would have used up its attempts"
    refused = [
        event.failure
        for log in logs
        for event in log
        if isinstance(event, e.ModelFailed) and event.failure.kind == "unavailable"
    ]
    assert refused
    assert all("in a row and is not asked for another" in failure.message for failure in refused)
    waits = {event.wait_source for log in logs for event in log if isinstance(event, e.ModelAsked)}
    assert waits == {"", "backoff", "breaker"}
    assert any("skipped for 10 s" in record.message for record in caplog.records)


def test_many_runs_at_once_send_one_probe_after_the_rest():
    async def story():
        clock = FakeClock()
        async with simulator(clock=clock, faults=["error-500=1"]) as provider:
            agent = Agent(provider.model(), clock=clock, store=MemoryStore(), random_source=lambda: 1.0)
            results = await asyncio.gather(*(agent.run("!say hi", f"s{n}") for n in range(20)))
            return results, len(provider.exchanges)

    results, counted = asyncio.run(story())
    assert {result.stop for result in results} == {"failed"}
    assert counted < 20 + 20, "twenty go out together; after that, one by one"
