"""Where words become part of every prompt: instructions, and the names, descriptions and schemas of tools.

What a program says in a turn is no concern of this: that is where volatile facts belong.
"""

import ast
from collections.abc import Iterator
from typing import NamedTuple

from .flowing import Flow, defaults_of
from .scopes import Module, Scope

AGENTS = ("bridle.Agent", "bridle.run.agent.Agent")
TOOL = ("bridle.tool", "bridle.tools.function.tool")
MAKERS = {
    "RawTool": ("name", "description", "schema", ""),
    "TypedTool": ("arguments", "", "name", "description"),
    "CommandTool": ("name", "description", "", "parameters"),
}
"""Tools made of what they are given: what their places are called, where they reach a prompt."""
PARTIAL, BEGINNING = "functools.partial", "super().__init__"
SHOWN = ("name", "description", "schema", "parameters")
EVERY: frozenset[str] = frozenset()
ORDER = frozenset({"unordered"})
"""Of a list of tools only the order is words."""


class Sink(NamedTuple):
    node: ast.AST
    scope: Scope
    what: str
    rules: frozenset[str] = EVERY
    """The rules it is held to; empty for all."""


def sinks(flow: Flow, module: Module) -> Iterator[Sink]:
    shown: set[ast.AST] = set()
    for call, scope in module.calls:
        name = flow.full(call.func, scope)
        maker = name.rpartition(".")[2]
        if name in AGENTS or _is_kind_of_agent(flow, call, scope, name):
            yield from _agent(flow, call, scope, shown)
        elif name in TOOL:
            yield from _named(call, scope, "a tool")
            for given in call.args[:1]:
                yield from _function_named(flow, given, scope, shown)
        elif name.startswith("bridle.") and maker in MAKERS:
            yield from _made(flow, call, scope, maker, shown)
    for function, scope in module.functions:
        for decorator in function.decorator_list:
            made = decorator.func if isinstance(decorator, ast.Call) else decorator
            if flow.full(made, scope) in TOOL:
                yield from _function(flow, function, scope, shown)
    yield from _described_later(flow, module, shown)


def has_agents(flow: Flow, module: Module) -> bool:
    """Whether an agent or a tool is made while the file is loaded."""
    calls = [(flow.full(call.func, scope), call) for call, scope in module.calls if scope is module.top]
    made = any(name in (*AGENTS, *TOOL) or name.rpartition(".")[2] in MAKERS for name, _ in calls)
    kinds = (_is_kind_of_agent(flow, call, module.top, name) for name, call in calls)
    return (
        made
        or any(kinds)
        or any(
            flow.full(decorator, scope) in TOOL
            for function, scope in module.functions
            if scope is module.top
            for decorator in function.decorator_list
        )
    )


def _is_kind_of_agent(flow: Flow, call: ast.Call, scope: Scope, name: str) -> bool:
    """Whether it makes an agent by another name: a class of the user's own, its beginning, or a partial."""
    if name == PARTIAL:
        return any(flow.full(given, scope) in AGENTS for given in call.args[:1])
    own = flow.definition(call.func, scope)
    kind = own[0] if own is not None else None
    if ast.unparse(call.func) == BEGINNING and scope.owner is not None:
        kind = scope.owner.node
    bases = kind.bases if isinstance(kind, ast.ClassDef) else []
    where = own[1] if own is not None else scope.module.top
    plain = (base.value if isinstance(base, ast.Subscript) else base for base in bases)
    return any(flow.full(base, where) in AGENTS for base in plain)


def _agent(flow: Flow, call: ast.Call, scope: Scope, shown: set[ast.AST]) -> Iterator[Sink]:
    for name, value, where in _words(flow, call, scope):
        if name == "instructions":
            yield Sink(value, where, "the instructions of an agent")
        elif name == "tools":
            yield Sink(value, where, "the order of an agent's tools", ORDER)
            for item in getattr(value, "elts", ()):
                yield from _function_named(flow, item, where, shown)
        elif name == "output":
            yield Sink(value, where, "the schema of an agent's answer")
            yield from _type(flow, value, where, "the schema of an agent's answer", shown)


def _words(flow: Flow, call: ast.Call, scope: Scope) -> Iterator[tuple[str, ast.AST, Scope]]:
    """What it is given by name, out of a dict that is written down as well."""
    for word in call.keywords:
        if word.arg is not None:
            yield word.arg, word.value, scope
            continue
        for given, where in flow.values(word.value, scope):
            if isinstance(given, ast.Dict):
                for key, value in zip(given.keys, given.values, strict=True):
                    if isinstance(key, ast.Constant):
                        yield str(key.value), value, where
            elif isinstance(given, ast.Call) and flow.full(given.func, where) == "dict":
                yield from _words(flow, given, where)


def _described_later(flow: Flow, module: Module, shown: set[ast.AST]) -> Iterator[Sink]:
    """`look.__doc__ = …`: a docstring with something in it cannot be written where docstrings are."""
    for node in module.tree.body:
        for target in node.targets if isinstance(node, ast.Assign) else ():
            if isinstance(target, ast.Attribute) and target.attr == "__doc__":
                found = flow.definition(target.value, module.top)
                if isinstance(node, ast.Assign) and found is not None and found[0] in shown:
                    yield Sink(node.value, module.top, "the description of a tool")


def _named(call: ast.Call, scope: Scope, whose: str) -> Iterator[Sink]:
    for word in call.keywords:
        if word.arg in SHOWN:
            yield Sink(word.value, scope, f"the {word.arg} of {whose}")


def _made(flow: Flow, call: ast.Call, scope: Scope, maker: str, shown: set[ast.AST]) -> Iterator[Sink]:
    yield from _named(call, scope, "a tool")
    for place, given in zip(MAKERS[maker], call.args, strict=False):
        if place == "arguments":
            yield from _type(flow, given, scope, "the schema of a tool", shown)
        elif place:
            yield Sink(given, scope, f"the {place} of a tool")


def _function_named(flow: Flow, node: ast.AST, scope: Scope, shown: set[ast.AST]) -> Iterator[Sink]:
    found = flow.definition(node, scope)
    if found is not None and isinstance(found[0], ast.FunctionDef | ast.AsyncFunctionDef):
        yield from _function(flow, found[0], found[1], shown)


def _function(
    flow: Flow, function: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope, shown: set[ast.AST]
) -> Iterator[Sink]:
    """What the schema of a tool is made of: defaults and types."""
    if function in shown:
        return
    shown.add(function)
    for name, value in defaults_of(function):
        yield Sink(value, scope, f"the default of `{name}` in the schema of tool {function.name}")
    args = function.args
    for arg in (*args.args, *args.kwonlyargs):
        if arg.annotation is not None:
            what = f"the type of `{arg.arg}` in the schema of tool {function.name}"
            yield Sink(arg.annotation, scope, what)
            yield from _type(flow, arg.annotation, scope, what, shown)


def _type(flow: Flow, node: ast.AST, scope: Scope, what: str, shown: set[ast.AST]) -> Iterator[Sink]:
    """The fields of every class of the user's own that a type names."""
    for part in ast.walk(node):
        if not isinstance(part, ast.Name | ast.Attribute):
            continue
        found = flow.definition(part, scope)
        if found is None or not isinstance(found[0], ast.ClassDef) or found[0] in shown:
            continue
        shown.add(found[0])
        inside = found[1].module.scopes[found[0]]
        for field in found[0].body:
            if isinstance(field, ast.AnnAssign):
                if field.value is not None:
                    yield Sink(field.value, inside, what)
                yield Sink(field.annotation, inside, what)
                yield from _type(flow, field.annotation, inside, what, shown)
