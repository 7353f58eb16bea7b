"""Intervals and tests of pass rates, against known values and against counting all cases."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridle.evals.statistics import adjust_holm, fisher_test, sign_flip_test, wilson_interval


@pytest.mark.parametrize(
    ("passed", "trials", "low", "high"),
    # Wilson (1927), as given by statsmodels' proportion_confint(method="wilson").
    [
        (0, 0, 0.0, 1.0),
        (3, 3, 0.4385, 1.0),
        (0, 10, 0.0, 0.2775),
        (8, 10, 0.4902, 0.9433),
        (50, 100, 0.4038, 0.5962),
    ],
)
def test_interval_has_known_values(passed, trials, low, high):
    assert wilson_interval(passed, trials) == pytest.approx((low, high), abs=1e-4)


@given(st.integers(0, 40), st.integers(1, 40))
def test_interval_contains_the_rate(passed, trials):
    passed = min(passed, trials)
    low, high = wilson_interval(passed, trials)
    assert 0 <= low <= passed / trials <= high <= 1


@pytest.mark.parametrize(
    ("now", "before", "p"),
    [((0, 5), (5, 5), 1 / 252), ((5, 5), (5, 5), 1.0), ((1, 10), (9, 10), 0.000547), ((3, 3), (0, 3), 1.0)],
)
def test_fisher_has_known_values(now, before, p):
    assert fisher_test(*now, *before) == pytest.approx(p, abs=1e-6)


@given(st.integers(0, 6), st.integers(1, 6), st.integers(0, 6), st.integers(1, 6))
def test_fisher_equals_counting_all_assignments(passed, trials, base_passed, base_trials):
    passed, base_passed = min(passed, trials), min(base_passed, base_trials)
    total = passed + base_passed
    drawn = [each for each in product((0, 1), repeat=trials + base_trials) if sum(each) == total]
    counted = sum(sum(each[:trials]) <= passed for each in drawn) / len(drawn)
    assert fisher_test(passed, trials, base_passed, base_trials) == pytest.approx(counted)


def test_sign_test_of_one_trial_per_task():
    assert sign_flip_test([-1.0] * 5 + [0.0] * 95) == pytest.approx(1 / 32)
    assert sign_flip_test([-1.0] * 4) == pytest.approx(1 / 16)
    assert sign_flip_test([-1.0, 1.0]) > 0.5
    assert sign_flip_test([]) == sign_flip_test([0.0, 0.0]) == 1.0


def test_drawn_patterns_agree_with_counted_ones():
    """Above sixteen changed tasks the patterns are drawn: the result is stable and near the exact one."""
    many = [-1.0] * 14 + [1.0] * 6  # exact: P(at most 6 of 20) = 0.05766
    assert sign_flip_test(many) == sign_flip_test(many)
    assert sign_flip_test(many) == pytest.approx(0.0577, abs=0.006)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_corrected_values_are_not_smaller(values):
    adjusted = adjust_holm(values)
    assert all(before <= after <= 1 for before, after in zip(values, adjusted, strict=True))
    assert adjusted[values.index(min(values))] == pytest.approx(min(1.0, min(values) * len(values)))
