"""What flows into an expression: every volatile thing that its value may be made of, and the way it took.

Followed are names, f-strings, operators, containers, comprehensions, methods of what is followed, functions
and classes of the same file and of modules beside it, arguments and attributes.  Nothing is run, so what is
only known at run time is taken for steady, and what stands in a file is what somebody wrote there.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from .library import Library
from .scopes import END, Binding, Function, Module, Scope
from .sources import (
    CONTENT_METHODS,
    CONTENTS,
    IN_ORDER,
    SET_METHODS,
    SETS,
    is_unordered,
    sorts_keys,
    source,
    value_source,
)

STEPS_MAX = 10_000
"""How much of a program is looked at for one expression; where that is not enough, it is said."""
DEPTH_MAX = 120
"""How far one thing is followed into another: less than Python can, more than people write."""
WORDS_MAX = 60
SET_OPERATORS = (ast.Sub, ast.BitOr, ast.BitAnd, ast.BitXor)
SEEDS = ("random.seed", "numpy.random.seed")


class Hop(NamedTuple):
    name: str
    module: Module
    line: int


class Taint(NamedTuple):
    rule: str
    module: Module
    node: ast.expr
    what: str
    hops: tuple[Hop, ...] = ()
    """From where it is to where it was asked for."""

    @property
    def line(self) -> int:
        return self.node.lineno


Taints = list[Taint]
Names = Mapping[str, Taints]


class Flow:
    def __init__(self, library: Library) -> None:
        self._library = library
        self._active: set[tuple[int, int]] = set()
        self._steps, self._cuts = 0, 0
        self._known: dict[tuple[int, int, frozenset[str]] | None, Taints] = {}
        self._seeds: dict[Module, bool] = {}

    def into(self, node: ast.AST, scope: Scope) -> Taints:
        self._steps, self._active = 0, set()
        return self._taints(node, scope, {})

    @property
    def gave_up(self) -> bool:
        """Whether the last expression was too much."""
        return self._steps > STEPS_MAX

    def full(self, node: ast.AST, scope: Scope) -> str:
        """What a function or value is called after all imports; empty when it is one of the user's own."""
        if isinstance(node, ast.Attribute):
            before = self.full(node.value, scope)
            return f"{before}.{node.attr}" if before else ""
        if not isinstance(node, ast.Name):
            return ""
        found = self._bindings(node, scope)
        if found is None:
            return node.id
        for binding, where in found:
            if binding.kind == "import":
                return binding.target
            if binding.kind == "value" and isinstance(binding.node, ast.Name | ast.Attribute):
                return self.full(binding.node, where)
        return ""

    def definition(self, node: ast.AST, scope: Scope) -> tuple[ast.AST, Scope] | None:
        """The function or class of the user's own that an expression names, and the scope it is in."""
        if isinstance(node, ast.Attribute):
            return self._member(node, scope)
        if not isinstance(node, ast.Name):
            return None
        for binding, where in self._bindings(node, scope) or ():
            if binding.kind in ("function", "class") or isinstance(binding.node, ast.Lambda):
                return binding.node, where
            if binding.kind == "import":
                return self._elsewhere(where.module, binding.target)
        return None

    def values(self, node: ast.AST, scope: Scope) -> list[tuple[ast.AST, Scope]]:
        """The expression itself, or what a name was given."""
        found = self._bindings(node, scope) if isinstance(node, ast.Name) else None
        return [(b.node, where) for b, where in found if b.kind == "value"] if found else [(node, scope)]

    def _member(self, node: ast.Attribute, scope: Scope) -> tuple[ast.AST, Scope] | None:
        if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls") and scope.owner is not None:
            return _defined(scope.owner, node.attr)
        name = self.full(node, scope)
        if name:
            return self._elsewhere(scope.module, name)
        owner = self.definition(node.value, scope)
        if owner is not None and isinstance(owner[0], ast.ClassDef):
            return _defined(owner[1].module.scopes[owner[0]], node.attr)
        return None

    def _elsewhere(self, asking: Module, target: str) -> tuple[ast.AST, Scope] | None:
        found = self._library.find(asking, target)
        if found is None or len(found.names) != 1:
            return None
        return _defined(found.module.top, found.names[0])

    def _taints(self, node: ast.AST, scope: Scope, names: Names) -> Taints:
        """Looked at once, unless it depends on who asks: on volatile arguments, or on a circle cut short."""
        steady = None if any(names.values()) else (id(node), id(scope), frozenset(names))
        if steady in self._known:
            return self._known[steady]
        self._steps += 1
        key = (id(node), id(scope))
        if key in self._active or self._steps > STEPS_MAX or len(self._active) > DEPTH_MAX:
            self._cuts += 1
            return []
        cuts = self._cuts
        self._active.add(key)
        try:
            found = _once(self._of(node, scope, names))
        finally:
            self._active.discard(key)
        if steady is not None and self._cuts == cuts:
            self._known[steady] = found
        return found

    def _of(self, node: ast.AST, scope: Scope, names: Names) -> Taints:
        match node:
            case ast.Constant() | ast.Lambda():
                return []
            case ast.Name():
                return self._name(node, scope, names)
            case ast.Attribute():
                return self._attribute(node, scope, names)
            case ast.Call():
                return self._call(node, scope, names)
            case ast.BinOp():
                return self._operation(node, scope, names)
            case ast.Compare():
                return _in_order(self._all(ast.iter_child_nodes(node), scope, names))
            case ast.ListComp() | ast.GeneratorExp() | ast.SetComp() | ast.DictComp():
                return self._comprehension(node, scope, names)
            case ast.Subscript() if value_source(self.full(node.value, scope)):
                return [_taint(value_source(self.full(node.value, scope)), node, scope)]
            case ast.Set():
                own = [_taint("unordered", node, scope)] if is_unordered(node) else []
                return [*own, *self._all(node.elts, scope, names)]
        return self._all(ast.iter_child_nodes(node), scope, names)

    def _all(self, nodes: Iterable[ast.AST], scope: Scope, names: Names) -> Taints:
        return [taint for node in nodes for taint in self._taints(node, scope, names)]

    def _operation(self, node: ast.BinOp, scope: Scope, names: Names) -> Taints:
        leaves: list[ast.AST] = []
        stack: list[ast.AST] = [node]
        found: Taints = []
        while stack:  # a long sum of words is deeper than Python likes to go
            part = stack.pop()
            if not isinstance(part, ast.BinOp):
                leaves.append(part)
                continue
            stack.extend((part.left, part.right))
            if isinstance(part.op, SET_OPERATORS) and (_is_view(part.left) or _is_view(part.right)):
                found.append(_taint("unordered", part, scope))
        return [*found, *self._all(leaves, scope, names)]

    def _comprehension(
        self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp, scope: Scope, names: Names
    ) -> Taints:
        inner = dict(names)
        found: Taints = [_taint("unordered", node, scope)] if isinstance(node, ast.SetComp) else []
        for part in node.generators:
            over = self._taints(part.iter, scope, inner)
            found.extend(over)
            inner.update((name, over) for name in _targets(part.target))
        made = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
        return [*found, *self._all(made, scope, inner)]

    def _call(self, node: ast.Call, scope: Scope, names: Names) -> Taints:
        name = self.full(node.func, scope)
        own = self.definition(node.func, scope)
        if own is not None and not isinstance(own[0], ast.ClassDef):
            return self._followed(own[0], own[1], node, scope, names)
        if name in CONTENTS or (isinstance(node.func, ast.Attribute) and node.func.attr in CONTENT_METHODS):
            return [taint for taint in self._within(node, scope, names) if taint.rule == "outside"]
        rule = source(name, node, seeded=self._seeded(scope.module))
        found: Taints = [_taint(rule, node, scope)] if rule else []
        if name in SETS and node.args:
            found.append(_taint("unordered", node, scope))
        found += self._within(node, scope, names)
        return _in_order(found) if name in IN_ORDER or sorts_keys(name, node) else found

    def _within(self, node: ast.Call, scope: Scope, names: Names) -> Taints:
        """What it is called with, and on."""
        given = [*node.args, *(word.value for word in node.keywords)]
        on = [node.func.value] if isinstance(node.func, ast.Attribute) else []
        return self._all([*given, *on], scope, names)

    def _followed(
        self, function: ast.AST, where: Scope, call: ast.Call, scope: Scope, names: Names
    ) -> Taints:
        assert isinstance(function, Function)
        inside = where.module.scopes[function]
        known = {name: list[Taint]() for name in inside.parameters}
        known.update(self._given(function, call, scope, names))
        if isinstance(function, ast.Lambda):
            return self._taints(function.body, inside, known)
        hop = Hop(f"{function.name}()", where.module, function.lineno)
        return [_through(taint, hop) for taint in self._all(inside.said, inside, known)]

    def _given(self, function: Function, call: ast.Call, scope: Scope, names: Names) -> dict[str, Taints]:
        """What each parameter gets; a default counts where nothing is given."""
        places = [arg.arg for arg in (*function.args.posonlyargs, *function.args.args)]
        if places[:1] in (["self"], ["cls"]):
            places = places[1:]
        found = {
            name: self._taints(value, scope, names)
            for name, value in zip(places, call.args, strict=False)
            if not isinstance(value, ast.Starred)
        }
        found.update((w.arg, self._taints(w.value, scope, names)) for w in call.keywords if w.arg)
        for name, value in defaults_of(function):
            if name not in found:
                found[name] = self._taints(value, scope.module.top, {})
        return found

    def _name(self, node: ast.Name, scope: Scope, names: Names) -> Taints:
        anew = scope.reaching(node.id, (node.lineno, node.col_offset)) if node.id in scope.parameters else []
        if node.id in names and not anew:
            return names[node.id]
        found = [(each, scope) for each in anew] or self._bindings(node, scope)
        if found is None:
            return []
        taints: Taints = [] if any(each.surely for each in anew) else [*names.get(node.id, ())]
        for binding, where in found:
            known = names if where is scope else {}
            hop = Hop(node.id, where.module, getattr(binding.node, "lineno", 0))
            taints += [_through(taint, hop) for taint in self._bound(binding, where, known)]
        return taints

    def _bound(self, binding: Binding, where: Scope, names: Names) -> Taints:
        if binding.kind in ("value", "item"):
            return self._taints(binding.node, where, names)
        if binding.kind == "parameter":
            return self._parameter(where, binding.target)
        if binding.kind == "import":
            return self._imported(where.module, binding.target)
        return []

    def _bindings(self, node: ast.Name, scope: Scope) -> list[tuple[Binding, Scope]] | None:
        """What the name may stand for there; None when nobody in the file has bound it."""
        at, where = (node.lineno, node.col_offset), scope
        current: Scope | None = scope
        while current is not None:
            seen = current is where or not isinstance(current.node, ast.ClassDef)
            if seen and (node.id in current.bindings or node.id in current.parameters):
                met = [(b, current) for b in current.reaching(node.id, at if current is where else END)]
                if node.id in current.parameters and not any(b.surely for b, _ in met):
                    met.append((Binding("parameter", current.node, (0, 0), False, node.id), current))
                if met or current is not where:
                    return met
            current = current.parent
        return None

    def _parameter(self, scope: Scope, name: str) -> Taints:
        """What a function is called with, wherever that is in its own file."""
        function = scope.node
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            return []
        called = function.name
        if called == "__init__" and scope.owner is not None:
            called = getattr(scope.owner.node, "name", called)
        found: Taints = []
        for call, where in scope.module.called(called):
            found += self._given(function, call, where, {}).get(name, [])
        return found

    def _imported(self, asking: Module, target: str) -> Taints:
        rule_of = value_source(target)
        if rule_of:
            return []  # told by the attribute or the name that is read
        found = self._library.find(asking, target)
        if found is None or len(found.names) != 1:
            return []
        top = found.module.top
        met = top.reaching(found.names[0], END)
        hop = Hop(target.rpartition(".")[2], found.module, getattr(met[0].node, "lineno", 0) if met else 0)
        return [_through(taint, hop) for binding in met for taint in self._bound(binding, top, {})]

    def _attribute(self, node: ast.Attribute, scope: Scope, names: Names) -> Taints:
        name = self.full(node, scope)
        if value_source(name):
            return [_taint(value_source(name), node, scope)]
        if name:
            return self._imported(scope.module, name) or self._taints(node.value, scope, names)
        holder: Scope | None = None
        if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
            holder = scope.owner
        else:
            owner = self.definition(node.value, scope)
            if owner is not None and isinstance(owner[0], ast.ClassDef):
                holder = owner[1].module.scopes[owner[0]]
        if holder is None:
            return self._taints(node.value, scope, names)
        return self._held(holder, node.attr)

    def _held(self, holder: Scope, name: str) -> Taints:
        """What an attribute of a class or of its objects is made of."""
        found: Taints = []
        for binding in holder.bindings.get(name, ()):
            hop = Hop(f"self.{name}", holder.module, getattr(binding.node, "lineno", 0))
            if binding.kind == "function":
                call = ast.Call(func=ast.Name(id=name), args=[], keywords=[])
                found += self._followed(binding.node, holder, call, holder, {})
            elif binding.kind in ("value", "item"):
                method = _defined(holder, binding.target) if binding.target else None
                where = holder.module.scopes[method[0]] if method is not None else holder
                found += [_through(taint, hop) for taint in self._taints(binding.node, where, {})]
        return found

    def _seeded(self, module: Module) -> bool:
        if module not in self._seeds:
            calls = (*module.called("seed"),)
            self._seeds[module] = any(
                call.args and self.full(call.func, scope) in SEEDS for call, scope in calls
            )
        return self._seeds[module]


