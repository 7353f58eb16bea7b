"""CPU seconds of every test, as a plugin of pytest.

The slowest files are printed at the end. A test that takes more than `CPU_SECONDS_MAX` and is not marked `slow` fails; on
a busy machine, where cores and caches are shared and the same work takes more seconds, the limit is higher. A campaign that
is longer than that of `make test` may take longer by as much.
Seconds of processes that a test starts and waits for count too. BRIDLE_DURATIONS names a file that gets a line
of JSON for every test when it has ended.
"""

import json
import os
from collections import defaultdict
from pathlib import Path

import pytest

from tests.suite.campaign import SCALE, SCALE_DEFAULT

CPU_SECONDS_MAX = 3.0
SHOWN_FILES = 15
PROPERTY = "cpu_seconds"
_seconds: dict[str, float] = defaultdict(float)


_elsewhere = 0.0


def find_limit(is_campaign: bool, size: float = SCALE) -> float:
    """The limit of an unmarked test with the present load of the machine and the size of campaigns."""
    longer = max(1.0, size / SCALE_DEFAULT) if is_campaign else 1.0
    return CPU_SECONDS_MAX * longer * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def add_cpu_seconds(seconds: float) -> None:
    """Count the seconds of a process that is no child of this one."""
    global _elsewhere
    _elsewhere += seconds


def read_cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system + _elsewhere


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    begun = item.stash.get(_BEGUN, None)
    if begun is None:
        return report
    now = read_cpu_seconds()
    seconds, item.stash[_BEGUN] = now - begun, now
    report.user_properties.append((f"{PROPERTY}_{call.when}", seconds))
    is_unmarked = item.get_closest_marker("slow") is None
    limit = find_limit(item.get_closest_marker("campaign") is not None)
    if report.passed and call.when == "call" and is_unmarked and seconds > limit:
        report.outcome = "failed"
        report.longrepr = (
            f"{item.nodeid} took {seconds:.1f} CPU seconds. Make it cheaper, or mark it `slow`; the limit of"
            f" other tests is {CPU_SECONDS_MAX:.0f}, and was {limit:.0f} with this load and size of campaigns."
        )
    return report


_BEGUN = pytest.StashKey[float]()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    item.stash[_BEGUN] = read_cpu_seconds()


def pytest_runtest_logreport(report):
    for name, value in report.user_properties:
        if name == f"{PROPERTY}_{report.when}":
            _seconds[report.nodeid] += value
    path = os.environ.get("BRIDLE_DURATIONS")
    if path and report.when == "teardown" and "PYTEST_XDIST_WORKER" not in os.environ:
        with Path(path).open("a") as file:
            print(json.dumps([report.nodeid, round(_seconds[report.nodeid], 3)]), file=file)


def pytest_terminal_summary(terminalreporter):
    if not _seconds:
        return
    files: dict[str, float] = defaultdict(float)
    for test, seconds in _seconds.items():
        files[test.split("::")[0]] += seconds
    slowest = sorted(files.items(), key=lambda each: -each[1])[:SHOWN_FILES]
    shown = ", ".join(
        f"{file.removeprefix('tests/')} {seconds:.0f}" for file, seconds in slowest if seconds >= 1
    )
    terminalreporter.write_line(
        f"{sum(files.values()):.0f} CPU seconds; most by: {shown or 'no file above 1'}"
    )
