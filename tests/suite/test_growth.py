"""The comparison of CPU times finds work that grows too fast, and is not misled by one slow or fast round."""

import gc

import pytest

from tests.suite.growth import LINEAR_MAX, ROUNDS_MAX, assert_cost_per_item, assert_growth, measure_seconds


def prepare_linear(size):
    def work():
        seen = set()
        for number in range(size * 50):
            if number not in seen:
                seen.add(number)

    return work


def prepare_quadratic(size):
    def work():
        seen = []
        for number in range(size):
            if number not in seen:
                seen.append(number)

    return work


def prepare_nothing(size):
    return lambda: None


def scripted_clock(*rounds):
    """A clock that reports the given durations, in the order in which the sizes are measured."""
    now, readings = 0.0, []
    for spent in (each for pair in rounds for each in pair):
        readings += [now, now + spent]
        now += spent
    return iter(readings).__next__


def test_linear_work_passes():
    assert_growth(prepare_linear, 200, 1_200, LINEAR_MAX)


def test_planted_quadratic_work_fails():
    with pytest.raises(AssertionError, match="size 3,600 takes"):
        assert_growth(prepare_quadratic, 300, 3_600, LINEAR_MAX)


def test_a_planted_cost_that_grows_with_the_items_before_it_fails():
    with pytest.raises(AssertionError, match="size 3,200 takes"):
        assert_cost_per_item(prepare_quadratic, 200, 3_200)


def test_one_fast_round_of_the_small_size_does_not_fail_linear_work():
    rounds = [(0.5, 9.0), *[(1.0, 6.0)] * (ROUNDS_MAX - 1)]
    assert_growth(prepare_nothing, 1, 6, 7.0, clock=scripted_clock(*rounds))


def test_slow_rounds_do_not_fail_work_that_grows_slowly():
    noisy = [(1.0, 90.0), (8.0, 50.0), (1.0, 40.0), (3.0, 21.0), (1.0, 70.0)]
    assert_growth(prepare_nothing, 1, 6, LINEAR_MAX, clock=scripted_clock(*noisy, (1.0, 6.0)))


def test_one_slow_round_of_the_small_size_does_not_pass_work_that_grows_fast():
    rounds = [(9.0, 36.0), *[(1.0, 36.0)] * (ROUNDS_MAX - 1)]
    with pytest.raises(AssertionError, match=r"takes 36\.00 times"):
        assert_growth(prepare_nothing, 1, 6, LINEAR_MAX, clock=scripted_clock(*rounds))


def test_garbage_is_not_collected_while_time_is_measured():
    found = []
    measure_seconds(lambda: found.append(gc.isenabled()))
    assert (found, gc.isenabled()) == ([False], True)
