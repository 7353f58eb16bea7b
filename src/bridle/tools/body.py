"""The function behind a tool: how it is called, and what becomes of what it returns.

An `async def` runs on the caller's event loop, where its own resources live; any other
function runs in a thread.  Deadlines are not kept here: whoever awaits sets them, and
cancelling is answered at once (an async function is cancelled, a thread is left alone).

Every kind of tool in this package has a body, so these rules exist once.
"""

import asyncio
import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args

from ..ports.tool import CallContext
from ..values.parts import Media, Text
from .results import parts_of
from .threads import fit_to_raise, in_thread


class Body:
    __slots__ = ("_awaits", "_context", "_function", "_returns_nothing", "_tool")

    def __init__(
        self, tool: str, function: Callable[..., object], context: str | None, *, returns_nothing: bool
    ) -> None:
        """`context`: the name of the parameter that wants to know about the call, if there is one."""
        self._tool = tool
        self._function = function
        self._context = context
        self._returns_nothing = returns_nothing
        self._awaits = is_async(function)

    def around(self, function: Callable[..., object]) -> "Body":
        """The same, for another function: a method bound to its object."""
        return Body(self._tool, function, self._context, returns_nothing=self._returns_nothing)

    async def __call__(
        self, positional: Sequence[Any], named: Mapping[str, Any], context: CallContext
    ) -> tuple[Text | Media, ...]:
        value = await self.value(positional, named, context)
        return parts_of(value, self._tool, returns_nothing=self._returns_nothing)

    async def value(
        self, positional: Sequence[Any], named: Mapping[str, Any], context: CallContext
    ) -> object:
        """What the function gives, as it gives it."""
        if self._context is not None:
            named = {**named, self._context: context}
        if self._awaits:
            value = await _awaited(self._function(*positional, **named))
        else:
            value = await in_thread(functools.partial(self._function, *positional, **named))
            if inspect.isawaitable(value):
                value = await _awaited(value)
        return value


async def _awaited(awaitable: Any) -> object:
    try:
        return await awaitable
    except SystemExit as error:
        raise fit_to_raise(error) from error
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and not task.cancelling():
            # Nobody cancelled us: the tool waited for something that somebody else cancelled.
            raise fit_to_raise(error) from error
        raise


def is_async(function: Callable[..., object]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an object may be called by an async method
    )


def is_context(annotation: object) -> bool:
    """Whether a parameter asks for the `CallContext`, or may do without; it may be written as a string."""
    if isinstance(annotation, str):
        return re.search(rf"\b{CallContext.__name__}\b", annotation) is not None
    return annotation is CallContext or CallContext in get_args(annotation)


def body_of(tool: str, function: Callable[..., object]) -> Body:
    """For a function that takes one value and maybe the context, and need not be annotated."""
    signature = inspect.signature(function)
    context = next(
        (name for name, given in signature.parameters.items() if is_context(given.annotation)), None
    )
    nothing = signature.return_annotation in (None, "None", inspect.Signature.empty)
    return Body(tool, function, context, returns_nothing=nothing)
