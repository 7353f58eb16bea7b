"""The table of limits of data from outside names constants and tests that exist."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from docs.input_limits import INPUT_LIMITS

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "bridle"
LIMIT_NAME = re.compile(
    r"(^|_)(BYTES|CHARACTERS|CHARS|LENGTH|ITEMS|KEYS|HEADERS|MESSAGES|PARTS|VALUES|RECORDS|DIGITS|BITS|NESTING"
    r"|REFERENCES|REQUESTS|STREAMS|PAGES|SECONDS)_MAX$"
)
"""Names of limits of sizes, of numbers of things in data, and of times."""
MARKER = re.compile(r"# not from outside: \w+ .*\w")
"""Comment above a limit whose data do not come from outside; it says whose they are."""


def list_limits(text: str) -> Iterator[tuple[str, bool]]:
    """The constants of a module that are named as limits, and whether each is marked as none of data from outside."""
    lines = text.splitlines()
    for statement in ast.parse(text).body:
        targets: list[ast.expr] = []
        if isinstance(statement, ast.Assign):
            targets = statement.targets
        elif isinstance(statement, ast.AnnAssign):
            targets = [statement.target]
        names = [
            name.id
            for target in targets
            for name in (target.elts if isinstance(target, ast.Tuple) else [target])
            if isinstance(name, ast.Name)
        ]
        is_marked = MARKER.fullmatch(lines[statement.lineno - 2]) is not None
        yield from ((name, is_marked) for name in names if LIMIT_NAME.search(name))


@cache
def list_tests(file):
    """The names of the test functions of a file."""
    tree = ast.parse((ROOT / "tests" / file).read_text())
    return {each.name for each in tree.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("row", INPUT_LIMITS, ids=lambda row: row.entry)
def test_a_limit_exists_and_its_test_names_it(row):
    assert 0 < row.value < float("inf")
    file, _, name = row.test.partition("::")
    assert name.startswith("test_") and name in list_tests(file)


def test_an_entry_is_listed_once():
    entries = [row.entry for row in INPUT_LIMITS]
    assert len(entries) == len({*entries})


def test_every_limit_is_in_the_table_or_says_whose_data_it_limits():
    listed = {row.constant for row in INPUT_LIMITS}
    missing, both = [], []
    for path in sorted(SOURCE.rglob("*.py")):
        module = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        for name, is_marked in list_limits(path.read_text(encoding="utf-8")):
            constant = f"{module}.{name}"
            if constant in listed and is_marked:
                both.append(constant)
            elif constant not in listed and not is_marked:
                missing.append(constant)
    assert not both, f"in docs/input_limits.py and marked `# not from outside`: {both}"
    assert not missing, (
        f"{missing}: add a row with a test to docs/input_limits.py, or say above the constant whose data it limits,"
        " with `# not from outside: …`"
    )


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("BODY_BYTES_MAX = 3", [("BODY_BYTES_MAX", False)]),
        ("A, BODY_BYTES_MAX = 1, 3", [("BODY_BYTES_MAX", False)]),
        ("BITS_MAX: int = 3", [("BITS_MAX", False)]),
        ("# not from outside: our notes\nBODY_BYTES_MAX = 3", [("BODY_BYTES_MAX", True)]),
        ("# not from outside:\nBODY_BYTES_MAX = 3", [("BODY_BYTES_MAX", False)]),
        ("BYTES = 3\nSOMETHING_MAX = 4", []),
    ],
)
def test_limits_of_a_module_are_found(text, found):
    assert [*list_limits(text)] == found
