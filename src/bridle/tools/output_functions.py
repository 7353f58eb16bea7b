"""Output functions: the model calls one to give its answer, and what it returns is the answer.

    def book(flight: str, seats: int) -> Booking: ...

    agent = Agent("…", output=book)

The function is a tool with an effect of its own: it never runs beside another call, and no call runs after it accepted
one.  Its value is recorded as JSON and read by its return annotation, so that a resumed run does not call it again.
"""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from types import MethodType
from typing import Any, NoReturn, cast

import msgspec
from msgspec.structs import replace

from bridle.ports.run_context import RunContext
from bridle.ports.tool import Json, Tool
from bridle.tools.function.function_tool import FunctionTool
from bridle.tools.function.invoker import FunctionInvoker
from bridle.tools.schema.output_type import OutputType, make_output_type
from bridle.values.errors import MisuseError
from bridle.values.message import Media, Text
from bridle.values.request import ToolSpec

from .collect_tools import collect_tools


class OutputFunction(FunctionTool[..., object, Any]):
    """A tool whose value is the answer of the run."""

    def __init__(self, tool: FunctionTool[..., object, Any], returned: OutputType[Any]) -> None:
        vars(self).update(vars(tool))
        self.spec = replace(tool.spec, effect="exclusive", always_visible=True)
        self._invoker = _AnswerInvoker(self._invoker, tool.spec.name, returned)


OutputFunctions = Mapping[str, OutputFunction]


def make_output(wanted: object) -> tuple[OutputType[Any], OutputFunctions]:
    """The output type of an agent, and its output functions by name; raises `MisuseError` for bad ones."""
    listed = list(wanted) if isinstance(wanted, list | tuple) else [wanted]
    given = [cast("Callable[..., object]", each) for each in listed if _is_function(each)]
    if not given:
        return make_output_type(wanted), {}
    types = [each for each in listed if not _is_function(each)]
    functions: dict[str, OutputFunction] = {}
    returned: dict[str, OutputType[Any]] = {}
    for name, tool in collect_tools(given).items():
        made = cast("FunctionTool[..., object, Any]", tool)
        _check_behavior(made.spec)
        returned[name] = _read_return_type(name, made.return_type)
        functions[name] = OutputFunction(made, returned[name])
    accepted: OutputType[Any] = OutputType("", "", "", _refuse_answer)
    if types:
        accepted = cast("OutputType[Any]", make_output_type(types))
    return accepted._replace(functions=returned), functions


def add_output_functions(
    tools: Mapping[str, Tool], functions: OutputFunctions, validators: Sequence[object]
) -> dict[str, Tool]:
    """The tools and the output functions; raises `MisuseError` for a name used twice, and for validators."""
    if validators:
        raise MisuseError(
            "`validate` cannot check an output function; raise ModelRetry in the function instead"
        )
    for name in functions:
        if name in tools:
            raise MisuseError(f"an output function and a tool are both named {name!r}; rename one")
    return {**tools, **functions}


def _is_function(wanted: object) -> bool:
    if isinstance(wanted, FunctionTool) or inspect.isroutine(wanted) or isinstance(wanted, functools.partial):
        return True
    if isinstance(wanted, MethodType) or not isinstance(spec := getattr(wanted, "spec", None), ToolSpec):
        return False
    raise MisuseError(f"`output` takes types and functions, not the tool `{spec.name}`; pass its function")


def _check_behavior(spec: ToolSpec) -> None:
    """Raise `MisuseError` for an option of `@tool` that has no meaning for an answer."""
    option = ""
    if spec.effect not in ("undeclared", "exclusive"):
        option = f"effect={spec.effect!r}: it runs alone, because its result ends the run"
    elif spec.on_unknown in ("probe", "ask"):
        option = f"on_unknown={spec.on_unknown!r}: its value cannot be found later; use 'retry' or 'report'"
    elif spec.once_per is not None:
        option = "once_per: a call that it accepts ends the run"
    if option:
        raise MisuseError(f"output function `{spec.name}` cannot have {option}")


def _read_return_type(name: str, annotation: object) -> OutputType[Any]:
    if annotation is inspect.Signature.empty:
        raise MisuseError(
            f"output function `{name}`: it has no return annotation; write the type of the answer, as in `-> int`"
        )
    try:
        return make_output_type(annotation)
    except MisuseError as error:
        raise MisuseError(f"output function `{name}`: its return type cannot be recorded; {error}") from None


def _refuse_answer(_: Json) -> NoReturn:
    raise ValueError("the answer is given by an output function")


class _AnswerInvoker(FunctionInvoker):
    """Calls an output function; the one part of its result is the answer as JSON."""

    def __init__(self, invoker: FunctionInvoker, name: str, returned: OutputType[Any]) -> None:
        self._invoker, self._name, self._returned = invoker, name, returned
        self.context_type = invoker.context_type

    async def __call__(
        self, positional: Sequence[Any], named: Mapping[str, Any], context: RunContext
    ) -> tuple[Text | Media, ...]:
        value = await self._invoker.call(positional, named, context)
        try:
            answer = self._returned.dump_text(value)
            self._returned.convert(msgspec.json.decode(answer))
        except Exception as error:
            raise TypeError(
                f"output function `{self._name}` returned {value!r}, which is not of its return type: {error}"
            ) from error
        return (Text(text=answer),)
