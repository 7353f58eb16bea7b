"""The public names: listed once, all there, and importing them does nothing."""

import ast
import re
import subprocess
import sys
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest

import bridle
from tests.suite.public_names import MODULES, PUBLIC

SOURCE = Path(bridle.__file__).parent
NAMES_MAX = 60
"""Names that a newcomer meets at the top."""
IMPORT = re.compile(r"^\s*(?:from (bridle[\w.]*) import|import (bridle[\w.]*))", re.MULTILINE)
LISTED = [("bridle", name) for name in bridle.__all__] + [
    (module, name)
    for module in sorted(PUBLIC)
    for name in getattr(import_module(module), "__all__", ())
    if module != "bridle"
]


def list_declared(module):
    path = SOURCE.joinpath(*module.split(".")[1:])
    tree = ast.parse((path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text())
    return {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").startswith("bridle."))
        for alias in node.names
    }


@pytest.mark.parametrize(("module", "name"), LISTED)
def test_every_listed_name_exists(module, name):
    assert getattr(import_module(module), name) is not None


@pytest.mark.parametrize("module", ["bridle", "bridle.errors", "bridle.events", "bridle.memory", "bridle.messages",
                                    "bridle.sessions", "bridle.tools", "bridle.watchers"])  # fmt: skip
def test_the_checker_and_the_program_see_the_same_names(module):
    assert list_declared(module) == set(import_module(module).__all__)


def test_a_name_is_public_in_one_place():
    found = Counter(
        name for module, name in LISTED if module not in ("bridle.toolkit", "bridle.tools", "bridle.mcp")
    )
    assert [name for name, count in found.items() if count > 1] == []


def test_few_names_are_at_the_top():
    assert len(bridle.__all__) <= NAMES_MAX
    assert set(dir(bridle)) == {*bridle.__all__, *MODULES, "__version__"}


@pytest.mark.parametrize("folder", ["docs", "examples", "."])
def test_pages_and_examples_import_public_names_only(folder):
    root = SOURCE.parents[1]
    pages = (
        root.glob("*.md")
        if folder == "."
        else [*(root / folder).rglob("*.md"), *(root / folder).rglob("*.py")]
    )
    wrong = [
        f"{page.relative_to(root)}: {found}"
        for page in pages
        if folder != "docs" or page.suffix == ".md"
        for both in IMPORT.findall(page.read_text())
        if (found := both[0] or both[1]) not in PUBLIC
    ]
    assert wrong == []


def test_the_contract_of_names():
    promised = {
        "Agent", "Budget", "tool", "Transcript", "Message", "ToolCall", "ToolResult", "Reasoning",
        "FinalAnswer", "Usage",
    }  # fmt: skip
    assert promised <= set(bridle.__all__)


def test_importing_does_nothing():
    script = "import sys, bridle; print(sorted(m for m in sys.modules if m.split('.')[0] in %r))"
    heavy = ("asyncio", "aiohttp", "msgspec", "jsonschema_rs", "sqlite3", "pydantic")
    seen = subprocess.run(
        [sys.executable, "-c", script % (heavy,)], capture_output=True, text=True, check=True
    )
    assert seen.stdout.strip() == "[]"


def test_an_agent_needs_no_client_until_it_talks():
    script = (
        "import sys; from bridle import Agent, Budget, tool; Agent('sim:');"
        "print([m for m in ('aiohttp', 'sqlite3', 'pydantic', 'jsonschema_rs') if m in sys.modules])"
    )
    seen = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert seen.stdout.strip() == "[]"
