"""The measurement of lanes: defects fit the source, a lane notices what its own tests notice, and shares count that only."""

import ast
import os
import random
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.campaigns.lanes.codec_mutants import Change, apply_change, find_changes, list_changes
from tests.campaigns.lanes.measure_lanes import (
    KINDS,
    ROOT,
    SETTINGS,
    TEST,
    TEST_ALL,
    Outcome,
    Seeded,
    choose,
    find_share,
    format_row,
    list_guards,
    measure,
    try_defect,
)

SOURCE = textwrap.dedent('''\
    """A docstring with 1 number."""
    def decode(body: dict["str", 3], size=20) -> None:
        if body["kind"] == "text" and not body.get("empty"):
            raise ValueError("kind", {"a": 1})
        return {"text": f"{body['text']}", "done": True}
    ''')


def list_texts(source):
    path = Path("codec.py")
    return [
        apply_change(Change(path, *found), source).splitlines() for found in find_changes(ast.parse(source))
    ]


def test_each_kind_of_expression_is_changed_and_texts_and_types_stay():
    changed = [
        next(new.strip() for new, old in zip(text, SOURCE.splitlines(), strict=True) if new != old)
        for text in list_texts(SOURCE)
    ]
    assert sorted(changed) == sorted(
        [
            'def decode(body: dict["str", 3], size=21) -> None:',
            "if False:",
            "if (body['kind'] == 'text'):",
            "if (body['kind'] != 'text') and not body.get(\"empty\"):",
            'if body[\'kind_\'] == "text" and not body.get("empty"):',
            'if body["kind"] == "text" and not body.get(\'empty_\'):',
            "return {'text_': f\"{body['text']}\", \"done\": True}",
            "return {\"text\": f\"{body['text']}\", 'done_': True}",
            'return {"text": f"{body[\'text\']}", "done": False}',
        ]
    )


def test_an_expression_after_other_letters_is_found():
    (text,) = list_texts("größe = 'ä' < b")
    assert text == ["größe = ('ä' >= b)"]


def test_defects_of_codecs_compile_and_have_names_of_their_own():
    changes = list_changes()
    assert len({change.name for change in changes}) == len(changes) > 5_000
    for change in random.Random(1).sample(changes, 40):
        text = change.path.read_text(encoding="utf-8")
        assert apply_change(change, text) != text


@pytest.mark.parametrize("kind", KINDS)
def test_the_tests_of_a_defect_exist(kind):
    found = KINDS[kind][0]()
    files = {test.partition("::")[0] for defect in found for test in (*defect.first, *defect.tests)}
    assert sorted(file for file in files if not (ROOT / file).exists()) == []
    assert len({defect.name for defect in found}) == len(found)


@pytest.mark.full
@pytest.mark.slow
def test_make_test_leaves_out_no_test_of_the_guard_table():
    tests = dict.fromkeys(test for defect in list_guards() for test in defect.tests)
    environment = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--collect-only", *tests]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    assert "left out" not in done.stdout


def test_a_sample_is_the_same_for_the_same_seed():
    found = KINDS["harness"][0]()
    assert choose(found, 5, 1) == choose(found, 5, 1) != choose(found, 5, 2)
    assert len(choose(found, 500, 1)) == len(found)


CONFTEST = """
import os

def pytest_collection_modifyitems(config, items):
    if os.environ.get("BRIDLE_CAMPAIGN") != "1":
        gone = [item for item in items if "long" in item.name]
        config.hook.pytest_deselected(items=gone)
        items[:] = [item for item in items if item not in gone]
"""
TESTS = """
import code_of

def test_short():
    assert code_of.short() == 1

def test_long():
    assert code_of.long() == 1
"""
CODE = "def short(): return 1\ndef long(): return 1\ndef untested(): return 1\n"


@pytest.fixture
def copy(tmp_path):
    (tmp_path / "src").mkdir()
    for name, text in {"conftest.py": CONFTEST, "test_it.py": TESTS, "src/code_of.py": CODE}.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def seed_defect(name, tests=("test_it.py",)):
    def change(text):
        return text.replace(f"def {name}(): return 1", f"def {name}(): return 2")

    return Seeded(name, Path("src/code_of.py"), change, tests, tests)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "tests", "lanes"),
    [
        ("short", ("test_it.py",), (TEST, TEST_ALL)),
        ("long", ("test_it.py",), (TEST_ALL,)),
        ("long", ("test_it.py::test_long",), (TEST_ALL,)),
        ("untested", ("test_it.py",), ()),
    ],
)
def test_a_lane_notices_what_its_own_tests_notice(copy, name, tests, lanes):
    assert try_defect(seed_defect(name, tests), copy, both=False) == Outcome(name, lanes)
    assert (copy / "src" / "code_of.py").read_text() == CODE


@pytest.mark.slow
def test_a_test_that_fails_without_a_defect_ends_the_measurement(copy):
    (copy / "test_it.py").write_text("def test_long(): assert False\n")
    with pytest.raises(RuntimeError, match="fail with make test-all without a defect; correct them first"):
        try_defect(seed_defect("long"), copy, both=False)


def test_a_measurement_continues_where_it_was_interrupted(tmp_path):
    results = tmp_path / "kind.jsonl"
    results.write_text('{"name": "short", "lanes": ["make test", "make test-all"]}\n')
    known = [Outcome("short", (TEST, TEST_ALL))]
    assert measure([seed_defect("short")], results, jobs=1, both=False) == known


def test_the_share_is_of_what_the_whole_lane_notices():
    outcomes = [
        Outcome("a", (TEST, TEST_ALL)),
        Outcome("b", (TEST_ALL,)),
        Outcome("c", ()),
        Outcome("d", (TEST, TEST_ALL)),
        Outcome("e", (TEST, TEST_ALL)),
    ]
    assert find_share(outcomes) == 0.75
    assert format_row("guards", 1_346, outcomes) == "| guards | 1,346 | 5 | 3 | 4 | 75 % |"
