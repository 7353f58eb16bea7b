"""Layers only point down, `values` and `core` are pure, and no code outside a vendor's folder names the vendor."""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2] / "src" / "bridle"
FILES = sorted(ROOT.rglob("*.py"))

EDGES = {"providers", "tools", "sandbox", "hooks", "stores", "transports", "watchers"}
BELOW = {"values", "ports"}
MAY_IMPORT = {
    "values": {"values"},
    "ports": BELOW,
    "core": {"values", "core"},
    **{edge: BELOW | {edge} for edge in EDGES},
    "toolkit": BELOW | {"tools", "sandbox", "toolkit"},
    "run": BELOW | EDGES | {"core", "run"},
    "serve": BELOW | EDGES | {"core", "run", "config", "serve"},
    "engines": BELOW | EDGES | {"core", "run", "engines"},
    "config": BELOW | EDGES | {"core", "run", "toolkit", "config"},
    "sim": BELOW | EDGES | {"core", "run", "sim"},
    "testing": BELOW | EDGES | {"core", "run", "sim", "testing"},
    "evals": BELOW | EDGES | {"core", "run", "config", "sim", "testing", "toolkit", "evals"},
    "cli": BELOW
    | EDGES
    | {"core", "run", "config", "engines", "evals", "serve", "sim", "testing", "toolkit", "cli"},
}
PURE = {"values", "core"}
PURE_MAY_USE = {
    "binascii", "collections", "dataclasses", "decimal", "difflib", "enum", "functools", "hashlib", "importlib",
    "fnmatch", "itertools", "json", "jsonschema_rs", "math", "msgspec", "operator", "re", "types", "typing",
    "unicodedata",
}  # fmt: skip
READS_FOR_THE_CALLER = {"values/media.py": {"os", "pathlib"}}
"""Files of a pure layer that read a path the caller names, before there is a value; with what they use for it."""
VENDORS = ("anthropic", "claude", "openai", "gpt", "gemini", "bedrock", "deepseek", "kimi", "mistral")
LISTS_OF_FAMILIES = {
    "providers/families.py", "sim/families.py", "testing/wire/reference_replies.py", "testing/wire/canonical_requests.py",
}  # fmt: skip
"""Files whose purpose is to list the wire families."""


def layer_of(path: Path) -> str:
    parts = path.relative_to(ROOT).parts
    return parts[0] if len(parts) > 1 else ""


@cache
def list_imports(path: Path) -> list[tuple[bool, str, int]]:
    """(ours, package, line) of every import: the layer for our own modules, the top-level name for others."""
    here = ("bridle", *path.relative_to(ROOT).parent.parts)
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            base = (node.module or "").split(".") if node.module else []
            target = [*here[: len(here) - node.level + 1], *base] if node.level else base
            if target[0] != "bridle":
                found.append((False, target[0], node.lineno))
            elif len(target) > 1:
                found.append((True, target[1], node.lineno))
            else:
                found += [(True, alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.Import):
            for alias in node.names:
                assert alias.name.split(".")[0] != "bridle", f"{path}:{node.lineno}: write `from bridle…`"
                found.append((False, alias.name.split(".")[0], node.lineno))
    return found


def test_imports_only_point_down():
    wrong = [
        f"{path}:{line} imports from {target}"
        for path in FILES
        if layer_of(path)
        for ours, target, line in list_imports(path)
        if ours and target not in ("__version__", "__loaded_at__", "__file__")
        if target not in MAY_IMPORT[layer_of(path)]
    ]
    assert wrong == []


PURE_FILES = [path for path in FILES if layer_of(path) in PURE]
IMPURE_CALLS = {"open", "print", "input", "id", "hash"}


def test_pure_layers_import_nothing_that_acts():
    wrong = [
        f"{path}:{line} imports {target}"
        for path in PURE_FILES
        for ours, target, line in list_imports(path)
        if not ours
        if target not in PURE_MAY_USE | READS_FOR_THE_CALLER.get(str(path.relative_to(ROOT)), set())
    ]
    assert wrong == []


def test_pure_layers_neither_await_nor_act():
    wrong = [
        f"{path}:{node.lineno}"
        for path in PURE_FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Await | ast.AsyncFunctionDef | ast.AsyncFor | ast.AsyncWith)
        or (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS)
    ]
    assert wrong == []


def code_without_prose(source: str) -> str:
    """The source without comments and docstrings, which may name a vendor."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        node.body = [  # type: ignore[attr-defined]
            statement
            for statement in body
            if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
            and not isinstance(statement, ast.Import | ast.ImportFrom)
        ] or [ast.Pass()]
    return ast.unparse(tree)


def test_no_vendor_is_named_outside_its_own_folder():
    named = [
        f"{place} names {vendor}"
        for path in FILES
        if (place := str(path.relative_to(ROOT))) not in LISTS_OF_FAMILIES
        if list_vendors(path.read_text())
        for vendor in list_vendors(code_without_prose(path.read_text()))
        if vendor not in place
    ]
    assert named == [], "that belongs in a table or in the vendor's folder"


def list_vendors(code: str) -> list[str]:
    return [vendor for vendor in VENDORS if re.search(rf"(?<![a-z]){vendor}", code.lower())]


def test_families_do_not_import_each_other():
    families = {"anthropic", "bedrock", "gemini", "openai_chat", "openai_responses"}
    for layer in ("providers", "sim"):
        for family in families:
            for path in (ROOT / layer / family).glob("*.py"):
                found = re.findall(rf"from bridle\.{layer}\.(\w+)", path.read_text())
                assert not {*found} & families - {family}, f"{path} imports another family"
