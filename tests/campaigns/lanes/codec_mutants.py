"""Defects in the codecs of providers: one expression of their source is changed, found by its position.

    compare    a comparison is turned into its opposite
    constant   a number or a truth value is another one
    key        a string that is looked up or written as a key is another one
    branch     the condition of an `if` is false
    operand    the last operand of `and` or `or` is left out

No defect quotes the source: rewritten codecs have other defects, and as many. Type annotations, strings of messages and
declarations of fields stay as they are. `measure_lanes.py` plants the defects and runs the tests.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[3]
CODECS = ROOT / "src" / "bridle" / "providers"
OPPOSITES: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
KEY_CALLS = {"get", "pop", "setdefault"}


class Change(NamedTuple):
    """An expression of a file, and what stands there with the defect."""

    path: Path
    kind: str
    node: ast.expr
    new: str

    @property
    def name(self) -> str:
        place = self.path.relative_to(CODECS).as_posix()
        return f"{place}:{self.node.lineno}:{self.node.col_offset} {self.kind} {self.new}"


def list_changes(folder: Path = CODECS) -> list[Change]:
    """Every defect that can be planted in the codecs and in what they share, in the order of the source."""
    folders = {path.parent for path in folder.glob("*/codec.py")} | {folder / "wire"}
    return [
        Change(path, *found)
        for path in sorted(path for each in folders for path in each.glob("*.py"))
        for found in find_changes(ast.parse(path.read_text(encoding="utf-8")))
    ]


def apply_change(change: Change, text: str) -> str:
    """The text of the file with the defect."""
    lines = text.encode().splitlines(keepends=True)
    node = change.node
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    before = b"".join(lines[: node.lineno - 1]) + lines[node.lineno - 1][: node.col_offset]
    after = lines[node.end_lineno - 1][node.end_col_offset :] + b"".join(lines[node.end_lineno :])
    changed = (before + change.new.encode() + after).decode()
    compile(changed, change.path.name, "exec")
    return changed


def find_changes(tree: ast.AST) -> Iterator[tuple[str, ast.expr, str]]:
    """What can be changed below a node, without annotations, f-strings and the texts of errors."""
    for node in _walk_code(tree):
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            opposite = ast.Compare(node.left, [OPPOSITES[type(node.ops[0])]()], node.comparators)
            yield "compare", node, f"({ast.unparse(opposite)})"
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
            yield "constant", node, str(not node.value)
        elif isinstance(node, ast.Constant) and isinstance(node.value, int):
            yield "constant", node, str(node.value + 1)
        elif isinstance(node, ast.BoolOp):
            kept = node.values[:-1]
            rest = kept[0] if len(kept) == 1 else ast.BoolOp(node.op, kept)
            yield "operand", node, f"({ast.unparse(rest)})"
        elif isinstance(node, ast.If | ast.IfExp):
            yield "branch", node.test, "False"
        for key in _find_keys(node):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield "key", key, repr(key.value + "_")


def _find_keys(node: ast.AST) -> list[ast.expr | None]:
    if isinstance(node, ast.Subscript):
        return [node.slice]
    if isinstance(node, ast.Dict):
        return [*node.keys]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in KEY_CALLS:
        return [*node.args[:1]]
    return []


def _walk_code(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns") or isinstance(node, ast.JoinedStr | ast.Raise):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _walk_code(child)
