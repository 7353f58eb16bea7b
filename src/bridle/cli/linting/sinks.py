"""Finds the expressions that become part of every prompt: instructions, and names, descriptions and schemas of tools.

Text of a single turn is not checked: that is where volatile facts belong.
"""

import ast
from collections.abc import Iterator
from typing import NamedTuple

from .data_flow import DataFlow, list_defaults
from .scopes import NameScope, ParsedModule

AGENT_NAMES = ("bridle.Agent", "bridle.run.agent.Agent")
TOOL_NAMES = ("bridle.tool", "bridle.tools.function.function_tool.tool")
TOOL_CLASSES = {
    "RawTool": ("name", "description", "schema", ""),
    "TypedTool": ("arguments", "", "name", "description"),
    "CommandTool": ("name", "description", "", "parameters"),
}
"""Positional parameters of each tool class; empty for those that do not reach a prompt."""
PARTIAL_NAME, SUPER_INIT = "functools.partial", "super().__init__"
VISIBLE_PARAMETERS = ("name", "description", "schema", "parameters")
ALL_RULES: frozenset[str] = frozenset()
ORDER_RULES = frozenset({"unordered"})
"""For a list of tools only the order matters."""


class PromptSink(NamedTuple):
    node: ast.AST
    scope: NameScope
    what: str
    rules: frozenset[str] = ALL_RULES
    """The rules that apply; empty for all."""


def list_sinks(flow: DataFlow, module: ParsedModule) -> Iterator[PromptSink]:
    shown: set[ast.AST] = set()
    for call, scope in module.calls:
        name = flow.qualified_name(call.func, scope)
        maker = name.rpartition(".")[2]
        if name in AGENT_NAMES or _is_agent_call(flow, call, scope, name):
            yield from _agent_sinks(flow, call, scope, shown)
        elif name in TOOL_NAMES:
            yield from _keyword_sinks(call, scope, "a tool")
            for given in call.args[:1]:
                yield from _named_function_sinks(flow, given, scope, shown)
        elif name.startswith("bridle.") and maker in TOOL_CLASSES:
            yield from _tool_sinks(flow, call, scope, maker, shown)
    for function, scope in module.functions:
        for decorator in function.decorator_list:
            made = decorator.func if isinstance(decorator, ast.Call) else decorator
            if flow.qualified_name(made, scope) in TOOL_NAMES:
                yield from _function_sinks(flow, function, scope, shown)
    yield from _docstring_sinks(flow, module, shown)


def makes_agents(flow: DataFlow, module: ParsedModule) -> bool:
    """True if loading the file creates an agent or a tool."""
    calls = [
        (flow.qualified_name(call.func, scope), call) for call, scope in module.calls if scope is module.top
    ]
    made = any(
        name in (*AGENT_NAMES, *TOOL_NAMES) or name.rpartition(".")[2] in TOOL_CLASSES for name, _ in calls
    )
    kinds = (_is_agent_call(flow, call, module.top, name) for name, call in calls)
    return (
        made
        or any(kinds)
        or any(
            flow.qualified_name(decorator, scope) in TOOL_NAMES
            for function, scope in module.functions
            if scope is module.top
            for decorator in function.decorator_list
        )
    )


def _is_agent_call(flow: DataFlow, call: ast.Call, scope: NameScope, name: str) -> bool:
    """True if the call creates an agent indirectly: through a subclass, its `super().__init__`, or a partial."""
    if name == PARTIAL_NAME:
        return any(flow.qualified_name(given, scope) in AGENT_NAMES for given in call.args[:1])
    own = flow.find_definition(call.func, scope)
    kind = own[0] if own is not None else None
    if ast.unparse(call.func) == SUPER_INIT and scope.owner is not None:
        kind = scope.owner.node
    bases = kind.bases if isinstance(kind, ast.ClassDef) else []
    where = own[1] if own is not None else scope.module.top
    plain = (base.value if isinstance(base, ast.Subscript) else base for base in bases)
    return any(flow.qualified_name(base, where) in AGENT_NAMES for base in plain)


def _agent_sinks(
    flow: DataFlow, call: ast.Call, scope: NameScope, shown: set[ast.AST]
) -> Iterator[PromptSink]:
    for name, value, where in _keyword_arguments(flow, call, scope):
        if name == "instructions":
            yield PromptSink(value, where, "the instructions of an agent")
        elif name == "tools":
            yield PromptSink(value, where, "the order of an agent's tools", ORDER_RULES)
            for item in getattr(value, "elts", ()):
                yield from _named_function_sinks(flow, item, where, shown)
        elif name == "output":
            yield PromptSink(value, where, "the schema of an agent's answer")
            yield from _type_sinks(flow, value, where, "the schema of an agent's answer", shown)


