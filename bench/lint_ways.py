"""Compares three ways to find volatile prompts on the examples of tests/cli/test_lint.py.

    python bench/lint_ways.py            reading with data flow, and syntax alone: a second
    python bench/lint_ways.py --load     also loading each example again and again: minutes

"Syntax" reports a volatile call that stands inside the arguments of an agent or a tool, and follows nothing.
docs/decisions/0010-lint-data-flow.md has the figures and what followed from them.
"""

import ast
import os
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from bridle.cli.linting import sources
from bridle.cli.linting.load_findings import compare_loads
from bridle.cli.linting.module_index import ModuleIndex
from bridle.cli.linting.static_findings import read_findings
from tests.cli.lint_samples import CLEAN, HEAD, OFFENDING

MAKERS = {"Agent", "tool", "RawTool", "TypedTool", "CommandTool"}
PLACES = {"instructions", "tools", "output", "name", "description", "schema", "parameters"}


def find_by_syntax(code: str) -> set[str]:
    """Rules that a volatile expression in the arguments of an agent or a tool is against."""
    tree = ast.parse(code)
    names = dict(_list_imports(tree))
    return {rule for place in _list_prompt_places(tree, names) for rule in _list_volatile(place, names)}


def _list_imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.asname or alias.name, alias.name
        elif isinstance(node, ast.ImportFrom):
            yield from ((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)


def _full_name(node: ast.AST, names: dict[str, str]) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_full_name(node.value, names)}.{node.attr}"
    return names.get(node.id, node.id) if isinstance(node, ast.Name) else ""


def _list_prompt_places(tree: ast.Module, names: dict[str, str]) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            maker = _full_name(node.func, names).rpartition(".")[2]
            if maker in MAKERS:
                yield from (word.value for word in node.keywords if word.arg in PLACES)
                yield from node.args if maker not in ("Agent", "tool") else ()
        elif isinstance(node, ast.FunctionDef):
            marks = [mark.func if isinstance(mark, ast.Call) else mark for mark in node.decorator_list]
            if any(_full_name(mark, names).endswith("tool") for mark in marks):
                yield from node.args.defaults
                yield from (arg.annotation for arg in node.args.args if arg.annotation)


def _list_volatile(place: ast.AST, names: dict[str, str]) -> Iterator[str]:
    nodes = [*ast.walk(place)]
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    ordering = [call for call in calls if _full_name(call.func, names) in sources.ORDERING_CALLS]
    ordered = {id(part) for call in ordering for part in ast.walk(call)}
    for node in nodes:
        rule = ""
        if isinstance(node, ast.Call):
            name = _full_name(node.func, names)
            is_set = name in sources.SET_CALLS and node.args
            rule = sources.find_call_rule(name, node, seeded=False) or ("unordered" if is_set else "")
        elif isinstance(node, ast.Attribute | ast.Name):
            rule = sources.find_value_rule(_full_name(node, names))
        elif isinstance(node, ast.SetComp) or (isinstance(node, ast.Set) and sources.is_unordered(node)):
            rule = "unordered"
        if rule and not (rule == "unordered" and id(node) in ordered):
            yield rule


def find_by_flow(code: str) -> set[str]:
    Path("app.py").write_text(code)
    return {finding.rule for finding in read_findings(Path("app.py"), ModuleIndex()).findings}


def find_by_loading(code: str) -> set[str]:
    Path("app.py").write_text(code)
    return {finding.rule for finding in compare_loads("app.py", os.environ, lambda words: None).findings}


def main() -> None:
    ways = {"data flow": find_by_flow, "syntax": find_by_syntax}
    if "--load" in sys.argv:
        ways["loading"] = find_by_loading
    top = [f"{HEAD}\n{code}\n" for codes in OFFENDING.values() for code in codes]
    inside = [
        f"{HEAD}\ndef build():\n{textwrap.indent(code, '    ')}\n    return locals()\n"
        for codes in OFFENDING.values()
        for code in codes
    ]
    clean = [f"{HEAD}\n{code}\n" for codes in CLEAN.values() for code in codes]
    print(f"{'':12}{'volatile':>12}{'in a function':>16}{'steady':>10}")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for name in ("a.md", "b.md", "s.md"):
            Path(name).write_text("Be kind.\n")
        for name, find in ways.items():
            found = [
                f"{sum(bool(find(code)) for code in codes)}/{len(codes)}" for codes in (top, inside, clean)
            ]
            print(f"{name:12}{found[0]:>12}{found[1]:>16}{found[2]:>10}")
        os.chdir(ROOT)


if __name__ == "__main__":
    main()
