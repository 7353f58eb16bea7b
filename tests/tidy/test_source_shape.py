"""Rules for source files: imports, exceptions, docstrings, forbidden words."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "src" / "bridle"
FILES = sorted(ROOT.rglob("*.py"))
LEFT_TO_DO = re.compile(r"\b(TODO|FIXME)\b")
REASON = re.compile(r"# noqa: BLE001 - \w")
"""Why an exception of any kind is caught and not raised again: beside the `except`, where the linter asks for it."""
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
IMPORTS = ast.Import | ast.ImportFrom


@pytest.mark.parametrize("folder", sorted({path.relative_to(ROOT).parts[0] for path in FILES}))
def test_files_keep_the_rules(folder):
    files = [path for path in FILES if path.relative_to(ROOT).parts[0] == folder]
    assert [broken for path in files for broken in list_broken_rules(path)] == []


def list_broken_rules(path):
    source = path.read_text()
    tree = ast.parse(source)
    if source.strip() and not ast.get_docstring(tree):
        yield f"{path} has no docstring that says what it is for"
    if LEFT_TO_DO.search(source):
        yield f"{path} leaves something to do"
    lines = source.splitlines()
    for node in ast.walk(tree):
        if isinstance(node, FUNCTIONS) and any(isinstance(inner, IMPORTS) for inner in ast.walk(node)):
            yield f"{path}:{node.lineno} imports inside a function"
        if (
            isinstance(node, ast.ExceptHandler)
            and is_broad(node)
            and not REASON.search(lines[node.lineno - 1])
        ):
            yield f"{path}:{node.lineno} swallows exceptions: raise them, or give the reason in `# noqa: BLE001 - …`"


def is_broad(handler):
    """Whether an `except` catches exceptions of any kind and raises none."""
    named = (
        {part.id for part in ast.walk(handler.type) if isinstance(part, ast.Name)} if handler.type else {""}
    )
    reraises = any(isinstance(part, ast.Raise) for part in ast.walk(handler))
    return bool(named & {"Exception", "BaseException", ""}) and not reraises
