"""Figures of the source's structure stay below recorded limits. Lower a limit when a figure falls; never raise one."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULE = runpy.run_path(str(ROOT / "bench" / "structure.py"))
STRUCTURE = MODULE["Structure"]()
LIMITS = {
    "folder": 21,
    "openings": 1.0,
    "persons": 0.12,
    "participles": 0.3,
    "classes": 0,
    "touched": 104,
    "closure": 52,
    "fields": 12,
    "budget": 3,
    "fragments": 0,
    "lines": 124_850,
}


@pytest.fixture(scope="module")
def figures():
    return STRUCTURE.measure()


def test_every_figure_has_a_limit():
    assert {*LIMITS} == {*MODULE["LABELS"]} == {*MODULE["BEFORE"]}


@pytest.mark.parametrize("name", LIMITS)
def test_a_figure_stays_below_its_limit(figures, name):
    listed = getattr(STRUCTURE, f"list_{name}")()[:10]
    assert figures[name] <= LIMITS[name], f"{MODULE['LABELS'][name]}: {listed}"


def test_every_kept_fragment_exists():
    assert {*MODULE["KEPT_FRAGMENTS"]} <= {*STRUCTURE.modules}


@pytest.mark.parametrize("page", ["README.md", "ARCHITECTURE.md", "SECURITY.md", "CONTRIBUTING.md"])
def test_every_path_that_a_page_names_exists(page):
    """Paths in backticks, relative to the repository or to src/bridle."""
    for path in re.findall(r"`((?:[\w.]+/)+[\w.]*)`", (ROOT / page).read_text()):
        places = (ROOT / path, ROOT / "src" / "bridle" / path)
        assert any(place.exists() for place in places), f"{page} names {path}, which does not exist"


def test_the_architecture_claims_no_better_figure_than_measured(figures):
    page = (ROOT / "ARCHITECTURE.md").read_text()
    claims = dict(re.findall(r"^\| (.+?) \| ([\d.,]+) \|$", page, re.MULTILINE))
    for name, label in MODULE["LABELS"].items():
        assert figures[name] <= float(claims[label].replace(",", "")), label
