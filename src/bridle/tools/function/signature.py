"""Reads a function's parameters as the fields of one object.

A model sends an object, so every parameter needs a name and a type: no positional-only parameters, no `*args`,
no `**kwargs`, no missing annotations.  Each error is one line that names the tool, the parameter and the fix.

Hidden from the model: the `RunContext` parameter, `self` of a method, and arguments fixed by a
`functools.partial`.
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple

from bridle.tools.schema.annotations import NoJsonForm, read_field_default, resolve_hints
from bridle.tools.schema.object_types import NO_DEFAULT, ObjectField

from .context_parameter import ContextParameter, is_context_annotation, read_context_type

_REFUSED_KINDS = {
    inspect.Parameter.POSITIONAL_ONLY: "is positional-only, but a model names its arguments; remove the `/`",
    inspect.Parameter.VAR_POSITIONAL: "takes any number of values; use one list, as in `{name}: list[str]`",
    inspect.Parameter.VAR_KEYWORD: "takes any names; use one dict, as in `{name}: dict[str, str]`",
}


class FunctionParameters(NamedTuple):
    fields: tuple[ObjectField, ...]
    context: ContextParameter | None
    """The parameter that receives the `RunContext`."""
    fallbacks: Mapping[str, Any]
    """Defaults inside pydantic's `Field(…)`, which Python does not apply."""
    returns_nothing: bool
    unbound: bool
    """A method that needs an instance before it can be called."""
    returns: Any = inspect.Signature.empty
    """The return annotation."""


def read_parameters(function: Callable[..., object], names: Mapping[str, Any]) -> FunctionParameters:
    """Read the parameters; `names` resolves annotations that are strings.  Raises `NoJsonForm`."""
    listed = _list_parameters(function)
    annotated = _annotation_owner(function)
    if not hasattr(annotated, "__annotations__"):
        raise NoJsonForm("it has no annotations (a built-in?); wrap it in a function of your own")
    hints = resolve_hints(annotated, names)
    fixed = set(function.keywords) if isinstance(function, functools.partial) else set()
    unbound = bool(listed) and _is_self_parameter(listed[0], hints, function)
    fields: list[ObjectField] = []
    context = None
    fallbacks: dict[str, Any] = {}
    for parameter in listed[unbound:]:
        name = parameter.name
        if name in fixed:
            continue
        if parameter.kind in _REFUSED_KINDS:
            raise NoJsonForm(_REFUSED_KINDS[parameter.kind].format(name=name), name)
        if name not in hints:
            raise NoJsonForm(f"has no annotation; write its type, as in `{name}: str`", name)
        if is_context_annotation(hints[name]):
            context = ContextParameter(name, read_context_type(hints[name]))
            continue
        field, fallback = _make_field(parameter, hints[name])
        fields.append(field)
        fallbacks |= fallback
    nothing = hints.get("return", type(None)) is type(None)
    returns = hints.get("return", inspect.Signature.empty)
    return FunctionParameters(tuple(fields), context, fallbacks, nothing, unbound, returns)


def _make_field(parameter: inspect.Parameter, annotation: Any) -> tuple[ObjectField, dict[str, Any]]:
    name, default = parameter.name, parameter.default
    if default is inspect.Parameter.empty:
        return ObjectField(name, annotation), {}
    inside = read_field_default(default)
    if inside is None:
        return ObjectField(name, annotation, False, default), {}
    notes, value, factory = inside
    annotation = Annotated[annotation, default]
    if factory is not None:
        return ObjectField(name, annotation, False, NO_DEFAULT, notes.description), {name: factory}
    if value is ...:
        return ObjectField(name, annotation, True, NO_DEFAULT, notes.description), {}
    return ObjectField(name, annotation, False, value, notes.description), {name: lambda: value}


def unwrap_partial(function: Any) -> Any:
    """The function inside any number of partials."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def has_own_annotations(function: object) -> bool:
    """True if the object itself has the annotations; a callable object has them on its class."""
    return inspect.isroutine(function) or hasattr(function, "__wrapped__")


def _annotation_owner(function: Any) -> Any:
    """The object whose annotations describe the parameters."""
    inner = unwrap_partial(function)
    return getattr(inner, "__func__", inner) if has_own_annotations(inner) else type(inner).__call__


def _list_parameters(function: Callable[..., object]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except ValueError:
        raise NoJsonForm("its signature cannot be read; wrap it in a function of your own") from None


def _is_self_parameter(first: inspect.Parameter, hints: Mapping[str, Any], function: object) -> bool:
    owner = getattr(function, "__qualname__", "").rpartition(".")[0]
    in_class = bool(owner) and not owner.endswith("<locals>")
    return first.name in ("self", "cls") and (in_class or first.name not in hints)
