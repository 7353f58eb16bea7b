"""A circuit breaker as a value: closed, open, half-open, with time given."""

from hypothesis import given
from hypothesis import strategies as st

from bridle.core.recovery.breaker import (
    CLOSED_BREAKER,
    FAILURES_MAX,
    OPEN_SECONDS_FIRST,
    OPEN_SECONDS_MAX,
    PROBE_SECONDS,
    PROBE_SECONDS_MAX,
    BreakerState,
    admit_request,
    breaker_phase,
    record_failure,
    record_probe_answer,
    record_success,
    release_probe,
)


def open_breaker(at=100.0):
    breaker = CLOSED_BREAKER
    for _ in range(FAILURES_MAX):
        breaker = record_failure(breaker, at, "down")
    return breaker


def test_it_opens_after_so_many_failures_in_a_row_and_not_before():
    breaker = CLOSED_BREAKER
    for count in range(1, FAILURES_MAX):
        breaker = record_failure(breaker, 100.0)
        assert (breaker.failures, breaker_phase(breaker, 100.0)) == (count, "closed")
    assert breaker_phase(record_failure(breaker, 100.0), 100.0) == "open"
    assert record_success(breaker) == CLOSED_BREAKER


def test_an_open_one_says_how_long_it_is_too_early():
    assert admit_request(open_breaker(), 103.0) == (open_breaker(), OPEN_SECONDS_FIRST - 3.0)


def test_after_the_rest_one_is_let_through_and_the_others_wait():
    probing, wait = admit_request(open_breaker(), 110.0)
    assert wait == 0
    assert admit_request(probing, 111.0) == (probing, PROBE_SECONDS)
    assert admit_request(probing, 110.0 + PROBE_SECONDS_MAX)[1] == 0, (
        "a lost probe does not bar the way for ever"
    )


def test_a_probe_that_fails_doubles_the_rest_up_to_a_limit():
    breaker, at, rests = open_breaker(), 100.0, []
    for _ in range(2000):
        wait = admit_request(breaker, at)[1]
        rests.append(wait)
        at += wait
        breaker = record_failure(admit_request(breaker, at)[0], at)
    assert rests[:4] == [10.0, 20.0, 40.0, 80.0]
    assert set(rests[4:]) == {OPEN_SECONDS_MAX}


def test_a_probe_that_is_answered_closes_it_on_probation():
    probing, _ = admit_request(open_breaker(), 110.0)
    talking = record_probe_answer(probing)
    assert breaker_phase(talking, 111.0) == "closed"
    again = record_failure(talking, 112.0)
    assert breaker_phase(again, 112.0) == "open"
    assert admit_request(again, 112.0)[1] == 2 * OPEN_SECONDS_FIRST
    assert record_success(talking) == CLOSED_BREAKER


def test_a_probe_given_up_for_reasons_of_ours_lets_the_next_one_try():
    probing, _ = admit_request(open_breaker(), 110.0)
    assert admit_request(release_probe(probing), 110.0)[1] == 0


def test_what_was_asked_before_it_opened_changes_nothing():
    assert record_failure(open_breaker(), 105.0) == open_breaker()
    assert record_success(open_breaker()) == open_breaker()


@given(st.lists(st.tuples(st.sampled_from(["ask", "fail", "hear", "succeed", "release"]), st.floats(0, 700))))
def test_a_failing_endpoint_is_asked_at_most_once_per_pause(steps):
    breaker, now, probes = CLOSED_BREAKER, 0.0, 0
    for what, seconds in steps:
        now += seconds
        before = breaker_phase(breaker, now)
        match what:
            case "ask":
                breaker, wait = admit_request(breaker, now)
                assert 0 <= wait <= OPEN_SECONDS_MAX
                assert (wait > 0) or before != "open"
                probes += before == "half-open" and wait == 0
            case "fail":
                breaker = record_failure(breaker, now)
            case "hear":
                breaker = record_probe_answer(breaker)
            case "succeed":
                breaker = record_success(breaker)
            case "release":
                breaker = release_probe(breaker)
        assert isinstance(breaker, BreakerState)
        assert (breaker.opened_at is None) or breaker.failures >= FAILURES_MAX
        assert breaker.probed_at is None or breaker.opened_at is not None
