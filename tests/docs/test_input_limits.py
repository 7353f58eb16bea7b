"""The table of limits of data from outside names constants and tests that exist."""

import ast
from functools import cache
from pathlib import Path

import pytest

from docs.input_limits import INPUT_LIMITS

ROOT = Path(__file__).parents[2]


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
