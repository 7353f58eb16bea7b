"""Writes a test for every campaign that failed with a new seed, as a plugin of pytest.

A file in build/regressions repeats the failed test with its seed. Move it to tests/regressions and keep it.
"""

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.suite.campaign import FIRST_SEED, SCALE, Seeds

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "regressions"
PROPERTY = "failed_seed"
TEMPLATE = '''"""A campaign failed with this seed on {day}."""

from tests.suite.repeated import repeat_test


def test_{name}():
    repeat_test({test!r}, seed={seed}, {size})
'''
_files: list[Path] = []


def pytest_runtest_setup():
    Seeds.current = None  # a test that failed has left its own


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if call.when == "call" and report.failed and FIRST_SEED:
        report.user_properties.append((PROPERTY, Seeds.current))
    return report


def pytest_runtest_logreport(report):
    """Runs where the results are collected, so that one process writes the files."""
    seeds = [value for name, value in report.user_properties if name == PROPERTY]
    if report.when != "call" or not seeds:
        return
    seed, size = (seeds[0], "one_seed=True") if seeds[0] is not None else (FIRST_SEED, f"campaign={SCALE:g}")
    test = report.nodeid
    name = re.sub(r"\W+", "_", test.partition("::")[2]).strip("_").removeprefix("test_")[:80] + f"_{seed}"
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"test_{name}.py"
    path.write_text(TEMPLATE.format(day=datetime.now(UTC).date(), name=name, test=test, seed=seed, size=size))
    _files.append(path)


def pytest_terminal_summary(terminalreporter):
    if FIRST_SEED:
        terminalreporter.write_line(
            f"Seeds from {FIRST_SEED}, campaigns at {SCALE:g}; again: BRIDLE_SEED={FIRST_SEED}"
        )
    for path in _files:
        terminalreporter.write_line(f"A test of the failure: {path.relative_to(ROOT)}")
