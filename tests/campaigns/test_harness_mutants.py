"""Markers of defects and rows of harness_mutants.py belong together, and each mutation fits its statement."""

from collections import Counter

import pytest

from tests.campaigns.harness_mutants import DEFECTS, ROOT, SOURCE, find_markers, plant

MARKERS = find_markers(ROOT / SOURCE)


def test_every_marker_has_a_row_and_every_row_one_marker():
    assert Counter(name for name, paths in MARKERS.items() for _ in paths) == Counter(
        each.marker for each in DEFECTS
    )


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.marker)
def test_the_mutation_fits_the_statement(defect):
    (path,) = MARKERS[defect.marker]
    text = path.read_text(encoding="utf-8")
    assert plant(defect, text) != text


def test_every_area_has_defects():
    assert {each.area for each in DEFECTS} == {
        "dispatch",
        "assembly",
        "caching",
        "recovery",
        "budgets",
        "approvals",
    }
