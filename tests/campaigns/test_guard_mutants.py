"""The table of guard_mutants.py matches the source and covers SECURITY.md."""

import pytest
from guard_mutants import MUTANTS, ROOT, SOURCE, read_boundaries


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.guard}: {mutant.old[:40]}")
def test_the_text_that_is_replaced_occurs_once(mutant):
    assert (ROOT / SOURCE / mutant.guard).read_text().count(mutant.old) == 1
    assert mutant.old != mutant.new


@pytest.mark.parametrize(("guards", "tests"), read_boundaries(), ids=lambda names: names[0])
def test_every_guard_and_every_test_of_a_boundary_is_tried(guards, tests):
    tried = [
        (mutant.guard, test)
        for mutant in MUTANTS
        if (test := f"tests/{mutant.test.partition('[')[0]}") in tests
    ]
    assert {test for _, test in tried} == set(tests)
    assert {f"{SOURCE}/{guard}" for guard, _ in tried} >= set(guards)
