"""Rules with one mistake in them, loaded in place of a family's real rules.

A mutant changes one place in the code that a rule runs on a request: a comparison is negated or moved by one,
a condition is dropped, a number is off by one, a finding is not returned. A trace of the examples shows which
functions the rules run; numbers that modules name are changed as well.

A mutant is killed when the examples of the rules show a difference: those of the rule itself, or those of
others, which it must not refuse. It is also killed when a rule raises or does not return. Modules that two
families share are tried with both.
"""

import ast
import copy
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module, invalidate_caches
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any, NamedTuple

import bridle.sim
from bridle.sim.families import FAMILIES, list_profiles
from bridle.sim.rules.engine import ProviderRule, RawRequest, find_violation
from bridle.values.model import Abilities
from tests.sim.rules.rule_examples import RuleExamples, find_examples

FOLDER = Path(bridle.sim.__file__).parent
SECONDS_MAX = 5
"""A rule that takes longer than this does not return."""
LIMITED = ("minimum", "maximum", "max_length", "max_items")
"""Rows whose second argument is a limit."""
SHARED = ("bridle.sim.rules", "bridle.sim.openai", "bridle.sim.claude")
"""Packages with rules of more than one family."""
UNCHANGED = ("bridle.sim.rules.engine", "bridle.sim.rules.profiles")
"""Modules that hold no checks; their classes stay the same for every mutant."""

ODD_BODIES: tuple[dict[str, Any], ...] = (
    {},
    {"model": 1, "max_tokens": "many", "messages": "hello", "input": 7, "tools": 3, "system": 4},
    {"model": "m", "messages": [1, None, {"role": "user"}, {"content": [1, {"type": "text"}]}]},
    {"input": [1, None, {"role": "user"}, {"content": [1, {"type": "text"}]}, {"type": ["x"], "id": {}}]},
    {
        "messages": [{"role": "assistant", "content": [{"type": "tool_use"}]}],
        "tools": [None, {"input_schema": 1}],
    },
    {
        "messages": [
            {"role": "assistant", "tool_calls": 3},
            {"tool_calls": [1, {"function": 2}], "content": {}},
        ]
    },
    {"thinking": 1, "output_config": [], "tool_choice": "any", "cache_control": 1, "messages": [{}]},
    {"tool_choice": {"function": 1, "type": "function"}, "tools": [{"type": "function"}, {"function": []}]},
    {"output_config": {"format": {"schema": {"properties": {"a": 1}, "anyOf": [1], "items": [2]}}}},
    {
        "text": {
            "format": {"type": "json_schema", "schema": {"properties": {"a": 1}, "anyOf": [1], "type": [1]}}
        }
    },
    {
        "tools": [
            {"type": "function", "name": "f", "strict": True, "parameters": {"type": "array", "required": 1}}
        ]
    },
    {"tools": [{"function": {"name": 1, "strict": True, "parameters": {"properties": 1, "format": 2}}}]},
    {
        "messages": [
            {"role": "user", "content": [{"type": "tool_result", "content": [1, {"cache_control": 2}]}]}
        ]
    },
    {"thinking": {"type": ["enabled"], "budget_tokens": "x"}, "max_tokens": None, "metadata": {"k": 1}},
    {"output_config": {"effort": "low"}, "tool_choice": {"type": "any"}, "thinking": {"type": "enabled"}},
    {"thinking": {"type": "enabled", "budget_tokens": "x"}, "max_tokens": 5},
    {"thinking": {"type": "enabled", "budget_tokens": 5}, "max_tokens": "x"},
    {"reasoning": {"effort": "low"}, "reasoning_effort": "low", "stop": "x", "max_tokens": 5, "top_p": 0.5},
    {"temperature": [], "top_p": {}, "n": "1", "metadata": [], "reasoning": "high", "reasoning_effort": {}},
)
"""Bodies of the wrong shape in every way somebody thought of."""
ODD_ABILITIES = (None, Abilities(), Abilities(thinking=("adaptive",), efforts=("low",), forced_tools=False))

_NEGATED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn,
    ast.NotIn: ast.In, ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt,
}  # fmt: skip
_MOVED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
}  # fmt: skip


class Mutant(NamedTuple):
    families: tuple[str, ...]
    """Whose tables have it."""
    module: str
    function: str
    what: str
    """The place as it was and as it is now."""
    code: CodeType

    @property
    def name(self) -> str:
        return f"{self.module}.{self.function}: {self.what}"


