"""Finds the volatile values that an expression may contain, and the steps by which each got there.

Follows names, f-strings, operators, containers, comprehensions, methods of followed values, functions and classes
of the same file and of neighbouring modules, arguments and attributes.  Nothing is run, so values known only
at run time, and the content of files, count as stable.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from .module_index import ModuleIndex
from .scopes import END_OF_FILE, FunctionNode, NameBinding, NameScope, ParsedModule
from .sources import (
    FILE_READING_CALLS,
    FILE_READING_METHODS,
    ORDERING_CALLS,
    SET_CALLS,
    SET_METHODS,
    find_call_rule,
    find_value_rule,
    is_unordered,
    sorts_keys,
)

FLOW_STEPS_MAX = 10_000
"""Nodes visited for one expression; if that is not enough, a note says so."""
FLOW_DEPTH_MAX = 120
"""Maximum nesting; below Python's recursion limit, above what people write."""
# not from outside: our own text, shown to a person or a model
CODE_CHARACTERS_MAX = 60
SET_OPERATORS = (ast.Sub, ast.BitOr, ast.BitAnd, ast.BitXor)
SEED_CALLS = ("random.seed", "numpy.random.seed")


class FlowStep(NamedTuple):
    name: str
    module: ParsedModule
    line: int


class Taint(NamedTuple):
    rule: str
    module: ParsedModule
    node: ast.expr
    what: str
    hops: tuple[FlowStep, ...] = ()
    """Steps from the volatile expression to the checked one."""

    @property
    def line(self) -> int:
        return self.node.lineno


Taints = list[Taint]
KnownTaints = Mapping[str, Taints]


