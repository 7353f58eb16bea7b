"""Collects the tools of one agent by name, turning plain functions into tools.

Problems are reported in one line before anything runs: two tools with the same name, a method without its
object, a foreign tool with an invalid name or schema.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MethodType
from typing import Any, cast

from bridle.ports.sandbox import Sandbox
from bridle.ports.tool import ConfinableSource, Tool, ToolSource
from bridle.tools.function.function_tool import FunctionTool, is_unbound_method
from bridle.tools.function.options import ToolBehavior
from bridle.tools.function.raw_tool import RawTool
from bridle.tools.function.typed_tool import TypedTool
from bridle.tools.hosted import HostedTool
from bridle.tools.process.command_tool import CommandTool
from bridle.tools.schema.external_schema import parse_parameters_schema
from bridle.values.errors import BadTool
from bridle.values.request import ToolSpec

from .names import check_tool_name

ToolLike = Tool | Callable[..., object] | ToolSource
_OWN_KINDS = (CommandTool, FunctionTool, RawTool, TypedTool)


def split_sources(
    given: Iterable[ToolLike], sandbox: Sandbox | None = None
) -> tuple[Iterable[Any], tuple[ToolSource, ...]]:
    """The tools and the servers among what was given as tools; raises `BadTool` for two servers of one name.

    The programs of servers that name no sandbox are put into `sandbox`.
    """
    candidates: object = given
    if isinstance(candidates, str) or not isinstance(candidates, Iterable):
        return given, ()  # refused with the tools
    listed = tuple(given)
    sources = tuple(each for each in listed if not callable(each) and isinstance(each, ToolSource))
    names = [source.name for source in sources]
    for name in names:
        if names.count(name) > 1:
            raise BadTool(f"two servers have the name {name!r}; give one of them another with name=…")
    own = tuple(each for each in listed if each not in sources)
    if sandbox is None:
        return own, sources
    return own, tuple(
        each.with_sandbox(sandbox) if isinstance(each, ConfinableSource) else each for each in sources
    )


def collect_tools(tools: "Iterable[Tool | Callable[..., object]]") -> dict[str, Tool]:
    """The tools by name, in the given order, which is the order the model sees."""
    given: object = tools
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise BadTool(f"`tools` must be a list of functions and tools, not {tools!r}")
    found: dict[str, Tool] = {}
    for candidate in tools:
        made = _make_tool(candidate)
        name = made.spec.name
        for answering in made.answering_tools if isinstance(made, HostedTool) else ():
            if found.setdefault(answering.spec.name, answering) != answering:
                raise BadTool(
                    f"tool `{answering.spec.name}`: a hosted tool needs this name; rename the other tool"
                )
        if name in found:
            raise BadTool(f"tool `{name}`: two tools have this name; rename one with @tool(name=…)")
        found[name] = made
    _check_aliases(found)
    collect_compensations(found)  # report invalid compensations now, not when one is needed
    return found


def _check_aliases(tools: Mapping[str, Tool]) -> None:
    owners: dict[str, str] = {}
    for name, made in tools.items():
        for alias in made.spec.aliases:
            if alias in tools or owners.setdefault(alias, name) != name:
                other = alias if alias in tools else owners[alias]
                raise BadTool(
                    f"tool `{name}`: its alias {alias!r} also means the tool `{other}`; remove one of them"
                )


def collect_compensations(*collections: Mapping[str, Tool]) -> dict[str, Tool]:
    """The tools that undo calls of these tools, by name; functions are turned into tools."""
    found: dict[str, Tool] = {}
    given: dict[str, tuple[Callable[..., object], object]] = {}
    for made in (tool for tools in collections for tool in tools.values()):
        behavior = getattr(made, "behavior", None)
        if isinstance(behavior, ToolBehavior) and behavior.compensate is not None:
            name, owner = (
                made.spec.compensation,
                getattr(getattr(made, "__wrapped__", None), "__self__", None),
            )
            function, first_owner = given.setdefault(name, (behavior.compensate, owner))
            if function != behavior.compensate or first_owner is not owner:
                raise BadTool(
                    f"tool `{made.spec.name}`: another tool has a different compensation named `{name}`;"
                    " rename one"
                )
            found[name] = _make_tool(behavior.compensate, name, owner)
    return found


def _make_tool(
    candidate: "Tool | Callable[..., object]", name: str | None = None, owner: object = None
) -> Tool:
    """Turn a candidate into a tool; `name` is for a nameless function, `owner` for an unbound method."""
    if isinstance(candidate, MethodType) and isinstance(candidate.__func__, FunctionTool):
        # A classmethod around a tool: newer Pythons bind it without calling `__get__` of the tool.
        return cast("Tool", candidate.__func__.__get__(candidate.__self__))
    if isinstance(candidate, _OWN_KINDS):
        return cast("Tool", _bind_method(candidate, owner))
    spec = getattr(candidate, "spec", None)
    if isinstance(spec, ToolSpec) and hasattr(candidate, "run"):
        check_tool_name(spec.name)
        if spec.native is None:
            try:
                parse_parameters_schema(spec.parameters)
            except ValueError as error:
                raise BadTool(f"tool `{spec.name}`: its schema {error}") from None
        return cast("Tool", candidate)
    if callable(candidate):
        return cast("Tool", _bind_method(FunctionTool(candidate, name=name), owner))
    raise BadTool(f"{candidate!r} is not a tool; pass functions, or objects with `spec` and `run`")


def _bind_method(made: object, owner: object) -> object:
    if not isinstance(made, FunctionTool) or not is_unbound_method(made):
        return made
    if owner is None:
        raise BadTool(f"tool `{made.spec.name}`: it is an unbound method; take it from an instance")
    return made.__get__(owner)