def mutants(of: Sequence[str]) -> Iterator[Mutant]:
    """Every mutant of these families' tables, each once."""
    owners: dict[str, list[str]] = {}
    for family in of:
        for module in modules(family):
            owners.setdefault(module, []).append(family)
    for module, having in owners.items():
        tree = ast.parse(_path(module).read_text())
        lines = frozenset().union(*(_run_by_rules(family).get(module, frozenset()) for family in having))
        for function, node, changed in _sites(tree, lines):
            what = f"`{ast.unparse(node)}` became `{ast.unparse(changed)}`"
            yield Mutant(tuple(having), module, function, what, _compile_changed(tree, node, changed, module))


def is_killed(mutant: Mutant) -> bool:
    return any(_kills(family, mutant) for family in mutant.families)


def _kills(family: str, mutant: Mutant) -> bool:
    with load_changed_rules(family, {mutant.module: mutant.code}) as rules:
        return rules is None or not is_sound(family, rules)


def is_sound(family: str, rules: Sequence[ProviderRule]) -> bool:
    """Whether every rule's examples fall where they should, and nothing stumbles over odd bodies."""
    own = [rule for rule in rules if list_profiles(family)[0].includes(rule.id)]
    try:
        with _time_limit():
            return (
                all(_fits_examples(rule, find_examples(family, rule)) for rule in rules)
                and all(find_violation(own, find_examples(family, rule).accepted) is None for rule in own)
                and not any(map(_speaks_unasked, rules))
            )
    except Exception:
        return False


def _fits_examples(rule: ProviderRule, examples: RuleExamples) -> bool:
    requests = ((examples.accepted, ""), (examples.refused, examples.message), *examples.more)
    return all(_violation_text(rule, request) == message for request, message in requests)


def _violation_text(rule: ProviderRule, asked: RawRequest) -> str:
    found = rule.find(asked)
    return "" if found is None else rule.wording.format(**found)


def _speaks_unasked(rule: ProviderRule) -> bool:
    for body in ODD_BODIES:
        for abilities in ODD_ABILITIES:
            _violation_text(rule, RawRequest(path="", headers={}, body=body, abilities=abilities))
    return False


@cache
def modules(family: str) -> list[str]:
    """Names of the modules that a family's rules are made of."""
    package = FAMILIES[family].rpartition(".")[0]
    found = [f"{package}.rules"]
    for module in found:
        for node in ast.walk(ast.parse(_path(module).read_text())):
            if isinstance(node, ast.ImportFrom):
                name = f"{module.rpartition('.')[0]}.{node.module}" if node.level == 1 else str(node.module)
                if name.startswith((f"{package}.", *(f"{each}." for each in SHARED))) and name not in found:
                    found.append(name)
    return [module for module in found if module not in UNCHANGED]


def _path(module: str) -> Path:
    return FOLDER.joinpath(*module.split(".")[2:]).with_suffix(".py")


def _load_rules(family: str) -> Sequence[ProviderRule]:
    rules: Sequence[ProviderRule] = import_module(modules(family)[0]).RULES
    return rules


@cache
def _run_by_rules(family: str) -> dict[str, frozenset[int]]:
    """The first lines of the functions that rules run, by module."""
    lines: dict[str, set[int]] = {}
    paths = {str(_path(module)): module for module in modules(family)}

    def watch(frame: FrameType, event: str, argument: Any) -> None:
        module = paths.get(frame.f_code.co_filename)
        if module:
            lines.setdefault(module, set()).add(frame.f_code.co_firstlineno)

    rules, before = _load_rules(family), sys.gettrace()
    sys.settrace(watch)
    try:
        for rule in rules:
            for request in find_examples(family, rule).requests:
                rule.find(request)
    finally:
        sys.settrace(before)
    return {module: frozenset(found) for module, found in lines.items()}


def _sites(tree: ast.Module, lines: frozenset[int]) -> Iterator[tuple[str, ast.AST, ast.AST]]:
    for assignment in tree.body:
        if isinstance(assignment, ast.Assign):
            for number in _limits(assignment.value):
                yield from (("limit", number, changed) for changed in _changes(number))
    for row in ast.walk(tree):
        if isinstance(row, ast.Call) and isinstance(row.func, ast.Attribute) and row.func.attr in LIMITED:
            yield from ((row.func.attr, row.args[1], changed) for changed in _moved(row.args[1]))
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.Lambda) and function.lineno in lines:
            name = getattr(function, "name", "lambda")
            body = function.body if isinstance(function.body, list) else [function.body]
            for node in (part for statement in body for part in _walk_own(statement)):
                yield from ((name, node, changed) for changed in _changes(node))


