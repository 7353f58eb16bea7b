"""The harness suite passes on every wire. tests/campaigns/harness_mutants.py shows which defects it catches."""

import asyncio
from pathlib import Path

import pytest

from bridle.evals import RunChoices, load_suite, make_report, run_suite
from bridle.evals.report import format_report
from bridle.stores.memory import MemoryStore

SUITE = Path(__file__).parents[2] / "evals" / "harness"
AREAS = ("dispatch", "assembly", "caching", "recovery", "budgets", "approvals")


@pytest.mark.slow
@pytest.mark.parametrize(
    "area",
    # One task of recovery asks for a reply that the provider has forgotten.
    [pytest.param(area, marks=pytest.mark.refusals) if area == "recovery" else area for area in AREAS],
)
def test_the_harness_passes_its_suite(area):
    report = make_report(asyncio.run(run_suite(load_suite(SUITE), MemoryStore(), RunChoices(tags=(area,)))))
    assert report.is_met, "\n".join(format_report(report, shows_all=False))
    assert report.skipped == 0


def test_suite_covers_every_area_and_wire():
    suite = load_suite(SUITE)
    assert len(suite.tasks) >= 60
    assert {tag for each in suite.tasks for tag in each.task.tags} == set(AREAS)
    assert len(suite.settings.matrix["model"]) == 5
