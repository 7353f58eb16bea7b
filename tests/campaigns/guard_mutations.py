"""Disables a guard that is marked in the source, by its position.

A guard is marked by a comment on a line of its own:

    # guard: token-compare
    if not hmac.compare_digest(given, expected):

The marker belongs to the statement, or to the `elif` or `except`, that begins on the next line of code. In a text that
another program reads (JavaScript, or SQL and shell in a string) the marker is a comment of that language and belongs to
the next line. No mutation quotes the text that it replaces: a marked statement can be rewritten and formatted without a
change here, as long as names that the mutation uses remain.

    never                      the condition of the statement is false: that of its first `if`, in the statement or in an
                               expression or comprehension of it
    always                     the same condition is true
    removed                    the statement does nothing
    twice                      the statement is executed twice
    after CODE                 CODE follows the statement
    becomes CODE               CODE stands in place of the statement
    value CODE                 what is returned, assigned, yielded or iterated over is CODE
    plus CODE                  CODE is added to that value
    unwrap NAME [INDEX]        the call of NAME is replaced by its first argument, or by the one at INDEX
    without NAME…              the argument, operand, element or exception that a NAME occurs in is left out
    operand NAME               the operand of `and` or `or` in which NAME occurs is left out
    operator OLD NEW           the first comparison by OLD is one by NEW
    with NAME=CODE             the argument or the entry of a dictionary called NAME is CODE
    argument NAME INDEX CODE   the argument at INDEX of the call of NAME is CODE
    rename OLD NEW             the name or attribute OLD is NEW

A line of another language can be `removed`, `becomes CODE`, or its first condition in parentheses `never` or `always` true.
"""

import ast
import io
import textwrap
import tokenize
from collections.abc import Callable, Iterator, Sequence

Marked = ast.stmt | ast.ExceptHandler


class MutationError(Exception):
    """A marker or a mutation that does not fit the source."""


def mutate(text: str, line: int, mutation: str, *, is_python: bool) -> str:
    """The text of a file with the guard disabled whose marker stands in a line."""
    if is_python and _is_comment(text, line):
        changed = _mutate_statement(text, line, mutation)
        compile(changed, "mutated", "exec")
    else:
        changed = _mutate_line(text, line, mutation)
    if changed == text:
        raise MutationError(f"`{mutation}` changes nothing")
    return changed


def _is_comment(text: str, line: int) -> bool:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return any(token.type == tokenize.COMMENT and token.start[0] == line + 1 for token in tokens)


def _mutate_line(text: str, line: int, mutation: str) -> str:
    """Mutate the line after a marker in a language that is not parsed here."""
    lines = text.split("\n")
    guard = lines[line + 1]
    verb, _, rest = mutation.partition(" ")
    if verb == "removed":
        lines[line + 1] = ""
    elif verb == "becomes":
        lines[line + 1] = rest
    elif verb in ("never", "always"):
        start = guard.index("(")
        lines[line + 1] = (
            guard[:start] + f"({str(verb == 'always').lower()})" + guard[_find_end(guard, start) :]
        )
    else:
        raise MutationError(f"`{verb}` needs a Python statement")
    return "\n".join(lines)


def _find_end(text: str, start: int) -> int:
    """Index after the parenthesis that closes the one at `start`."""
    depth = 0
    for at in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        if depth == 0:
            return at + 1
    raise MutationError("the condition does not end on its line")


def _mutate_statement(text: str, line: int, mutation: str) -> str:
    lines = text.split("\n")
    at = line + 1
    while not lines[at].strip() or lines[at].lstrip().startswith("#"):
        at += 1
    node = _find_statement(ast.parse(text), at + 1)
    start, end = node.lineno - 1, node.end_lineno
    assert end is not None
    head, tail = (
        lines[start].encode()[: node.col_offset].decode(),
        lines[end - 1].encode()[node.end_col_offset :],
    )
    prefix = "el" if lines[start].lstrip().startswith("elif") else ""
    new = prefix + _rewrite(node, mutation)
    new = textwrap.indent(new, " " * node.col_offset).lstrip(" ")
    return "\n".join([*lines[:start], *(head + new + tail.decode()).split("\n"), *lines[end:]])


