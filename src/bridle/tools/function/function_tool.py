"""Makes a tool from a Python function.

    @tool
    def get_weather(city: str) -> str:
        "Current weather for a city."

Name, description and parameters come from the function; arguments of `@tool(…)` override them.  The result is
still the function: it can be called, has its name, docstring and signature, and works as a method in a class.

An invalid signature raises `BadTool` with one line when the module is loaded.  Arguments that do not match the
declared types never reach the function.
"""

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from typing import (
    TYPE_CHECKING,
    Concatenate,
    Generic,
    NoReturn,
    ParamSpec,
    Protocol,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from bridle.ports.run_context import RunContext
from bridle.ports.tool import Json
from bridle.tools.names import check_tool_name
from bridle.tools.schema.annotations import NoJsonForm
from bridle.tools.schema.builder import SchemaBuilder
from bridle.tools.schema.docstring import read_docstring
from bridle.tools.schema.document import encode_schema
from bridle.tools.schema.object_types import ObjectType
from bridle.values.errors import BadTool
from bridle.values.message import Media, Text
from bridle.values.request import ToolSpec

from .invoker import FunctionInvoker
from .options import DeclaredTool, ToolBehavior, ToolOptions
from .signature import has_own_annotations, read_parameters, unwrap_partial

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    C_contra = TypeVarWithDefault("C_contra", contravariant=True, default=object)
else:
    C_contra = TypeVar("C_contra", contravariant=True)

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
S = TypeVar("S")
C = TypeVar("C")
R_co = TypeVar("R_co", covariant=True)


class ToolDecorator(Protocol):
    """`@tool(…)`: makes a tool of a function and keeps its types."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[RunContext[C], P], R], /
    ) -> "FunctionTool[Concatenate[RunContext[C], P], R, C]": ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> "FunctionTool[P, R]": ...


@overload
def tool(
    function: Callable[Concatenate[RunContext[C], P], R],
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    **options: Unpack[ToolOptions],
) -> "FunctionTool[Concatenate[RunContext[C], P], R, C]": ...


@overload
def tool(
    function: Callable[P, R],
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    **options: Unpack[ToolOptions],
) -> "FunctionTool[P, R]": ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    **options: Unpack[ToolOptions],
) -> ToolDecorator: ...


def tool(
    function: Callable[..., object] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    **options: Unpack[ToolOptions],
) -> object:
    """Make a function callable by a model.

    `ToolOptions` documents the optional arguments: `effect`, `resource`, `approve`, `timeout`, `on_unknown`,
    `probe`, `once_per`, `at_once`, `compensate`, `always`, `errors`, `aliases`, `upgrade`.
    """
    local_names = sys._getframe(1).f_locals  # for annotations that name types local to a function

    def make_tool(function: Callable[P, R]) -> "FunctionTool[P, R]":
        return FunctionTool(
            function,
            name=name,
            description=description,
            names=local_names,
            **options,
        )

    return make_tool if function is None else make_tool(function)


class FunctionTool(DeclaredTool, Generic[P, R_co, C_contra]):
    """A function that is also a tool.  Make one with `tool`."""

    spec: ToolSpec

    def __init__(
        self,
        function: Callable[P, R_co],
        *,
        name: str | None = None,
        description: str | None = None,
        names: Mapping[str, object] | None = None,
        **options: Unpack[ToolOptions],
    ) -> None:
        """Read the function's signature.  `names` resolves annotations that are strings."""
        function = _check_function(function)
        tool_name = name or _function_name(function)
        check_tool_name(tool_name)
        doc = read_docstring(_function_docstring(function))
        try:
            parameters = read_parameters(function, names or {})
            fields = tuple(
                field._replace(description=field.description or doc.parameters.get(field.name, ""))
                for field in parameters.fields
            )
            builder = SchemaBuilder(names)
            schema = builder.read_object(ObjectType(tool_name, fields, dict))
        except NoJsonForm as error:
            where = f"parameter `{error.path}` " if error.path else ""
            raise BadTool(f"tool `{tool_name}`: {where}{error.what}") from None
        functools.update_wrapper(cast("Callable[P, R_co]", self), function)
        self.__name__ = getattr(function, "__name__", tool_name)
        behavior = ToolBehavior(
            tool_name,
            doc.description if description is None else description,
            encode_schema(builder.make_document(schema.schema)),
            options,
        )
        self._function = function
        self.unseen_defaults = builder.unseen_defaults
        self._load = schema.load
        self._fallbacks = parameters.fallbacks
        self._is_unbound = parameters.unbound
        self.return_type = parameters.returns
        self._invoker = FunctionInvoker(
            tool_name, function, parameters.context, returns_nothing=parameters.returns_nothing
        )
        super().__init__(behavior, self._invoker.context_type)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        return self._function(*args, **kwargs)

    async def run(
        self, arguments: Mapping[str, Json], context: RunContext[C_contra]
    ) -> tuple[Text | Media, ...]:
        """Call the function; raises ValueError for invalid arguments, and what the function raises."""
        if self._is_unbound:
            self._refuse_unbound()
        given = self._load(arguments)
        for name, fallback in self._fallbacks.items():
            if name not in given:
                given[name] = fallback()
        return await self._invoker((), given, context)

    @overload
    def __get__(self, instance: None, owner: type) -> "FunctionTool[P, R_co, C_contra]": ...

    @overload
    def __get__(
        self: "FunctionTool[Concatenate[S, Q], R]", instance: S, owner: type | None = None
    ) -> "FunctionTool[Q, R]": ...

    def __get__(self, instance: object, owner: type | None = None) -> object:
        """Bind to an instance, like any function in a class."""
        if instance is None or not self._is_unbound:
            return self
        method = cast("Callable[..., object]", self._function.__get__(instance, owner))
        bound = object.__new__(type(self))
        bound.__dict__.update(self.__dict__)
        functools.update_wrapper(cast("Callable[P, R_co]", bound), method)
        bound._function = cast("Callable[P, R_co]", method)
        bound._invoker = self._invoker.with_function(method)
        bound._is_unbound = False
        return bound

    def _refuse_unbound(self) -> NoReturn:
        owner, _, method = getattr(self._function, "__qualname__", "").rpartition(".")
        raise BadTool(f"tool `{self.spec.name}`: it is an unbound method; pass `{owner}(…).{method}`")


def is_unbound_method(candidate: object) -> bool:
    """True for a method taken from its class instead of from an instance."""
    return isinstance(candidate, FunctionTool) and candidate._is_unbound


def _check_function(function: Callable[P, R_co]) -> Callable[P, R_co]:
    """Return the function to call; raises `BadTool` if it cannot be a tool."""
    if isinstance(function, staticmethod):
        function = cast("Callable[P, R_co]", function.__func__)
    name = getattr(function, "__name__", type(function).__name__)
    if isinstance(function, FunctionTool):
        raise BadTool(f"tool `{name}`: it is already a tool; use @tool once")
    if isinstance(function, type):
        raise BadTool(
            f"tool `{name}`: it is a class; use TypedTool({name}, run=…), or put @tool on a function"
        )
    if isinstance(function, classmethod):
        raise BadTool(f"tool `{name}`: it is already a classmethod; write @classmethod above @tool")
    if not callable(function):
        raise BadTool(f"tool `{name}`: it is not callable; put @tool on a function")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise BadTool(f"tool `{name}`: generators are not supported; return a list instead")
    return function


def _function_name(function: object) -> str:
    inner = unwrap_partial(function)
    return str(getattr(inner, "__name__", type(inner).__name__))


def _function_docstring(function: object) -> str | None:
    inner = unwrap_partial(function)
    return inspect.getdoc(inner if has_own_annotations(inner) else type(inner).__call__) or inspect.getdoc(
        type(inner)
    )