def _limits(value: ast.expr) -> Iterator[ast.AST]:
    """The numbers that a module names."""
    parts = value.elts if isinstance(value, ast.Tuple) else [value]
    yield from filter(_is_number, parts)


def _moved(limit: ast.expr) -> Iterator[ast.AST]:
    """The limit that a row is made with, one more and one less; it may be named elsewhere."""
    try:
        number = ast.literal_eval(limit)
    except ValueError:
        return
    yield from (ast.Constant(number + step) for step in (1, -1))


def _walk_own(node: ast.AST) -> Iterator[ast.AST]:
    """A node and what is in it, but for functions of its own."""
    if isinstance(node, ast.FunctionDef | ast.Lambda):
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _walk_own(child)


def _is_number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int


def _changes(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Compare(ops=[op]):
            yield from _with_operators(node, op)
        case ast.BoolOp(values=values):
            for dropped in range(len(values)):
                kept = [value for index, value in enumerate(values) if index != dropped]
                yield kept[0] if len(kept) == 1 else ast.BoolOp(op=node.op, values=kept)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand
        case ast.IfExp(body=body, orelse=orelse):
            yield body
            yield orelse
        case ast.If(test=test):
            changed = copy.copy(node)
            changed.test = ast.UnaryOp(op=ast.Not(), operand=test)
            yield changed
        case ast.Return(value=ast.expr() as value) if not _is_none(value):
            yield ast.Return(value=ast.Constant(None))
        case ast.Constant() if _is_number(node):
            yield ast.Constant(node.value + 1)
            yield ast.Constant(node.value - 1)


def _with_operators(node: ast.Compare, op: ast.cmpop) -> Iterator[ast.AST]:
    for table in (_NEGATED, _MOVED):
        if type(op) in table:
            changed = copy.copy(node)
            changed.ops = [table[type(op)]()]
            yield changed


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _compile_changed(tree: ast.Module, node: ast.AST, changed: ast.AST, module: str) -> CodeType:
    replaced = _Replaced(node, changed).visit(copy.copy(tree))
    return compile(ast.fix_missing_locations(replaced), str(_path(module)), "exec")  # type: ignore[call-overload]


class _Replaced(ast.NodeTransformer):
    """A tree with one node in another's place; what is not on the way there is shared."""

    def __init__(self, node: ast.AST, changed: ast.AST) -> None:
        self.node, self.changed = node, ast.copy_location(changed, node)

    def visit(self, node: ast.AST) -> ast.AST:
        return self.changed if node is self.node else self.generic_visit(copy.copy(node))

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for name, old in ast.iter_fields(node):
            if isinstance(old, list):
                setattr(node, name, [self.visit(item) if isinstance(item, ast.AST) else item for item in old])
            elif isinstance(old, ast.AST):
                setattr(node, name, self.visit(old))
        return node


@contextmanager
def load_changed_rules(family: str, changed: dict[str, CodeType]) -> Iterator[Sequence[ProviderRule] | None]:
    """The family's rules with the code of some modules exchanged; None when they cannot be loaded."""
    names = modules(family)
    before = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    finder = _Finder({name: changed.get(name) or _code(name) for name in names})
    sys.meta_path.insert(0, finder)
    invalidate_caches()
    try:
        try:
            rules: Sequence[ProviderRule] | None = _load_rules(family)
        except Exception:
            rules = None
        yield rules
    finally:
        sys.meta_path.remove(finder)
        for name in names:
            sys.modules.pop(name, None)
        sys.modules.update(before)
        for name, module in before.items():
            package, _, last = name.rpartition(".")
            setattr(sys.modules[package], last, module)


@cache
def _code(module: str) -> CodeType:
    path = _path(module)
    return compile(path.read_text(), str(path), "exec")


class _Finder(MetaPathFinder, Loader):
    def __init__(self, codes: dict[str, CodeType]) -> None:
        self.codes = codes

    def find_spec(self, name: str, path: Any, target: object = None) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name in self.codes else None

    def exec_module(self, module: ModuleType) -> None:
        exec(self.codes[module.__name__], module.__dict__)


@contextmanager
def _time_limit() -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, SECONDS_MAX)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
