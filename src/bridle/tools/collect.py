"""The tools of one agent, by name.

Plain functions are welcome among them and are made tools here.  What is found wrong is
one line, before anything runs: two tools of one name, a method without its object, or a
tool from elsewhere that says something no provider would accept.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MethodType
from typing import cast

from ..ports.tool import Tool
from ..values.errors import BadTool
from ..values.request import ToolSpec
from .command import CommandTool
from .conduct import Conduct
from .function import FunctionTool, needs_object
from .given import given_parameters
from .names import check_name
from .raw import RawTool
from .typed import TypedTool

_OWN = (CommandTool, FunctionTool, RawTool, TypedTool)


def collect(tools: "Iterable[Tool | Callable[..., object]]") -> dict[str, Tool]:
    """In the order given, which is the order in which they are shown to the model."""
    found: dict[str, Tool] = {}
    for candidate in tools:
        made = _tool(candidate)
        name = made.spec.name
        if name in found:
            raise BadTool(
                f"tool `{name}`: there are two of that name; give one another name with @tool(name=…)"
            )
        found[name] = made
    return found


def compensating(tools: Mapping[str, Tool]) -> dict[str, Tool]:
    """What undoes the calls of these tools, by name; a function among them is made a tool here."""
    found: dict[str, Tool] = {}
    for made in tools.values():
        conduct = getattr(made, "conduct", None)
        if isinstance(conduct, Conduct) and conduct.compensate is not None:
            found[made.spec.compensation] = _tool(conduct.compensate)
    return found


def _tool(candidate: "Tool | Callable[..., object]") -> Tool:
    if isinstance(candidate, MethodType) and isinstance(candidate.__func__, FunctionTool):
        # A classmethod around a tool: newer Pythons bind it themselves, without asking the tool.
        return cast("Tool", candidate.__func__.__get__(candidate.__self__))
    if isinstance(candidate, _OWN):
        if needs_object(candidate):
            raise BadTool(
                f"tool `{candidate.spec.name}`: it is a method without its object; take it from an instance"
            )
        return cast("Tool", candidate)
    spec = getattr(candidate, "spec", None)
    if isinstance(spec, ToolSpec) and hasattr(candidate, "run"):
        check_name(spec.name)
        if spec.native is None:
            try:
                given_parameters(spec.parameters)
            except ValueError as error:
                raise BadTool(f"tool `{spec.name}`: its schema {error}") from None
        return cast("Tool", candidate)
    if callable(candidate):
        return FunctionTool(candidate)
    raise BadTool(f"{candidate!r} is no tool; pass functions, or objects with `spec` and `run`")