def _find_statement(tree: ast.Module, line: int) -> Marked:
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt | ast.ExceptHandler) and node.lineno == line:
            return node
    raise MutationError(f"no statement begins in line {line}")


def _rewrite(node: Marked, mutation: str) -> str:
    """The mutated statement as source."""
    verb, _, rest = mutation.partition(" ")
    if verb == "removed":
        return "pass"
    if verb == "becomes":
        return rest
    if verb in ("twice", "after"):
        same = ast.unparse(node)
        return f"{same}\n{rest or same}"
    change = _CHANGES.get(verb)
    if change is None:
        raise MutationError(f"unknown mutation `{verb}`")
    if not change(node, rest):
        raise MutationError(f"`{mutation}` finds nothing to change in line {node.lineno}")
    return ast.unparse(ast.fix_missing_locations(node))


def _walk_head(node: Marked) -> Iterator[ast.AST]:
    """The nodes of a statement without the statements inside it."""
    waiting: list[ast.AST] = [node]
    while waiting:
        current = waiting.pop(0)
        yield current
        waiting += [
            child
            for child in ast.iter_child_nodes(current)
            if not isinstance(child, ast.stmt | ast.ExceptHandler)
        ]


def _set_condition(value: bool) -> Callable[[Marked, str], bool]:
    def change(node: Marked, _: str) -> bool:
        for found in _walk_head(node):
            if isinstance(found, ast.If | ast.While | ast.IfExp):
                found.test = ast.Constant(value)
                return True
            if isinstance(found, ast.comprehension) and found.ifs:
                found.ifs = [ast.Constant(value)]
                return True
        return False

    return change


def _set_value(node: Marked, code: str) -> bool:
    return _change_value(node, lambda _: _parse_expression(code))


def _add_value(node: Marked, code: str) -> bool:
    return _change_value(node, lambda value: ast.BinOp(value, ast.Add(), _parse_expression(code)))


def _change_value(node: Marked, change: Callable[[ast.expr], ast.expr]) -> bool:
    """Change the expression that a statement is about."""
    holder: ast.AST = node
    if isinstance(node, ast.If | ast.While) and isinstance(node.test, ast.NamedExpr):
        holder = node.test
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Yield):
        holder = node.value
    field = "iter" if isinstance(node, ast.For | ast.AsyncFor) else "value"
    old = getattr(holder, field, None)
    if old is None or isinstance(holder, ast.Expr):
        return False
    setattr(holder, field, change(old))
    return True


def _unwrap(node: Marked, rest: str) -> bool:
    name, _, index = rest.partition(" ")

    class Unwrapper(ast.NodeTransformer):
        def visit_Call(self, call: ast.Call) -> ast.AST:
            self.generic_visit(call)
            return call.args[int(index or 0)] if _last_name(call.func) == name else call

    return _transform_head(node, Unwrapper())


def _without(node: Marked, rest: str) -> bool:
    names = rest.split()
    for found in reversed(list(_walk_head(node))):
        for group in _element_lists(found):
            kept = [at for at in range(len(group[0])) if not any(_names(part[at], names) for part in group)]
            left_out = [part[at] for part in group for at in range(len(part)) if at not in kept]
            is_whole = all(any(_names(each, [name]) for each in left_out) for name in names)
            if not is_whole or (isinstance(found, ast.BoolOp) and not kept):
                continue
            for part in group:
                part[:] = [part[at] for at in kept]
            if isinstance(found, ast.BoolOp) and len(kept) == 1:
                _replace_node(node, found, found.values[0])
            return True
        if isinstance(found, ast.BinOp) and isinstance(found.op, ast.BitOr | ast.Add):
            for side, other in ((found.left, found.right), (found.right, found.left)):
                if _last_name(side) in names:
                    _replace_node(node, found, other)
                    return True
    return False


