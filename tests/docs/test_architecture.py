"""ARCHITECTURE.md is true: its picture shows every layer, its concepts and its table lead to code and tests."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "bridle"
PAGE = (ROOT / "ARCHITECTURE.md").read_text()
CONCEPTS = ["context", "compaction", "cache", "calls", "budget", "recovery", "memory", "lineage"]


def rows_of(section: str) -> list[list[str]]:
    body = PAGE.split(f"\n## {section}\n")[1].split("\n## ")[0]
    lines = [line for line in body.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def paths_in(cell: str) -> list[str]:
    return re.findall(r"`((?:[\w.]+/)+[\w.]*)`", cell)


def path_exists(path: str) -> bool:
    return (ROOT / path).exists() or (SOURCE / path).exists()


def test_the_picture_shows_every_layer_once():
    picture = PAGE.split("## Layers")[1].split("```")[1]
    layers = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()}
    assert sorted(re.findall(r"\b(\w+)/", picture)) == sorted(layers)


def test_every_concept_leads_to_its_package():
    rows = rows_of("Eight concepts")
    assert [row[0] for row in rows] == CONCEPTS
    for name, _, code, _ in rows:
        assert paths_in(code), name
        assert all(path_exists(path) for path in paths_in(code)), name


@pytest.mark.parametrize("row", rows_of("Where a new thing goes"), ids=lambda row: row[0])
def test_a_new_thing_has_a_place_and_a_test(row):
    _, edit, test = row
    assert paths_in(edit)
    assert any(path.startswith("tests/") for path in paths_in(test))
    for path in paths_in(edit) + paths_in(test):
        assert path_exists(path), path


@pytest.mark.parametrize("row", rows_of("Where a new thing goes"), ids=lambda row: row[0])
def test_a_table_named_there_is_in_the_file_named_with_it(row):
    for name, path in re.findall(r"`(\w+)` in `([\w/]+\.py)`", row[1]):
        assert re.search(rf"^(class )?{name}\b", (SOURCE / path).read_text(), re.MULTILINE), (
            f"{name} in {path}"
        )
