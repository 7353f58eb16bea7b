"""Parses a Python file into scopes: names and their bindings, for the module and for each function.

Nothing is run.  A name may be bound many times; a read sees the last binding that certainly happened, and those
that may have been added after it.
"""

import ast
import io
import tokenize
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from bridle.values.errors import MisuseError

from .rules import find_rule_name

ALLOW_COMMENT = "bridle: stable"
ADDING_METHODS = {
    "append",
    "extend",
    "insert",
    "add",
    "update",
    "write",
    "writelines",
    "setdefault",
    "appendleft",
}
"""Methods that add their arguments to the object."""
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
END_OF_FILE = (1_000_000_000, 0)


class NameBinding(NamedTuple):
    """The value bound to a name: an expression, an item of an expression, a definition, or an import."""

    kind: str
    """value, item, function, class or import"""
    node: ast.AST
    at: tuple[int, int]
    is_certain: bool
    """True if it certainly replaces all earlier bindings."""
    target: str = ""
    """For an import, the qualified name."""


@dataclass(eq=False)
class NameScope:
    module: "ParsedModule"
    node: ast.AST
    parent: "NameScope | None" = None
    owner: "NameScope | None" = None
    """The class a function is a method of."""
    bindings: dict[str, list[NameBinding]] = field(default_factory=dict)
    parameters: tuple[str, ...] = ()

    @cached_property
    def returned_values(self) -> list[ast.expr]:
        """The expressions that a function returns or yields."""
        ends = (
            part for part in _own_nodes(self.node) if isinstance(part, ast.Return | ast.Yield | ast.YieldFrom)
        )
        return [end.value for end in ends if end.value is not None]

    def find_bindings(self, name: str, at: tuple[int, int]) -> list[NameBinding]:
        """The bindings that a read of the name at this position may see."""
        met: list[NameBinding] = []
        for binding in reversed([b for b in self.bindings.get(name, ()) if b.at < at]):
            met.append(binding)
            if binding.is_certain:
                break
        return met

    def bind(self, name: str, binding: NameBinding) -> None:
        self.bindings.setdefault(name, []).append(binding)


@dataclass(eq=False)
class ParsedModule:
    path: Path
    tree: ast.Module
    allowed: dict[int, frozenset[str]]
    """The rules allowed on each line; an empty set allows all."""
    top: NameScope = field(init=False)
    scopes: dict[ast.AST, NameScope] = field(default_factory=dict)
    calls: list[tuple[ast.Call, NameScope]] = field(default_factory=list)
    _by_name: dict[str, list[tuple[ast.Call, NameScope]]] = field(default_factory=dict)
    functions: list[tuple[ast.FunctionDef | ast.AsyncFunctionDef, NameScope]] = field(default_factory=list)

    def find_calls(self, name: str) -> Sequence[tuple[ast.Call, NameScope]]:
        """All calls of functions and methods with this name."""
        if not self._by_name:
            for call, scope in self.calls:
                last = (
                    call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
                )
                self._by_name.setdefault(last, []).append((call, scope))
        return self._by_name.get(name, ())

    def allows(self, rule: str, first: int, last: int) -> bool:
        for line in range(first, last + 1):
            names = self.allowed.get(line)
            if names is not None and (not names or rule in names):
                return True
        return False


def read_module(path: Path) -> ParsedModule:
    """Parse a file; raises `MisuseError` if it is not valid Python."""
    try:
        with tokenize.open(path) as file:
            source = file.read()
        tree = ast.parse(source, str(path))
    except OSError as error:
        raise MisuseError(f"{path} cannot be read: {error.strerror or error}") from None
    except SyntaxError as error:
        place = f", line {error.lineno}" if error.lineno else ""
        raise MisuseError(f"{path}{place}: {error.msg}") from None
    except ValueError as error:
        raise MisuseError(f"{path} is not valid Python: {error}") from None
    module = ParsedModule(path, tree, _read_allow_comments(source))
    module.top = NameScope(module, tree)
    module.scopes[tree] = module.top
    _ScopeReader(module.top).read(tree.body)
    return module