def defaults_of(function: Function) -> Iterator[tuple[str, ast.expr]]:
    args = function.args
    placed = [*args.posonlyargs, *args.args]
    for arg, value in zip(reversed(placed), reversed(args.defaults), strict=False):
        yield arg.arg, value
    for arg, given in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        if given is not None:
            yield arg.arg, given


def _defined(scope: Scope, name: str) -> tuple[ast.AST, Scope] | None:
    for binding in scope.reaching(name, END):
        if binding.kind in ("function", "class") or isinstance(binding.node, ast.Lambda):
            return binding.node, scope
    return None


def _taint(rule: str, node: ast.expr, scope: Scope) -> Taint:
    words = " ".join(ast.unparse(node).split())
    return Taint(rule, scope.module, node, words if len(words) <= WORDS_MAX else words[: WORDS_MAX - 1] + "…")


def _through(taint: Taint, hop: Hop) -> Taint:
    return taint._replace(hops=(*taint.hops, hop))


def _once(taints: Taints) -> Taints:
    """Each by the first way that was found: in a circle there is no end of ways."""
    if len(taints) < 2:
        return taints
    return list({(taint.rule, id(taint.node)): taint for taint in reversed(taints)}.values())[::-1]


def _in_order(taints: Sequence[Taint]) -> Taints:
    return [taint for taint in taints if taint.rule != "unordered"]


def _is_view(node: ast.AST) -> bool:
    """Whether it is `.keys()` or `.items()`: taken from one another they are sets."""
    method = node.func if isinstance(node, ast.Call) else None
    return isinstance(method, ast.Attribute) and method.attr in SET_METHODS


def _targets(node: ast.AST) -> Iterator[str]:
    return (part.id for part in ast.walk(node) if isinstance(part, ast.Name))