def _without_operand(node: Marked, name: str) -> bool:
    for found in reversed(list(_walk_head(node))):
        if isinstance(found, ast.BoolOp):
            kept = [each for each in found.values if not _names(each, [name])]
            if 0 < len(kept) < len(found.values):
                found.values = kept
                if len(kept) == 1:
                    _replace_node(node, found, kept[0])
                return True
    return False


def _set_operator(node: Marked, rest: str) -> bool:
    old, new = (_parse_operator(each) for each in rest.split())
    for found in _walk_head(node):
        if isinstance(found, ast.Compare):
            for at, operator in enumerate(found.ops):
                if type(operator) is type(old):
                    found.ops[at] = new
                    return True
    return False


def _parse_operator(symbol: str) -> ast.cmpop:
    comparison = _parse_expression(f"a {symbol} b")
    assert isinstance(comparison, ast.Compare)
    return comparison.ops[0]


def _element_lists(node: ast.AST) -> list[list[list[ast.AST]]]:
    """Lists of a node whose elements can be left out; the lists of one group lose the same indexes."""
    if isinstance(node, ast.BoolOp):
        return [[node.values]]  # type: ignore[list-item]
    if isinstance(node, ast.Call):
        return [[node.keywords], [node.args]]  # type: ignore[list-item]
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return [[node.elts]]  # type: ignore[list-item]
    if isinstance(node, ast.Dict):
        return [[node.keys, node.values]]  # type: ignore[list-item]
    return []


def _names(node: ast.AST | None, names: Sequence[str]) -> bool:
    """If a part is meant by one of the names: a keyword, a string or an expression in which the name occurs."""
    if node is None:
        return False
    if isinstance(node, ast.keyword):
        return node.arg in names
    return any(
        (isinstance(part, ast.Constant) and part.value in names) or _last_name(part) in names
        for part in ast.walk(node)
    )


def _set_argument(node: Marked, rest: str) -> bool:
    name, index, code = rest.split(" ", 2)
    for found in _walk_head(node):
        if isinstance(found, ast.Call) and _last_name(found.func) == name and len(found.args) > int(index):
            found.args[int(index)] = _parse_expression(code)
            return True
    return False


def _set_named(node: Marked, rest: str) -> bool:
    name, _, code = rest.partition("=")
    for found in _walk_head(node):
        if isinstance(found, ast.keyword) and found.arg == name:
            found.value = _parse_expression(code)
            return True
        if isinstance(found, ast.Dict):
            for at, key in enumerate(found.keys):
                if isinstance(key, ast.Constant) and key.value == name:
                    found.values[at] = _parse_expression(code)
                    return True
    return False


def _rename(node: Marked, rest: str) -> bool:
    old, _, new = rest.partition(" ")
    is_changed = False
    for found in _walk_head(node):
        if isinstance(found, ast.Name) and found.id == old:
            found.id, is_changed = new, True
        elif isinstance(found, ast.Attribute) and found.attr == old:
            found.attr, is_changed = new, True
    return is_changed


def _parse_expression(code: str) -> ast.expr:
    return ast.parse(code, mode="eval").body


def _last_name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _replace_node(within: ast.AST, old: ast.AST, new: ast.AST) -> None:
    class Replacer(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            return new if node is old else self.generic_visit(node)

    Replacer().visit(within)


def _transform_head(node: Marked, transformer: ast.NodeTransformer) -> bool:
    """Transform a statement, but not the statements inside it."""
    before = ast.dump(node)
    for field, value in ast.iter_fields(node):
        if isinstance(value, ast.expr):
            setattr(node, field, transformer.visit(value))
        elif isinstance(value, list):
            setattr(
                node,
                field,
                [
                    each if isinstance(each, ast.stmt | ast.ExceptHandler) else transformer.visit(each)
                    for each in value
                ],
            )
    return ast.dump(node) != before


_CHANGES: dict[str, Callable[[Marked, str], bool]] = {
    "never": _set_condition(False),
    "always": _set_condition(True),
    "value": _set_value,
    "plus": _add_value,
    "argument": _set_argument,
    "unwrap": _unwrap,
    "without": _without,
    "operand": _without_operand,
    "operator": _set_operator,
    "with": _set_named,
    "rename": _rename,
}
