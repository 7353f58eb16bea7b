"""A campaign that fails with a new seed leaves a test that fails with this seed, until the defect is corrected."""

import shutil
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]
SUITE = Path(__file__).parent
COPIED = ("__init__.py", "campaign.py", "regressions.py", "repeated.py")
CAMPAIGN = """
from tests.suite.campaign import list_seeds, new_random

def test_counting():
    for seed in list_seeds(20):
        assert seed != 8, f"seed {seed} is counted twice"

def test_dice():
    assert new_random("dice").random() < 0, "a die without numbers"
"""
FIXED = "def test_counting(): pass\n\ndef test_dice(): pass\n"


@pytest.fixture
def project(pytester, monkeypatch):
    """A project with our helpers, whose root the files are written to."""
    suite = pytester.path / "tests" / "suite"
    suite.mkdir(parents=True)
    for name in COPIED:
        shutil.copy(SUITE / name, suite)
    (pytester.path / "tests" / "__init__.py").touch()
    pytester.makeini("[pytest]\npythonpath = .\n")
    (pytester.path / "tests" / "conftest.py").write_text('pytest_plugins = ["tests.suite.regressions"]\n')
    monkeypatch.setenv("PYTHONPATH", str(pytester.path))
    for name in ("BRIDLE_CAMPAIGN", "BRIDLE_SEED", "BRIDLE_ONE_SEED", "PYTEST_XDIST_WORKER"):
        monkeypatch.delenv(name, raising=False)
    return pytester


def run_tests(project, *words):
    return project.runpytest_subprocess("-p", "no:cacheprovider", *words)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_a_failed_campaign_is_written_as_a_test_that_fails_until_it_is_corrected(
    project, monkeypatch, workers
):
    campaign = project.path / "tests" / "test_campaign.py"
    campaign.write_text(CAMPAIGN)
    with monkeypatch.context() as lane:
        lane.setenv("BRIDLE_SEED", "7")
        lane.setenv("BRIDLE_CAMPAIGN", "1")
        done = run_tests(project, *workers, "tests")
    done.assert_outcomes(failed=2)
    folder = project.path / "build" / "regressions"
    written = sorted(path.name for path in folder.iterdir())
    assert written == ["test_counting_8.py", "test_dice_7.py"]
    for name in written:
        assert f"A test of the failure: build/regressions/{name}" in done.outlines
    assert "Seeds from 7, campaigns at 1; again: BRIDLE_SEED=7" in done.outlines

    again = run_tests(project, "build/regressions")
    again.assert_outcomes(failed=2)
    again.stdout.fnmatch_lines_random(["*seed 8 is counted twice*", "*a die without numbers*"])

    campaign.write_text(FIXED)
    run_tests(project, "build/regressions").assert_outcomes(passed=2)


@pytest.mark.slow
def test_without_a_seed_of_its_own_nothing_is_written(project):
    (project.path / "tests" / "test_campaign.py").write_text("def test_counting(): assert False\n")
    run_tests(project, "tests").assert_outcomes(failed=1)
    assert not (project.path / "build").exists()
