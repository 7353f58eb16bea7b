"""The tools of one agent, by name.

Plain functions are welcome among them and are made tools here.  What is found wrong is
one line, before anything runs: two tools of one name, a method without its object, or a
tool from elsewhere that says something no provider would accept.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MethodType
from typing import cast

from bridle.ports.tool import Tool
from bridle.tools.function.function_tool import FunctionTool, is_unbound_method
from bridle.tools.function.options import ToolBehavior
from bridle.tools.function.raw_tool import RawTool
from bridle.tools.function.typed_tool import TypedTool
from bridle.tools.process.command_tool import CommandTool
from bridle.tools.schema.external_schema import parse_parameters_schema
from bridle.values.errors import BadTool
from bridle.values.request import ToolSpec

from .names import check_tool_name

_OWN_KINDS = (CommandTool, FunctionTool, RawTool, TypedTool)


def collect_tools(tools: "Iterable[Tool | Callable[..., object]]") -> dict[str, Tool]:
    """In the order given, which is the order in which they are shown to the model."""
    given: object = tools
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise BadTool(f"tools are a list of functions and tools, not {tools!r}")
    found: dict[str, Tool] = {}
    for candidate in tools:
        made = _make_tool(candidate)
        name = made.spec.name
        if name in found:
            raise BadTool(
                f"tool `{name}`: there are two of that name; give one another name with @tool(name=…)"
            )
        found[name] = made
    collect_compensations(found)  # what cannot undo anything is to be found now, not when it is needed
    return found


def collect_compensations(tools: Mapping[str, Tool]) -> dict[str, Tool]:
    """What undoes the calls of these tools, by name; a function among them is made a tool here."""
    found: dict[str, Tool] = {}
    given: dict[str, tuple[Callable[..., object], object]] = {}
    for made in tools.values():
        conduct = getattr(made, "behavior", None)
        if isinstance(conduct, ToolBehavior) and conduct.compensate is not None:
            name, owner = (
                made.spec.compensation,
                getattr(getattr(made, "__wrapped__", None), "__self__", None),
            )
            undo, whose = given.setdefault(name, (conduct.compensate, owner))
            if undo != conduct.compensate or whose is not owner:
                raise BadTool(
                    f"tool `{made.spec.name}`: it is undone by `{name}`, and so is another tool by another"
                    " function of that name; give one another name"
                )
            found[name] = _make_tool(conduct.compensate, name, owner)
    return found


def _make_tool(
    candidate: "Tool | Callable[..., object]", name: str | None = None, owner: object = None
) -> Tool:
    """`name` is for a function that has none of its own, `owner` for a method without its object."""
    if isinstance(candidate, MethodType) and isinstance(candidate.__func__, FunctionTool):
        # A classmethod around a tool: newer Pythons bind it themselves, without asking the tool.
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
    raise BadTool(f"{candidate!r} is no tool; pass functions, or objects with `spec` and `run`")


def _bind_method(made: object, owner: object) -> object:
    if not isinstance(made, FunctionTool) or not is_unbound_method(made):
        return made
    if owner is None:
        raise BadTool(f"tool `{made.spec.name}`: it is a method without its object; take it from an instance")
    return made.__get__(owner)
