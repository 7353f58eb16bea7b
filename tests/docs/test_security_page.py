"""SECURITY.md is true: every guard and every test it names is there, and every source it distrusts has both."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "SECURITY.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in PAGE.splitlines()
    if line.startswith(("| a", "| the "))
]
SOURCES = [
    "a model",
    "a tool's result",
    "an MCP server",
    "a provider's bytes",
    "a log from elsewhere",
    "a session id",
    "another tenant",
    "a terminal",
]


def named(text):
    return re.findall(r"`([^`]+)`", text)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}: {row[1]}")
def test_every_boundary_has_a_guard_and_a_test_that_exist(row):
    _, _, guards, tests = row
    assert named(guards)
    assert named(tests)
    for guard in named(guards):
        assert (ROOT / guard).is_file(), guard
    for test in named(tests):
        file, _, name = test.partition("::")
        assert re.search(rf"^(?:async )?def {name}\(", (ROOT / file).read_text(), re.MULTILINE), test


def test_every_path_anywhere_on_the_page_exists():
    paths = re.findall(r"\b(?:src|tests|docs)/[\w./]+\w", PAGE)
    assert paths
    for path in paths:
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize("source", SOURCES)
def test_every_source_that_is_not_trusted_is_in_the_table(source):
    assert any(row[0] == source for row in ROWS)


@pytest.mark.parametrize("page", ["README.md", "ARCHITECTURE.md"])
def test_the_page_is_found(page):
    assert "(SECURITY.md)" in (ROOT / page).read_text()


def test_no_address_is_on_the_page():
    assert "@" not in PAGE
    assert "://" not in PAGE
