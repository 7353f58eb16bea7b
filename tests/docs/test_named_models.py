"""Every model that the documentation, the examples or a docstring names is in the table of models."""

import re
from pathlib import Path

import pytest

from bridle.providers.tables import load_tables

ROOT = Path(__file__).parents[2]
FILES = sorted(
    path
    for pattern in (
        "*.md",
        "docs/**/*.md",
        "docs/*.toml",
        "examples/**/*",
        "src/bridle/**/*.py",
        "evals/**/*",
    )
    for path in ROOT.glob(pattern)
    if path.suffix in (".md", ".py", ".toml") and "node_modules" not in path.parts
)
TABLES = load_tables()
VENDORS = {name: row for name, row in TABLES.endpoints.items() if row.models and not row.others}
NAMED = re.compile(
    rf"(?:(?<=sim:)|(?<![\w/.:-]))({'|'.join(VENDORS)})[:/]([A-Za-z][A-Za-z0-9._-]*[A-Za-z0-9])"
)
ELSEWHERE = re.compile("gpt-oss-.+")
"""Open models that other endpoints serve under the maker's name."""


def find_unknown_models(text):
    """Names in a text that look like a model of a vendor and are not in the table."""
    found = set()
    for vendor, name in NAMED.findall(text):
        row = VENDORS[vendor]
        groups = [TABLES.model_groups[line] for line in row.models]
        stems = {known.split("-")[0].rstrip("0123456789.") for group in groups for known in group.ids}
        bare = next(
            (name.removeprefix(each) for each in row.prefixes if each and name.startswith(each)), name
        )
        is_model = bare.split("-")[0] in stems and not ELSEWHERE.fullmatch(bare)
        if is_model and TABLES.find_entry(row, name) is None:
            found.add(f"{vendor}:{name}")
    return found


def test_a_model_that_does_not_exist_is_found():
    text = 'chain = ["anthropic:claude-haiku-4-5", "openai:gpt-6.1-mini", "sim:openai/gpt-9"]'
    assert find_unknown_models(text) == {"openai:gpt-6.1-mini", "openai:gpt-9"}


@pytest.mark.parametrize("folder", sorted({path.relative_to(ROOT).parts[0] for path in FILES}))
def test_every_named_model_is_in_the_table(folder):
    unknown = {
        str(path.relative_to(ROOT)): found
        for path in FILES
        if path.relative_to(ROOT).parts[0] == folder
        and (found := find_unknown_models(path.read_text(encoding="utf-8")))
    }
    assert not unknown