class DataFlow:
    def __init__(self, library: ModuleIndex) -> None:
        self._library = library
        self._active: set[tuple[int, int]] = set()
        self._steps, self._cuts = 0, 0
        self._known: dict[tuple[int, int, frozenset[str]] | None, Taints] = {}
        self._seeds: dict[ParsedModule, bool] = {}

    def find_taints(self, node: ast.AST, scope: NameScope) -> Taints:
        self._steps, self._active = 0, set()
        return self._taints(node, scope, {})

    @property
    def is_too_large(self) -> bool:
        """True if the last expression exceeded the limit."""
        return self._steps > FLOW_STEPS_MAX

    def qualified_name(self, node: ast.AST, scope: NameScope) -> str:
        """The name of a function or value with imports resolved; empty for the user's own code."""
        if isinstance(node, ast.Attribute):
            before = self.qualified_name(node.value, scope)
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
                return self.qualified_name(binding.node, where)
        return ""

    def find_definition(self, node: ast.AST, scope: NameScope) -> tuple[ast.AST, NameScope] | None:
        """The user's function or class that an expression names, and its scope."""
        if isinstance(node, ast.Attribute):
            return self._member(node, scope)
        if not isinstance(node, ast.Name):
            return None
        for binding, where in self._bindings(node, scope) or ():
            if binding.kind in ("function", "class") or isinstance(binding.node, ast.Lambda):
                return binding.node, where
            if binding.kind == "import":
                return self._find_in_module(where.module, binding.target)
        return None

    def find_values(self, node: ast.AST, scope: NameScope) -> list[tuple[ast.AST, NameScope]]:
        """The expression itself, or the values assigned to the name."""
        found = self._bindings(node, scope) if isinstance(node, ast.Name) else None
        return [(b.node, where) for b, where in found if b.kind == "value"] if found else [(node, scope)]

    def _member(self, node: ast.Attribute, scope: NameScope) -> tuple[ast.AST, NameScope] | None:
        if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls") and scope.owner is not None:
            return _find_definition(scope.owner, node.attr)
        name = self.qualified_name(node, scope)
        if name:
            return self._find_in_module(scope.module, name)
        owner = self.find_definition(node.value, scope)
        if owner is not None and isinstance(owner[0], ast.ClassDef):
            return _find_definition(owner[1].module.scopes[owner[0]], node.attr)
        return None

    def _find_in_module(self, asking: ParsedModule, target: str) -> tuple[ast.AST, NameScope] | None:
        found = self._library.find_module(asking, target)
        if found is None or len(found.remaining_names) != 1:
            return None
        return _find_definition(found.module.top, found.remaining_names[0])

    def _taints(self, node: ast.AST, scope: NameScope, names: KnownTaints) -> Taints:
        """The taints of a node, cached unless they depend on the caller's arguments or on a cycle that was cut."""
        steady = None if any(names.values()) else (id(node), id(scope), frozenset(names))
        if steady in self._known:
            return self._known[steady]
        self._steps += 1
        key = (id(node), id(scope))
        if key in self._active or self._steps > FLOW_STEPS_MAX or len(self._active) > FLOW_DEPTH_MAX:
            self._cuts += 1
            return []
        cuts = self._cuts
        self._active.add(key)
        try:
            found = _unique_taints(self._taints_of_node(node, scope, names))
        finally:
            self._active.discard(key)
        if steady is not None and self._cuts == cuts:
            self._known[steady] = found
        return found

    def _taints_of_node(self, node: ast.AST, scope: NameScope, names: KnownTaints) -> Taints:
        match node:
            case ast.Constant() | ast.Lambda():
                return []
            case ast.Name():
                return self._taints_of_name(node, scope, names)
            case ast.Attribute():
                return self._taints_of_attribute(node, scope, names)
            case ast.Call():
                return self._call(node, scope, names)
            case ast.BinOp():
                return self._operation(node, scope, names)
            case ast.Compare():
                return _drop_unordered(self._taints_of_all(ast.iter_child_nodes(node), scope, names))
            case ast.ListComp() | ast.GeneratorExp() | ast.SetComp() | ast.DictComp():
                return self._comprehension(node, scope, names)
            case ast.Subscript() if find_value_rule(self.qualified_name(node.value, scope)):
                return [_make_taint(find_value_rule(self.qualified_name(node.value, scope)), node, scope)]
            case ast.Set():
                own = [_make_taint("unordered", node, scope)] if is_unordered(node) else []
                return [*own, *self._taints_of_all(node.elts, scope, names)]
        return self._taints_of_all(ast.iter_child_nodes(node), scope, names)

    def _taints_of_all(self, nodes: Iterable[ast.AST], scope: NameScope, names: KnownTaints) -> Taints:
        return [taint for node in nodes for taint in self._taints(node, scope, names)]

    def _operation(self, node: ast.BinOp, scope: NameScope, names: KnownTaints) -> Taints:
        leaves: list[ast.AST] = []
        stack: list[ast.AST] = [node]
        found: Taints = []
        while stack:  # a long concatenation exceeds Python's recursion limit
            part = stack.pop()
            if not isinstance(part, ast.BinOp):
                leaves.append(part)
                continue
            stack.extend((part.left, part.right))
            if isinstance(part.op, SET_OPERATORS) and (_is_dict_view(part.left) or _is_dict_view(part.right)):
                found.append(_make_taint("unordered", part, scope))
        return [*found, *self._taints_of_all(leaves, scope, names)]

    def _comprehension(
        self,
        node: ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp,
        scope: NameScope,
        names: KnownTaints,
    ) -> Taints:
        inner = dict(names)
        found: Taints = [_make_taint("unordered", node, scope)] if isinstance(node, ast.SetComp) else []
        for part in node.generators:
            over = self._taints(part.iter, scope, inner)
            found.extend(over)
            inner.update((name, over) for name in _target_names(part.target))
        made = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
        return [*found, *self._taints_of_all(made, scope, inner)]

    def _call(self, node: ast.Call, scope: NameScope, names: KnownTaints) -> Taints:
        name = self.qualified_name(node.func, scope)
        own = self.find_definition(node.func, scope)
        if own is not None and not isinstance(own[0], ast.ClassDef):
            return self._follow_call(own[0], own[1], node, scope, names)
        if name in FILE_READING_CALLS or (
            isinstance(node.func, ast.Attribute) and node.func.attr in FILE_READING_METHODS
        ):
            return [
                taint for taint in self._taints_of_arguments(node, scope, names) if taint.rule == "outside"
            ]
        rule = find_call_rule(name, node, seeded=self._is_seeded(scope.module))
        found: Taints = [_make_taint(rule, node, scope)] if rule else []
        if name in SET_CALLS and node.args:
            found.append(_make_taint("unordered", node, scope))
        found += self._taints_of_arguments(node, scope, names)
        return _drop_unordered(found) if name in ORDERING_CALLS or sorts_keys(name, node) else found

    def _taints_of_arguments(self, node: ast.Call, scope: NameScope, names: KnownTaints) -> Taints:
        """The taints of a call's arguments and of the object it is called on."""
        given = [*node.args, *(word.value for word in node.keywords)]
        on = [node.func.value] if isinstance(node.func, ast.Attribute) else []
        return self._taints_of_all([*given, *on], scope, names)

    def _follow_call(
        self, function: ast.AST, where: NameScope, call: ast.Call, scope: NameScope, names: KnownTaints
    ) -> Taints:
        assert isinstance(function, FunctionNode)
        inside = where.module.scopes[function]
        known = {name: list[Taint]() for name in inside.parameters}
        known.update(self._taints_by_parameter(function, call, scope, names))
        if isinstance(function, ast.Lambda):
            return self._taints(function.body, inside, known)
        hop = FlowStep(f"{function.name}()", where.module, function.lineno)
        return [_add_step(taint, hop) for taint in self._taints_of_all(inside.returned_values, inside, known)]

    def _taints_by_parameter(
        self, function: FunctionNode, call: ast.Call, scope: NameScope, names: KnownTaints
    ) -> dict[str, Taints]:
        """The taints that each parameter gets; a default counts if no argument is passed."""
        places = [arg.arg for arg in (*function.args.posonlyargs, *function.args.args)]
        if places[:1] in (["self"], ["cls"]):
            places = places[1:]
        found = {
            name: self._taints(value, scope, names)
            for name, value in zip(places, call.args, strict=False)
            if not isinstance(value, ast.Starred)
        }
        found.update((w.arg, self._taints(w.value, scope, names)) for w in call.keywords if w.arg)
        for name, value in list_defaults(function):
            if name not in found:
                found[name] = self._taints(value, scope.module.top, {})
        return found

    def _taints_of_name(self, node: ast.Name, scope: NameScope, names: KnownTaints) -> Taints:
        anew = (
            scope.find_bindings(node.id, (node.lineno, node.col_offset))
            if node.id in scope.parameters
            else []
        )
        if node.id in names and not anew:
            return names[node.id]
        found = [(each, scope) for each in anew] or self._bindings(node, scope)
        if found is None:
            return []
        taints: Taints = [] if any(each.is_certain for each in anew) else [*names.get(node.id, ())]
        for binding, where in found:
            known = names if where is scope else {}
            hop = FlowStep(node.id, where.module, getattr(binding.node, "lineno", 0))
            taints += [_add_step(taint, hop) for taint in self._taints_of_binding(binding, where, known)]
        return taints

    def _taints_of_binding(self, binding: NameBinding, where: NameScope, names: KnownTaints) -> Taints:
        if binding.kind in ("value", "item"):
            return self._taints(binding.node, where, names)
        if binding.kind == "parameter":
            return self._taints_of_parameter(where, binding.target)
        if binding.kind == "import":
            return self._taints_of_import(where.module, binding.target)
        return []

    def _bindings(self, node: ast.Name, scope: NameScope) -> list[tuple[NameBinding, NameScope]] | None:
        """The bindings a name may refer to at this point; None if the file does not bind it."""
        at, where = (node.lineno, node.col_offset), scope
        current: NameScope | None = scope
        while current is not None:
            seen = current is where or not isinstance(current.node, ast.ClassDef)
            if seen and (node.id in current.bindings or node.id in current.parameters):
                met = [
                    (b, current)
                    for b in current.find_bindings(node.id, at if current is where else END_OF_FILE)
                ]
                if node.id in current.parameters and not any(b.is_certain for b, _ in met):
                    met.append((NameBinding("parameter", current.node, (0, 0), False, node.id), current))
                if met or current is not where:
                    return met
            current = current.parent
        return None

    def _taints_of_parameter(self, scope: NameScope, name: str) -> Taints:
        """The taints of the arguments that calls in the same file pass to a function."""
        function = scope.node
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            return []
        called = function.name
        if called == "__init__" and scope.owner is not None:
            called = getattr(scope.owner.node, "name", called)
        found: Taints = []
        for call, where in scope.module.find_calls(called):
            found += self._taints_by_parameter(function, call, where, {}).get(name, [])
        return found

    def _taints_of_import(self, asking: ParsedModule, target: str) -> Taints:
        rule_of = find_value_rule(target)
        if rule_of:
            return []  # the attribute or name that is read reports it
        found = self._library.find_module(asking, target)
        if found is None or len(found.remaining_names) != 1:
            return []
        top = found.module.top
        met = top.find_bindings(found.remaining_names[0], END_OF_FILE)
        hop = FlowStep(
            target.rpartition(".")[2], found.module, getattr(met[0].node, "lineno", 0) if met else 0
        )
        return [
            _add_step(taint, hop) for binding in met for taint in self._taints_of_binding(binding, top, {})
        ]

    def _taints_of_attribute(self, node: ast.Attribute, scope: NameScope, names: KnownTaints) -> Taints:
        name = self.qualified_name(node, scope)
        if find_value_rule(name):
            return [_make_taint(find_value_rule(name), node, scope)]
        if name:
            return self._taints_of_import(scope.module, name) or self._taints(node.value, scope, names)
        holder: NameScope | None = None
        if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
            holder = scope.owner
        else:
            owner = self.find_definition(node.value, scope)
            if owner is not None and isinstance(owner[0], ast.ClassDef):
                holder = owner[1].module.scopes[owner[0]]
        if holder is None:
            return self._taints(node.value, scope, names)
        return self._taints_of_member(holder, node.attr)

    def _taints_of_member(self, holder: NameScope, name: str) -> Taints:
        """The taints of an attribute of a class or of its instances."""
        found: Taints = []
        for binding in holder.bindings.get(name, ()):
            hop = FlowStep(f"self.{name}", holder.module, getattr(binding.node, "lineno", 0))
            if binding.kind == "function":
                call = ast.Call(func=ast.Name(id=name), args=[], keywords=[])
                found += self._follow_call(binding.node, holder, call, holder, {})
            elif binding.kind in ("value", "item"):
                method = _find_definition(holder, binding.target) if binding.target else None
                where = holder.module.scopes[method[0]] if method is not None else holder
                found += [_add_step(taint, hop) for taint in self._taints(binding.node, where, {})]
        return found

    def _is_seeded(self, module: ParsedModule) -> bool:
        if module not in self._seeds:
            calls = (*module.find_calls("seed"),)
            self._seeds[module] = any(
                call.args and self.qualified_name(call.func, scope) in SEED_CALLS for call, scope in calls
            )
        return self._seeds[module]


