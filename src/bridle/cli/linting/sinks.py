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
        if name in AGENTS:
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


def has_agents(flow: Flow, module: Module) -> bool:
    """Whether an agent or a tool is made while the file is loaded."""
    calls = (flow.full(call.func, scope) for call, scope in module.calls if scope is module.top)
    made = any(name in (*AGENTS, *TOOL) or name.rpartition(".")[2] in MAKERS for name in calls)
    return made or any(
        flow.full(decorator, scope) in TOOL
        for function, scope in module.functions
        if scope is module.top
        for decorator in function.decorator_list
    )


def _agent(flow: Flow, call: ast.Call, scope: Scope, shown: set[ast.AST]) -> Iterator[Sink]:
    for word in call.keywords:
        if word.arg == "instructions":
            yield Sink(word.value, scope, "the instructions of an agent")
        elif word.arg == "tools":
            yield Sink(word.value, scope, "the order of an agent's tools", ORDER)
            for item in getattr(word.value, "elts", ()):
                yield from _function_named(flow, item, scope, shown)
        elif word.arg == "output":
            yield Sink(word.value, scope, "the schema of an agent's answer")
            yield from _type(flow, word.value, scope, "the schema of an agent's answer", shown)


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
