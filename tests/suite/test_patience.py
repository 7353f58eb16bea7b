"""A check of times is repeated with longer ones, and still fails if it fails for each."""

import pytest

from tests.suite.patience import allow_longer


def make_late_check(passes_from, tried):
    def check(seconds):
        tried.append(seconds)
        assert seconds >= passes_from

    return check


@pytest.mark.parametrize(("passes_from", "count"), [(0.5, 1), (2, 2), (9, 3)])
def test_a_check_that_needs_longer_gets_longer(passes_from, count):
    tried = []
    allow_longer(make_late_check(passes_from, tried), 1.0)
    assert tried == [1.0, 8.0, 64.0][:count]


def test_what_fails_each_time_fails():
    with pytest.raises(AssertionError):
        allow_longer(make_late_check(100, []), 1.0)