def list_defaults(function: FunctionNode) -> Iterator[tuple[str, ast.expr]]:
    args = function.args
    placed = [*args.posonlyargs, *args.args]
    for arg, value in zip(reversed(placed), reversed(args.defaults), strict=False):
        yield arg.arg, value
    for arg, given in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        if given is not None:
            yield arg.arg, given


def _find_definition(scope: NameScope, name: str) -> tuple[ast.AST, NameScope] | None:
    for binding in scope.find_bindings(name, END_OF_FILE):
        if binding.kind in ("function", "class") or isinstance(binding.node, ast.Lambda):
            return binding.node, scope
    return None


def _make_taint(rule: str, node: ast.expr, scope: NameScope) -> Taint:
    words = " ".join(ast.unparse(node).split())
    return Taint(
        rule,
        scope.module,
        node,
        words if len(words) <= CODE_CHARACTERS_MAX else words[: CODE_CHARACTERS_MAX - 1] + "…",
    )


def _add_step(taint: Taint, hop: FlowStep) -> Taint:
    return taint._replace(hops=(*taint.hops, hop))


def _unique_taints(taints: Taints) -> Taints:
    """Keep the first path to each taint: a cycle has infinitely many."""
    if len(taints) < 2:
        return taints
    return list({(taint.rule, id(taint.node)): taint for taint in reversed(taints)}.values())[::-1]


def _drop_unordered(taints: Sequence[Taint]) -> Taints:
    return [taint for taint in taints if taint.rule != "unordered"]


def _is_dict_view(node: ast.AST) -> bool:
    """True for `.keys()` and `.items()`, whose differences and unions are sets."""
    method = node.func if isinstance(node, ast.Call) else None
    return isinstance(method, ast.Attribute) and method.attr in SET_METHODS


def _target_names(node: ast.AST) -> Iterator[str]:
    return (part.id for part in ast.walk(node) if isinstance(part, ast.Name))
