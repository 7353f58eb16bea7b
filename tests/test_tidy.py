"""The house rules, as tests.  They read source on purpose: they check shape, never behaviour."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "src" / "bridle"
FILES = sorted(ROOT.rglob("*.py"))
IDS = [str(path.relative_to(ROOT)) for path in FILES]

EDGES = {"providers", "tools", "stores", "transports", "watchers"}
BELOW = {"values", "ports"}
MAY_IMPORT = {
    "values": {"values"},
    "ports": BELOW,
    "core": {"values", "core"},
    **{edge: BELOW | {edge} for edge in EDGES},
    "run": BELOW | EDGES | {"core", "run"},
    "sim": BELOW | EDGES | {"core", "run", "sim"},
    "testing": BELOW | EDGES | {"core", "run", "sim", "testing"},
    "cli": BELOW | EDGES | {"core", "run", "sim", "testing", "cli"},
}
PURE = {"values", "core"}
PURE_MAY_USE = {
    "binascii", "collections", "dataclasses", "decimal", "difflib", "enum", "functools", "hashlib", "importlib",
    "fnmatch", "itertools", "json", "jsonschema_rs", "math", "msgspec", "operator", "re", "types", "typing",
    "unicodedata",
}  # fmt: skip
READS_FOR_THE_CALLER = {"values/media_source.py": {"os", "pathlib"}}
"""Files of a pure layer that read something a caller names, before there is a value; with what they use for it."""
VENDORS = ("anthropic", "claude", "openai", "gpt", "gemini", "bedrock", "deepseek", "kimi", "mistral")
BANNED_WORDS = {"TODO": "the feature", "FIXME": "the fix"}
LINES_MAX, FUNCTION_LINES_MAX = 420, 70
BROAD_EXCEPTS = {
    "run/acting.py": "a tool is foreign code",
    "run/audience.py": "a watcher can never change a run",
    "run/catalogue.py": "an index of tools is foreign code",
    "run/gathering.py": "what looks things up is foreign code",
    "run/driver.py": "a failed write kills the driver",
    "run/agent.py": "the type of an answer is foreign code; what it raises is its objection",
    "cli/wire.py": "a codec that raises is a defect to list, not one to stop at",
    "cli/toolfile.py": "a tools file is foreign code",
    "stores/sqlite.py": "what failed in the writer's thread is handed to the caller it belongs to",
    "stores/worker.py": "what failed in the writer's thread is handed to every caller",
    "tools/threads.py": "a worker carries whatever a tool raises to the task that waits",
    "values/text.py": "the message of a foreign exception is foreign code",
}


def ring(path: Path) -> str:
    parts = path.relative_to(ROOT).parts
    return parts[0] if len(parts) > 1 else ""


def imports(path: Path):
    """(package, line) of every import: the ring for our own, the top-level name for others."""
    here = path.relative_to(ROOT).parent.parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            above = here[: len(here) - (node.level - 1)]
            target = (*above, *(node.module or "").split("."))
            names = [alias.name for alias in node.names] if not node.module and not above else [target[0]]
            for name in names:
                yield "own", name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            yield "other", (node.module or "").split(".")[0], node.lineno
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield "other", alias.name.split(".")[0], node.lineno


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_imports_only_point_down(path):
    if not ring(path):
        return
    for kind, target, line in imports(path):
        if kind == "own" and target != "__version__":
            assert target in MAY_IMPORT[ring(path)], f"{path}:{line} reaches up or sideways to {target}"
        assert target != "bridle", f"{path}:{line}: inside the package, import relatively"


@pytest.mark.parametrize("path", [f for f in FILES if ring(f) in PURE], ids=str)
def test_the_core_is_pure(path):
    for kind, target, line in imports(path):
        if kind == "other":
            allowed = PURE_MAY_USE | READS_FOR_THE_CALLER.get(str(path.relative_to(ROOT)), set())
            assert target in allowed, f"{path}:{line} must stay pure but imports {target}"
    for node in ast.walk(ast.parse(path.read_text())):
        assert not isinstance(node, ast.Await | ast.AsyncFunctionDef | ast.AsyncFor | ast.AsyncWith)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in {"open", "print", "input", "id", "hash"}, f"{path}:{node.lineno}"


def code_without_prose(source: str) -> str:
    """The source without comments and docstrings, which may name a vendor."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        node.body = [
            statement
            for statement in body
            if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
        ] or [ast.Pass()]
    return ast.unparse(tree)


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_no_vendor_is_named_outside_its_own_file(path):
    own = {vendor for vendor in VENDORS if vendor in path.stem}
    code = code_without_prose(path.read_text()).lower()
    named = {vendor for vendor in VENDORS if re.search(rf"(?<![a-z]){vendor}", code)}
    assert named <= own, (
        f"{path} names {sorted(named - own)}; that belongs in a table or in the vendor's file"
    )


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_files_and_functions_stay_readable(path):
    source = path.read_text()
    assert source.count("\n") <= LINES_MAX, f"{path} wants a new noun"
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or 0) - node.lineno
            assert length < FUNCTION_LINES_MAX, f"{path}: {node.name} is {length} lines long"
            for inner in ast.walk(node):
                assert not isinstance(inner, ast.Import | ast.ImportFrom), (
                    f"{path}: import inside {node.name}"
                )
    assert not source.strip() or ast.get_docstring(tree), f"{path} does not say what it is for"


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_words_that_hide_what_a_thing_is(path):
    for word, instead in BANNED_WORDS.items():
        assert not re.search(rf"\b{word}\b", path.read_text()), f"{path}: write {instead} instead of {word!r}"


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_broad_excepts_have_a_reason(path):
    if str(path.relative_to(ROOT)) in BROAD_EXCEPTS:
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ExceptHandler):
            names = (
                {part.id for part in ast.walk(node.type) if isinstance(part, ast.Name)} if node.type else {""}
            )
            broad = names & {"Exception", "BaseException", ""}
            reraises = any(isinstance(part, ast.Raise) for part in ast.walk(node))
            assert not broad or reraises, f"{path}:{node.lineno} swallows what it does not know"
