"""A tool from a Python function.

    @tool
    def get_weather(city: str) -> str:
        "Current weather for a city."

The name, the description and the parameters come from the function itself; what is
written in the parentheses of `@tool(…)` wins.  What `@tool` makes is still the function:
it can be called, keeps its name, its docstring and its signature, and inside a class it
is still a method.

Everything that could be wrong with a signature is found here, when the module is loaded,
and is a `BadTool` with one line.  Running is strict: arguments that are not of the
declared types never reach the function.
"""

import copy
import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Concatenate, Generic, NoReturn, ParamSpec, TypeVar, Unpack, cast, overload

from ..ports.tool import CallContext, Json
from ..values.errors import BadTool
from ..values.parts import Media, Text
from ..values.request import ToolSpec
from .annotations import NoJsonForm
from .body import Body
from .conduct import Conduct, ToolOptions
from .docstring import read_docstring
from .document import schema_text
from .names import check_name
from .objects import Form
from .schema import Shapes
from .signature import innermost, read_parameters, speaks_for_itself

P = ParamSpec("P")
Q = ParamSpec("Q")
R_co = TypeVar("R_co", covariant=True)
S = TypeVar("S")


@overload
def tool(
    function: Callable[P, R_co],
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    **options: Unpack[ToolOptions],
) -> "FunctionTool[P, R_co]": ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    **options: Unpack[ToolOptions],
) -> Callable[[Callable[P, R_co]], "FunctionTool[P, R_co]"]: ...


def tool(
    function: Callable[P, R_co] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    **options: Unpack[ToolOptions],
) -> "FunctionTool[P, R_co] | Callable[[Callable[P, R_co]], FunctionTool[P, R_co]]":
    """Make a function callable by a model.

    What else can be said of it, all optional: `effect`, `resource`, `approve`, `timeout`, `on_unknown`,
    `probe`, `once_per`, `at_once`, `compensate`; see `ToolOptions`.
    """
    seen = sys._getframe(1).f_locals  # a type defined beside the tool inside a function is found nowhere else

    def made(function: Callable[P, R_co]) -> FunctionTool[P, R_co]:
        return FunctionTool(
            function,
            name=name,
            description=description,
            names=seen,
            **options,
        )

    return made if function is None else made(function)


class FunctionTool(Generic[P, R_co]):
    """A function as a tool, and still the function.  Make one with `tool`."""

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
        """`names`: what can be seen where the function was written, for annotations that are strings."""
        function = _ready(function)
        called = name or _name_of(function)
        check_name(called)
        doc = read_docstring(_docstring_of(function))
        try:
            parameters = read_parameters(function, names or {})
            fields = tuple(
                field._replace(description=field.description or doc.parameters.get(field.name, ""))
                for field in parameters.fields
            )
            shapes = Shapes(names)
            shape = shapes.object(Form(called, fields, dict))
        except NoJsonForm as refusal:
            where = f"parameter `{refusal.path}` " if refusal.path else ""
            raise BadTool(f"tool `{called}`: {where}{refusal.what}") from None
        functools.update_wrapper(cast("Callable[P, R_co]", self), function)
        self.__name__ = getattr(function, "__name__", called)
        self.conduct = Conduct(
            called,
            doc.description if description is None else description,
            schema_text(shapes.document(shape.schema)),
            options,
        )
        self.spec = self.conduct.spec
        self.claim, self.probe = self.conduct.claim, self.conduct.probe
        self._function = function
        self.unseen_defaults = shapes.unseen_defaults
        self._load = shape.load
        self._fallbacks = parameters.fallbacks
        self._unbound = parameters.unbound
        self._body = Body(called, function, parameters.context, returns_nothing=parameters.returns_nothing)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        return self._function(*args, **kwargs)

    async def run(self, arguments: Mapping[str, Json], context: CallContext) -> tuple[Text | Media, ...]:
        """Raises ValueError for arguments of another shape, and whatever the function raises."""
        if self._unbound:
            self._refuse_unbound()
        given = self._load(arguments)
        for name, fallback in self._fallbacks.items():
            if name not in given:
                given[name] = fallback()
        return await self._body((), given, context)

    @overload
    def __get__(self, instance: None, owner: type) -> "FunctionTool[P, R_co]": ...

    @overload
    def __get__(
        self: "FunctionTool[Concatenate[S, Q], R_co]", instance: S, owner: type | None = None
    ) -> "FunctionTool[Q, R_co]": ...

    def __get__(self, instance: object, owner: type | None = None) -> object:
        """As with any function in a class: seen through an object, it is a method of that object."""
        if instance is None or not self._unbound:
            return self
        method = cast("Callable[..., object]", self._function.__get__(instance, owner))
        bound = copy.copy(self)
        functools.update_wrapper(cast("Callable[P, R_co]", bound), method)
        bound._function = cast("Callable[P, R_co]", method)
        bound._body = self._body.around(method)
        bound._unbound = False
        return bound

    def __repr__(self) -> str:
        return f"<tool {self.spec.name}>"

    def _refuse_unbound(self) -> NoReturn:
        owner, _, method = getattr(self._function, "__qualname__", "").rpartition(".")
        raise BadTool(
            f"tool `{self.spec.name}`: it is a method without its object; pass `{owner}(…).{method}`"
        )


def needs_object(candidate: object) -> bool:
    """Whether this is a method taken from its class instead of from an object."""
    return isinstance(candidate, FunctionTool) and candidate._unbound


def _ready(function: Callable[P, R_co]) -> Callable[P, R_co]:
    """The function to call, or one line about why there is none."""
    if isinstance(function, staticmethod):
        function = cast("Callable[P, R_co]", function.__func__)
    name = getattr(function, "__name__", type(function).__name__)
    if isinstance(function, FunctionTool):
        raise BadTool(f"tool `{name}`: it is a tool already; use @tool once")
    if isinstance(function, type):
        raise BadTool(
            f"tool `{name}`: it is a class; use TypedTool({name}, run=…), or put @tool on a function"
        )
    if isinstance(function, classmethod):
        raise BadTool(f"tool `{name}`: it is a classmethod already; write @classmethod above @tool")
    if not callable(function):
        raise BadTool(f"tool `{name}`: it cannot be called; put @tool on a function")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise BadTool(f"tool `{name}`: it yields, but a model gets one answer; return a list instead")
    return function


def _name_of(function: object) -> str:
    inner = innermost(function)
    return str(getattr(inner, "__name__", type(inner).__name__))


def _docstring_of(function: object) -> str | None:
    inner = innermost(function)
    return inspect.getdoc(inner if speaks_for_itself(inner) else type(inner).__call__) or inspect.getdoc(
        type(inner)
    )
