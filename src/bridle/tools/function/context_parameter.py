"""Finds the parameter of a function that receives the `RunContext`, and the type of context it needs.

def look_up(ctx: RunContext[Clinic], patient: str) -> str      needs a run with a Clinic as its context
def pay(amount: int, ctx: RunContext) -> str                   takes any context, or none
"""

import inspect
import re
from collections.abc import Callable
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from bridle.ports.run_context import RunContext

_NAMED_CONTEXT = re.compile(rf"\b{RunContext.__name__}\b(?:\[(?P<type>.*)\])?")


class ContextParameter(NamedTuple):
    name: str
    type: object
    """Type of the context that is needed, or its name if it cannot be resolved; None if any will do."""


def find_context_parameter(function: Callable[..., object]) -> ContextParameter | None:
    """The parameter annotated `RunContext`; None if there is none."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return None
    for name, parameter in parameters.items():
        if is_context_annotation(parameter.annotation):
            return ContextParameter(name, read_context_type(_resolve_annotation(function, parameter)))
    return None


def is_context_annotation(annotation: object) -> bool:
    """True if a parameter is annotated `RunContext`, optional or not; the annotation may be a string."""
    if isinstance(annotation, str):
        return _NAMED_CONTEXT.search(annotation) is not None
    return _find_context_annotation(annotation) is not None


def read_context_type(annotation: object) -> object:
    """The type of context that an annotation asks for; None if any will do."""
    if isinstance(annotation, str):
        named = _NAMED_CONTEXT.search(annotation)
        return named["type"] if named else None
    wanted = get_args(_find_context_annotation(annotation)) or (object,)
    return None if _accepts_none(wanted[0]) else wanted[0]


def _resolve_annotation(function: Callable[..., object], parameter: inspect.Parameter) -> object:
    if not isinstance(parameter.annotation, str):
        return parameter.annotation
    try:
        return get_type_hints(inspect.unwrap(function), include_extras=True)[parameter.name]
    except (AttributeError, KeyError, NameError, SyntaxError, TypeError):
        return parameter.annotation  # a type that is local to a function: its name is enough


def _find_context_annotation(annotation: object) -> object:
    """The `RunContext` or `RunContext[T]` in an annotation; None if there is none."""
    if annotation is RunContext or get_origin(annotation) is RunContext:
        return annotation
    if get_origin(annotation) not in (Annotated, Union, UnionType):
        return None
    found = map(_find_context_annotation, get_args(annotation))
    return next((each for each in found if each is not None), None)


def _accepts_none(wanted: object) -> bool:
    if get_origin(wanted) in (Union, UnionType):
        return any(map(_accepts_none, get_args(wanted)))
    return wanted in (object, Any, None, NoneType) or isinstance(wanted, TypeVar)
