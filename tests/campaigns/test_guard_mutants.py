"""Each marked guard of the source has a row in docs/guard_table.py, each row has its marker, and its mutation fits."""

import re
from functools import cache

import pytest

from docs.guard_table import BOUNDARIES, MARKER_NAME, find_markers
from tests.campaigns.guard_mutants import MUTANTS, ROOT, TABLE, apply_mutant, choose_changed, read_table
from tests.campaigns.guard_mutations import MutationError, mutate

PLACES = find_markers()
ROWS = dict.fromkeys((mutant.marker, mutant.mutation) for mutant in MUTANTS)


def test_each_marker_occurs_once():
    assert {name: places for name, places in PLACES.items() if len(places) > 1} == {}


def test_markers_are_short_kebab_case_names():
    assert [name for name in PLACES if not MARKER_NAME.fullmatch(name) or len(name) > 32] == []


def test_each_marker_has_a_row_and_each_row_has_its_marker():
    assert {mutant.marker for mutant in MUTANTS} == set(PLACES)


def test_the_mutated_source_compiles_and_differs():
    equal = []
    for marker, mutation in ROWS:
        (place,) = PLACES[marker]
        mutant = next(each for each in MUTANTS if (each.marker, each.mutation) == (marker, mutation))
        if apply_mutant(mutant, place) == place.path.read_text(encoding="utf-8"):
            equal.append((marker, mutation))
    assert equal == []


def test_each_test_exists():
    tests = {mutant.test.partition("[")[0] for mutant in MUTANTS}
    assert sorted(test for test in tests if not is_defined(test)) == []


def is_defined(test: str) -> bool:
    file, _, name = test.partition("::")
    return bool(re.search(rf"^(?:async )?def {name}\(", read_test(file), re.MULTILINE))


@cache
def read_test(file: str) -> str:
    return (ROOT / "tests" / file).read_text()


def test_no_boundary_is_listed_twice():
    named = [(boundary.source, boundary.risk) for boundary in BOUNDARIES]
    assert len(named) == len(set(named))


STATEMENT = """\
def check(given, known):
    # a reason
    # guard: the-guard
    {}
"""
CASES = [
    ("never", "if given > known: return 1", "if False:"),
    ("always", "return [each for each in given if each]", "return [each for each in given if True]"),
    ("never", "return given if known else 0", "return given if False else 0"),
    ("removed", "known.check(given)", "    pass\n"),
    ("twice", "known.check(given)", "    known.check(given)\n    known.check(given)\n"),
    ("after print(1)", "known.check(given)", "    known.check(given)\n    print(1)\n"),
    ("becomes return None", "raise ValueError(given)", "    return None\n"),
    ("value ()", "for each in given: print(each)", "for each in ():"),
    ("value None", "if found := known.get(given): return found", "if (found := None):"),
    ("plus (3,)", "given = (1, 2)", "given = (1, 2) + (3,)"),
    ("unwrap escape", "print('%s', escape(given, exact=True))", "print('%s', given)"),
    ("unwrap sub -1", "return PATTERN.sub(known, given)", "return given"),
    ("without token", "return Options(token=given, is_open=True)", "return Options(is_open=True)"),
    ("without known", "if not given or given not in known: return 1", "if not given:"),
    ("without names", "return frozenset((*given, *known.names))", "return frozenset((*given,))"),
    ("without .git", "given = ('.git', 'other')", "given = ('other',)"),
    ("without O_EXCL", "given = os.O_CREAT | os.O_EXCL | os.O_WRONLY", "given = os.O_CREAT | os.O_WRONLY"),
    ("without --size known", "given += ['--size', str(known), '--last']", "given += ['--last']"),
    ("with mode=0", "open(given, mode=1)", "open(given, mode=0)"),
    ("with mode=0", "given = {'mode': 1, 'other': 2}", "{'mode': 0, 'other': 2}"),
    ("argument open 1 0o644", "os.open(given, 0o600)", "os.open(given, 420)"),
    ("rename given known", "return connect(given)", "return connect(known)"),
]


@pytest.mark.parametrize(("mutation", "statement", "expected"), CASES)
def test_a_mutation_changes_the_marked_statement(mutation, statement, expected):
    assert expected in mutate(STATEMENT.format(statement), 2, mutation, is_python=True)


def test_clauses_are_mutated_in_place():
    text = "if a:\n    b()\n# guard: the-guard\nelif c:\n    d()\nelse:\n    e()\n"
    assert "\nelif False:\n    d()\nelse:\n    e()" in mutate(text, 2, "never", is_python=True)
    text = "try:\n    a()\n# guard: the-guard\nexcept (OSError, ValueError):\n    b()\n"
    assert "\nexcept (ValueError,):\n    b()" in mutate(text, 2, "without OSError", is_python=True)


def test_statements_inside_a_marked_one_stay_as_they_are():
    text = "# guard: the-guard\nfor each in given:\n    if each: print(escape(each))\n"
    with pytest.raises(MutationError, match="finds nothing"):
        mutate(text, 0, "never", is_python=True)
    with pytest.raises(MutationError, match="finds nothing"):
        mutate(text, 0, "unwrap escape", is_python=True)


def test_a_line_of_another_language_is_mutated():
    script = "// guard: the-guard\nif (f(a) < 0) return 1;\nreturn 2;\n"
    assert (
        mutate(script, 0, "always", is_python=False)
        == "// guard: the-guard\nif (true) return 1;\nreturn 2;\n"
    )
    query = 'QUERY = """\nSELECT 1\n-- guard: the-guard\nWHERE false\n"""\n'
    assert (
        mutate(query, 2, "removed", is_python=True) == 'QUERY = """\nSELECT 1\n-- guard: the-guard\n\n"""\n'
    )


def test_a_mutation_that_changes_nothing_is_an_error():
    with pytest.raises(MutationError, match="changes nothing"):
        mutate("# guard: the-guard\nif True: pass", 0, "becomes if True: pass", is_python=True)


def test_rows_that_changed_are_chosen():
    assert read_table((ROOT / TABLE).read_text(encoding="utf-8")) == MUTANTS
    assert choose_changed((), MUTANTS, PLACES) == []
    assert choose_changed((), MUTANTS[1:], PLACES) == [MUTANTS[0]]
    (place,) = PLACES["token-guess-limit"]
    by_source = choose_changed({place.path.relative_to(ROOT).as_posix()}, MUTANTS, PLACES)
    assert {PLACES[mutant.marker][0].path for mutant in by_source} == {place.path}
    by_test = choose_changed({"tests/sandbox/test_proxy.py"}, MUTANTS, PLACES)
    assert {mutant.test.partition("::")[0] for mutant in by_test} == {"sandbox/test_proxy.py"}