def _keyword_arguments(
    flow: DataFlow, call: ast.Call, scope: NameScope
) -> Iterator[tuple[str, ast.AST, NameScope]]:
    """The keyword arguments of a call, including those of an unpacked dict literal."""
    for word in call.keywords:
        if word.arg is not None:
            yield word.arg, word.value, scope
            continue
        for given, where in flow.find_values(word.value, scope):
            if isinstance(given, ast.Dict):
                for key, value in zip(given.keys, given.values, strict=True):
                    if isinstance(key, ast.Constant):
                        yield str(key.value), value, where
            elif isinstance(given, ast.Call) and flow.qualified_name(given.func, where) == "dict":
                yield from _keyword_arguments(flow, given, where)


def _docstring_sinks(flow: DataFlow, module: ParsedModule, shown: set[ast.AST]) -> Iterator[PromptSink]:
    """Assignments such as `look.__doc__ = …`, which build a docstring from other values."""
    for node in module.tree.body:
        for target in node.targets if isinstance(node, ast.Assign) else ():
            if isinstance(target, ast.Attribute) and target.attr == "__doc__":
                found = flow.find_definition(target.value, module.top)
                if isinstance(node, ast.Assign) and found is not None and found[0] in shown:
                    yield PromptSink(node.value, module.top, "the description of a tool")


def _keyword_sinks(call: ast.Call, scope: NameScope, whose: str) -> Iterator[PromptSink]:
    for word in call.keywords:
        if word.arg in VISIBLE_PARAMETERS:
            yield PromptSink(word.value, scope, f"the {word.arg} of {whose}")


def _tool_sinks(
    flow: DataFlow, call: ast.Call, scope: NameScope, maker: str, shown: set[ast.AST]
) -> Iterator[PromptSink]:
    yield from _keyword_sinks(call, scope, "a tool")
    for place, given in zip(TOOL_CLASSES[maker], call.args, strict=False):
        if place == "arguments":
            yield from _type_sinks(flow, given, scope, "the schema of a tool", shown)
        elif place:
            yield PromptSink(given, scope, f"the {place} of a tool")


def _named_function_sinks(
    flow: DataFlow, node: ast.AST, scope: NameScope, shown: set[ast.AST]
) -> Iterator[PromptSink]:
    found = flow.find_definition(node, scope)
    if found is not None and isinstance(found[0], ast.FunctionDef | ast.AsyncFunctionDef):
        yield from _function_sinks(flow, found[0], found[1], shown)


def _function_sinks(
    flow: DataFlow, function: ast.FunctionDef | ast.AsyncFunctionDef, scope: NameScope, shown: set[ast.AST]
) -> Iterator[PromptSink]:
    """The defaults and types that make up the schema of a tool."""
    if function in shown:
        return
    shown.add(function)
    for name, value in list_defaults(function):
        yield PromptSink(value, scope, f"the default of `{name}` in the schema of tool {function.name}")
    args = function.args
    for arg in (*args.args, *args.kwonlyargs):
        if arg.annotation is not None:
            what = f"the type of `{arg.arg}` in the schema of tool {function.name}"
            yield PromptSink(arg.annotation, scope, what)
            yield from _type_sinks(flow, arg.annotation, scope, what, shown)


def _type_sinks(
    flow: DataFlow, node: ast.AST, scope: NameScope, what: str, shown: set[ast.AST]
) -> Iterator[PromptSink]:
    """The fields of the user's classes that a type refers to."""
    for part in ast.walk(node):
        if not isinstance(part, ast.Name | ast.Attribute):
            continue
        found = flow.find_definition(part, scope)
        if found is None or not isinstance(found[0], ast.ClassDef) or found[0] in shown:
            continue
        shown.add(found[0])
        inside = found[1].module.scopes[found[0]]
        for field in found[0].body:
            if isinstance(field, ast.AnnAssign):
                if field.value is not None:
                    yield PromptSink(field.value, inside, what)
                yield PromptSink(field.annotation, inside, what)
                yield from _type_sinks(flow, field.annotation, inside, what, shown)
