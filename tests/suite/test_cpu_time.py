"""The limit of CPU seconds of a test: a test beyond it fails; it is higher on a busy machine and for longer campaigns."""

import os

import pytest

from tests.suite.cpu_time import CPU_SECONDS_MAX, find_limit

pytest_plugins = ["pytester"]
COSTLY = """
import pytest
from tests.suite.cpu_time import add_cpu_seconds

def test_costly():
    add_cpu_seconds(1_000_000)

@pytest.mark.slow
def test_costly_and_marked():
    add_cpu_seconds(1_000_000)

def test_cheap():
    add_cpu_seconds(0.1)

@pytest.fixture
def costly():
    add_cpu_seconds(1_000_000)

def test_with_a_costly_fixture(costly):
    pass
"""


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


@pytest.mark.slow
@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_a_test_beyond_the_limit_fails_unless_it_is_marked(pytester, monkeypatch, workers):
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    pytester.makeini("[pytest]\nmarkers = slow\n")
    pytester.makeconftest('pytest_plugins = ["tests.suite.cpu_time"]\n')
    pytester.makepyfile(test_costs=COSTLY)
    done = pytester.runpytest_subprocess("-p", "no:cacheprovider", *workers)
    done.assert_outcomes(failed=1, passed=3)
    done.stdout.fnmatch_lines(
        [
            "test_costs.py::test_costly took 1000000.? CPU seconds. Make it cheaper, or mark it `slow`; the limit of*"
        ]
    )
