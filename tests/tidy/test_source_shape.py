"""Rules for source files: imports, exceptions, docstrings, forbidden words."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "src" / "bridle"
FILES = sorted(ROOT.rglob("*.py"))
IDS = [str(path.relative_to(ROOT)) for path in FILES]
FORBIDDEN = ("TODO", "FIXME")
REASON = re.compile(r"# noqa: BLE001 - \w")
"""Why an exception of any kind is caught and not raised again: beside the `except`, where the linter asks for it."""


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_a_file_has_a_docstring_and_imports_at_its_top(path):
    source = path.read_text()
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for inner in ast.walk(node):
                assert not isinstance(inner, ast.Import | ast.ImportFrom), (
                    f"{path}: import inside {node.name}"
                )
    assert not source.strip() or ast.get_docstring(tree), f"{path} has no docstring that says what it is for"


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_nothing_is_left_to_do(path):
    for word in FORBIDDEN:
        assert not re.search(rf"\b{word}\b", path.read_text()), f"{path}: {word}"


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_broad_excepts_have_a_reason(path):
    source = path.read_text()
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ExceptHandler):
            names = (
                {part.id for part in ast.walk(node.type) if isinstance(part, ast.Name)} if node.type else {""}
            )
            broad = names & {"Exception", "BaseException", ""}
            reraises = any(isinstance(part, ast.Raise) for part in ast.walk(node))
            assert not broad or reraises or REASON.search(lines[node.lineno - 1]), (
                f"{path}:{node.lineno} swallows exceptions it does not know: raise them, or give the reason in `# noqa: BLE001 - …`"
            )
