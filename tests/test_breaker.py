"""A circuit breaker as a value: closed, open, half-open, with time given."""

from hypothesis import given
from hypothesis import strategies as st

from bridle.core.breaker import (
    CLOSED,
    FAILURES_MAX,
    PROBE_SECONDS,
    PROBE_SECONDS_MAX,
    REST_SECONDS_FIRST,
    REST_SECONDS_MAX,
    Breaker,
    admitted,
    failed,
    heard,
    phase,
    released,
    succeeded,
)


def opened(at=100.0):
    breaker = CLOSED
    for _ in range(FAILURES_MAX):
        breaker = failed(breaker, at, "down")
    return breaker


def test_it_opens_after_so_many_failures_in_a_row_and_not_before():
    breaker = CLOSED
    for count in range(1, FAILURES_MAX):
        breaker = failed(breaker, 100.0)
        assert (breaker.failures, phase(breaker, 100.0)) == (count, "closed")
    assert phase(failed(breaker, 100.0), 100.0) == "open"
    assert succeeded(breaker) == CLOSED


def test_an_open_one_says_how_long_it_is_too_early():
    assert admitted(opened(), 103.0) == (opened(), REST_SECONDS_FIRST - 3.0)


def test_after_the_rest_one_is_let_through_and_the_others_wait():
    probing, wait = admitted(opened(), 110.0)
    assert wait == 0
    assert admitted(probing, 111.0) == (probing, PROBE_SECONDS)
    assert admitted(probing, 110.0 + PROBE_SECONDS_MAX)[1] == 0, "a lost probe does not bar the way for ever"


def test_a_probe_that_fails_doubles_the_rest_up_to_a_limit():
    breaker, at, rests = opened(), 100.0, []
    for _ in range(2000):
        wait = admitted(breaker, at)[1]
        rests.append(wait)
        at += wait
        breaker = failed(admitted(breaker, at)[0], at)
    assert rests[:4] == [10.0, 20.0, 40.0, 80.0]
    assert set(rests[4:]) == {REST_SECONDS_MAX}


def test_a_probe_that_is_answered_closes_it_on_probation():
    probing, _ = admitted(opened(), 110.0)
    talking = heard(probing)
    assert phase(talking, 111.0) == "closed"
    again = failed(talking, 112.0)
    assert phase(again, 112.0) == "open"
    assert admitted(again, 112.0)[1] == 2 * REST_SECONDS_FIRST
    assert succeeded(talking) == CLOSED


def test_a_probe_given_up_for_reasons_of_ours_lets_the_next_one_try():
    probing, _ = admitted(opened(), 110.0)
    assert admitted(released(probing), 110.0)[1] == 0


def test_what_was_asked_before_it_opened_changes_nothing():
    assert failed(opened(), 105.0) == opened()
    assert succeeded(opened()) == opened()


@given(st.lists(st.tuples(st.sampled_from(["ask", "fail", "hear", "succeed", "release"]), st.floats(0, 700))))
def test_whatever_happens_it_is_asked_at_most_once_a_rest_while_it_fails(steps):
    breaker, now, probes = CLOSED, 0.0, 0
    for what, seconds in steps:
        now += seconds
        before = phase(breaker, now)
        match what:
            case "ask":
                breaker, wait = admitted(breaker, now)
                assert 0 <= wait <= REST_SECONDS_MAX
                assert (wait > 0) or before != "open"
                probes += before == "half-open" and wait == 0
            case "fail":
                breaker = failed(breaker, now)
            case "hear":
                breaker = heard(breaker)
            case "succeed":
                breaker = succeeded(breaker)
            case "release":
                breaker = released(breaker)
        assert isinstance(breaker, Breaker)
        assert (breaker.opened_at is None) or breaker.failures >= FAILURES_MAX
        assert breaker.probed_at is None or breaker.opened_at is not None
