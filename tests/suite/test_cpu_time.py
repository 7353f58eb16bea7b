"""The limit of CPU seconds of a test: higher on a busy machine, and for a campaign that is longer than by default."""

import os

import pytest

from tests.suite.cpu_time import CPU_SECONDS_MAX, find_limit


@pytest.mark.parametrize(
    ("load_per_core", "size", "is_campaign", "times"),
    [
        (0.0, 0.1, False, 1),
        (0.5, 0.1, True, 1),
        (3.0, 0.1, False, 3),
        (0.0, 50.0, False, 1),
        (0.0, 50.0, True, 500),
        (2.0, 1.0, True, 20),
        (0.0, 0.01, True, 1),
    ],
)
def test_limit_grows_with_the_load_and_with_the_size_of_a_campaign(
    load_per_core, size, is_campaign, times, monkeypatch
):
    load = load_per_core * (os.cpu_count() or 1)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    assert find_limit(is_campaign, size) == pytest.approx(CPU_SECONDS_MAX * times)
