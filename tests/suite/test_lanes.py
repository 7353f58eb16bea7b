"""The last lines of a run say how many tests its lane left out, for which reason, and what runs them."""

import pytest

pytest_plugins = ["pytester"]
CONFTEST = 'pytest_plugins = ["tests.suite.lanes"]\n'
TESTS = """
import pytest

@pytest.mark.full
def test_long(): pass

@pytest.mark.sampled
@pytest.mark.parametrize("case", range(20))
def test_many(case): pass

@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_story(store): pass

@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_detail(store): pass
"""
LEFT_OUT = (
    "20 tests were left out: 1 marked `full`, 18 cases of tests marked `sampled`, 1 cases on PostgreSQL."
    " `make test-all` runs them, and BRIDLE_CAMPAIGN=1 before a command of pytest."
)


@pytest.fixture
def run_lane(pytester, monkeypatch):
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    pytester.makeini("[pytest]\nmarkers = full\n  sampled\n  campaign\n")
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(TESTS)

    def run(*options, campaign=None):
        if campaign is None:
            monkeypatch.delenv("BRIDLE_CAMPAIGN", raising=False)
        else:
            monkeypatch.setenv("BRIDLE_CAMPAIGN", campaign)
        return pytester.runpytest_subprocess("-p", "no:cacheprovider", *options)

    return run


@pytest.mark.slow
@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_what_was_left_out_is_counted_by_reason(run_lane, workers):
    done = run_lane(*workers)
    done.assert_outcomes(passed=5, deselected=0 if workers else 20)
    assert done.outlines.count(LEFT_OUT) == 1


@pytest.mark.slow
def test_a_whole_campaign_leaves_nothing_out(run_lane):
    done = run_lane(campaign="1")
    done.assert_outcomes(passed=25)
    assert "left out" not in done.stdout.str()
