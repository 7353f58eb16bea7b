"""Which tests `make test` leaves out and `make test-all` runs, as a plugin of pytest; the last lines say how many, and why.

Unless campaigns are whole (`campaign.py`), these do not run: tests marked `full`, nine of ten cases of tests marked
`sampled`, and cases on PostgreSQL of tests that run on SQLite too, except those of the first test of each file.
"""

from collections import defaultdict

import pytest

from tests.suite.campaign import IS_WHOLE

SAMPLED_STEP = 10
ON_POSTGRES = {"test_stores.py"}
"""Files whose cases on PostgreSQL are no repetition of those on SQLite."""
CAMPAIGN_NAMES = {"scale", "list_seeds", "new_random"}
OUTPUT = "left_out"
_counts: dict[str, int] = {}


def pytest_collection_modifyitems(config, items):
    """Mark campaigns, and leave out what only a whole campaign runs."""
    for item in items:
        if CAMPAIGN_NAMES & {*vars(getattr(item, "module", None) or object)}:
            item.add_marker("campaign")
    if IS_WHOLE:
        return
    left_out, gone = [], set()
    for reason, chosen in {
        "marked `full`": [item for item in items if item.get_closest_marker("full")],
        "cases of tests marked `sampled`": _list_unsampled(items),
        "cases on PostgreSQL": _list_second_stores(items),
    }.items():
        new = [item for item in chosen if id(item) not in gone]
        gone |= {*map(id, new)}
        left_out += new
        _counts[reason] = len(new)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if id(item) not in gone]


def _list_unsampled(items):
    """The cases of tests marked `sampled` that this lane leaves out: nine of ten, spread evenly."""
    cases = defaultdict(list)
    for item in items:
        if item.get_closest_marker("sampled"):
            cases[item.nodeid.partition("[")[0]].append(item)
    return [item for each in cases.values() for place, item in enumerate(each) if place % SAMPLED_STEP]


def _list_second_stores(items):
    """Cases on PostgreSQL of tests that this lane runs on SQLite too, except those of the first test of each file."""
    first, left_out = {}, []
    for item in items:
        case = getattr(item, "callspec", None)
        if case and "postgres" in case.params.values() and item.path.name not in ON_POSTGRES:
            name = first.setdefault(item.path, item.originalname)
            if item.originalname != name:
                left_out.append(item)
    return left_out


def pytest_sessionfinish(session):
    """Give the counts of a worker to the process that prints them."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[OUTPUT] = _counts


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """Every worker collects all tests, so that the counts of any of them are those of the run."""
    _counts.update(getattr(node, "workeroutput", {}).get(OUTPUT, {}))


def pytest_terminal_summary(terminalreporter):
    reasons = [f"{count:,} {reason}" for reason, count in _counts.items() if count]
    if reasons:
        terminalreporter.write_line(
            f"{sum(_counts.values()):,} tests were left out: {', '.join(reasons)}. `make test-all` runs them, and"
            " BRIDLE_CAMPAIGN=1 before a command of pytest."
        )