def _read_allow_comments(source: str) -> dict[int, frozenset[str]]:
    found: dict[int, frozenset[str]] = {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and ALLOW_COMMENT in token.string:
            after = token.string.partition(ALLOW_COMMENT)[2]
            words = after[1:].partition("]")[0] if after.startswith("[") else ""
            rules = frozenset(find_rule_name(word.strip()) for word in words.split(",") if word.strip())
            found[token.start[0]] = rules
    return found


class _ScopeReader:
    """Reads one scope; nested functions and classes become separate scopes."""

    def __init__(self, scope: NameScope) -> None:
        self._scope = scope
        self._depth = 0
        self._globals: set[str] = set()

    def read(self, nodes: Iterable[ast.AST]) -> None:
        """Visit nodes in order, without recursion: long prompts may be concatenated from very many parts."""
        waiting = [*nodes][::-1]
        while waiting:
            node = waiting.pop()
            reader = NODE_READERS.get(type(node))
            if reader is not None:
                reader(self, node)
            else:
                waiting.extend([*ast.iter_child_nodes(node)][::-1])

    def read_children(self, node: ast.AST) -> None:
        self.read(ast.iter_child_nodes(node))

    def _bind(
        self, name: str, kind: str, node: ast.AST, where: ast.AST, *, surely: bool = True, target: str = ""
    ) -> None:
        at = (getattr(where, "end_lineno", 0), getattr(where, "end_col_offset", 0))
        binding = NameBinding(kind, node, at, surely and not self._depth, target)
        self._scope.bind(name, binding)
        if name in self._globals:
            self._scope.module.top.bind(name, binding._replace(is_certain=False))

    def _assign(self, target: ast.AST, value: ast.AST, where: ast.AST, kind: str = "value") -> None:
        if isinstance(target, ast.Name):
            self._bind(target.id, kind, value, where)
        elif isinstance(target, ast.Starred):
            self._assign(target.value, value, where, kind)
        elif isinstance(target, ast.Tuple | ast.List):
            items = value.elts if isinstance(value, ast.Tuple | ast.List) else []
            fits = len(items) == len(target.elts) and kind == "value"
            for at, part in enumerate(target.elts):
                self._assign(part, items[at] if fits else value, where, kind)
        elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
            self._bind(target.value.id, kind, value, where, surely=False)
        elif isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
            owner = self._scope.owner
            if target.value.id == "self" and owner is not None:
                method = getattr(self._scope.node, "name", "")
                owner.bind(target.attr, NameBinding(kind, value, (0, 0), is_certain=False, target=method))

    def assignment(self, node: ast.Assign) -> None:
        self.read_children(node)
        for target in node.targets:
            self._assign(target, node.value, node)

    def typed_assignment(self, node: ast.AnnAssign | ast.NamedExpr) -> None:
        self.read_children(node)
        if node.value is not None:
            self._assign(node.target, node.value, node)

    def addition(self, node: ast.AugAssign) -> None:
        self.read_children(node)
        if isinstance(node.target, ast.Name):
            self._bind(node.target.id, "value", node.value, node, surely=False)

    def statement(self, node: ast.Expr) -> None:
        self.read_children(node)
        call = node.value
        method = call.func if isinstance(call, ast.Call) else None
        if isinstance(call, ast.Call) and isinstance(method, ast.Attribute) and method.attr in ADDING_METHODS:
            for given in (*call.args, *(word.value for word in call.keywords)):
                if isinstance(method.value, ast.Name):
                    self._bind(method.value.id, "value", given, node, surely=False)

    def loop(self, node: ast.For | ast.AsyncFor) -> None:
        self.read([node.iter])
        self._depth += 1
        self._assign(node.target, node.iter, node.iter, "item")
        self.read([*node.body, *node.orelse])
        self._depth -= 1

    def read_conditional(self, node: ast.AST) -> None:
        self._depth += 1
        self.read_children(node)
        self._depth -= 1

    def context(self, node: ast.With | ast.AsyncWith) -> None:
        for item in node.items:
            self.read([item.context_expr])
            if item.optional_vars is not None:
                self._assign(item.optional_vars, item.context_expr, item.context_expr)
        self.read(node.body)

    def globals_named(self, node: ast.Global) -> None:
        self._globals.update(node.names)

    def imports(self, node: ast.Import) -> None:
        for alias in node.names:
            name = alias.asname or alias.name.partition(".")[0]
            self._bind(name, "import", node, node, target=alias.name if alias.asname else name)

    def imports_from(self, node: ast.ImportFrom) -> None:
        full = f"{'.' * node.level}{node.module or ''}"
        dot = "" if full.endswith(".") else "."
        for alias in node.names:
            self._bind(alias.asname or alias.name, "import", node, node, target=f"{full}{dot}{alias.name}")

    def function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._bind(node.name, "function", node, node)
        self._scope.module.functions.append((node, self._scope))
        self.read(node.decorator_list)
        self.read([node.args])
        self._open(node, node.body)

    def short_function(self, node: ast.Lambda) -> None:
        self._open(node, [node.body])

    def _open(self, node: FunctionNode, body: Iterable[ast.AST]) -> None:
        args = node.args
        named = (*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg)
        names = tuple(arg.arg for arg in named if arg is not None)
        owner = self._scope if isinstance(self._scope.node, ast.ClassDef) else self._scope.owner
        scope = NameScope(self._scope.module, node, self._scope, owner, parameters=names)
        self._scope.module.scopes[node] = scope
        _ScopeReader(scope).read(body)

    def class_(self, node: ast.ClassDef) -> None:
        self._bind(node.name, "class", node, node)
        self.read(node.decorator_list)
        scope = NameScope(self._scope.module, node, self._scope)
        self._scope.module.scopes[node] = scope
        _ScopeReader(scope).read(node.body)

    def call(self, node: ast.Call) -> None:
        self._scope.module.calls.append((node, self._scope))
        self.read_children(node)


NODE_READERS: Mapping[type[ast.AST], Callable[[_ScopeReader, Any], None]] = {
    ast.Assign: _ScopeReader.assignment,
    ast.AnnAssign: _ScopeReader.typed_assignment,
    ast.NamedExpr: _ScopeReader.typed_assignment,
    ast.AugAssign: _ScopeReader.addition,
    ast.Expr: _ScopeReader.statement,
    ast.For: _ScopeReader.loop,
    ast.AsyncFor: _ScopeReader.loop,
    ast.With: _ScopeReader.context,
    ast.AsyncWith: _ScopeReader.context,
    ast.Global: _ScopeReader.globals_named,
    ast.Import: _ScopeReader.imports,
    ast.ImportFrom: _ScopeReader.imports_from,
    ast.FunctionDef: _ScopeReader.function,
    ast.AsyncFunctionDef: _ScopeReader.function,
    ast.Lambda: _ScopeReader.short_function,
    ast.ClassDef: _ScopeReader.class_,
    ast.Call: _ScopeReader.call,
    **dict.fromkeys((ast.If, ast.While, ast.Try, ast.TryStar, ast.Match), _ScopeReader.read_conditional),
}
"""Node types with their own reader; of all others, the children are read."""


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function or class body, without those of nested definitions."""
    stack = list(ast.iter_child_nodes(node))
    while stack:
        part = stack.pop()
        yield part
        if not isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            stack.extend(ast.iter_child_nodes(part))
