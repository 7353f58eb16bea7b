"""SECURITY.md begins with how to report, its paths exist, and the table of guards has every source that it distrusts."""

import re
from pathlib import Path

import pytest

from docs.guard_table import BOUNDARIES

ROOT = Path(__file__).parents[2]
PAGES = ["SECURITY.md", "docs/security/threat_model.md", "docs/guards.md"]
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


def test_the_page_begins_with_how_to_report():
    headings = re.findall("^## (.+)$", (ROOT / "SECURITY.md").read_text(), re.MULTILINE)
    assert headings[:2] == ["Report a vulnerability", "Supported versions"]


@pytest.mark.parametrize("page", PAGES)
def test_every_path_anywhere_on_the_page_exists(page):
    paths = re.findall(r"(?<![\w/])(?:src|tests|docs)/[\w./]+\w", (ROOT / page).read_text())
    assert all((ROOT / path).exists() for path in paths), [
        path for path in paths if not (ROOT / path).exists()
    ]


@pytest.mark.parametrize("source", SOURCES)
def test_every_source_that_is_not_trusted_is_in_the_table(source):
    assert any(boundary.source == source for boundary in BOUNDARIES)
    assert f"\n| {source} |" in (ROOT / "docs" / "guards.md").read_text()


@pytest.mark.parametrize("boundary", BOUNDARIES, ids=lambda each: f"{each.source}: {each.risk}")
def test_every_boundary_has_a_guard_and_every_guard_a_test(boundary):
    assert boundary.guards
    assert all(guard.tests for guard in boundary.guards)


def test_no_guard_needs_recorded_traffic_for_its_test():
    """The recordings are not part of the project, and a test of a guard must run in every clone."""
    files = {test.partition("::")[0] for each in BOUNDARIES for guard in each.guards for test in guard.tests}
    assert (
        files and [file for file in files if "needs_recordings" in (ROOT / "tests" / file).read_text()] == []
    )


@pytest.mark.parametrize("page", ["README.md", "ARCHITECTURE.md"])
def test_the_page_is_found(page):
    assert "(SECURITY.md)" in (ROOT / page).read_text()
