"""The table of harness_mutants.py matches the source."""

from collections import Counter

import pytest
from harness_mutants import DEFECTS, ROOT, SOURCE


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.effect)
def test_the_text_of_a_defect_occurs_once(defect):
    assert (ROOT / SOURCE / defect.file).read_text().count(defect.old) == 1
    assert defect.old != defect.new


def test_every_area_has_defects():
    counts = Counter(each.area for each in DEFECTS)
    assert sum(counts.values()) >= 40
    assert min(counts.values()) >= 5 and len(counts) == 6
