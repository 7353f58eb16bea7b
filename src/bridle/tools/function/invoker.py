"""Calls the function of a tool and converts what it returns; used by every kind of tool in this package.

An `async def` runs on the caller's event loop, where its resources live; any other function runs in a thread.
The caller sets deadlines.  Cancellation takes effect at once: an async function is cancelled, a thread is
abandoned.

A return value becomes parts that a model can read:

    str                       the text
    Text, Media, or a list    unchanged (strings allowed in the list)
    None                      "done" if the function is annotated to return nothing, otherwise "null"
    JSON-compatible value     compact JSON; each `Media` in it becomes a part, with a short text in its place

The two forms of None differ because a search without results must not read as "done".  Blank text is shown in
quotes, because several wires reject a blank block.  Bytes are rejected: the author must decode them or use
`Media.from_bytes`.
"""

import functools
import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from importlib import import_module
from typing import Any

import msgspec

from bridle.ports.run_context import RunContext
from bridle.tools.schema.json_form import lift_media, to_json_text
from bridle.values.message import Media, Text
from bridle.values.text import repair_surrogates

from .context_parameter import ContextParameter, find_context_parameter

DONE_TEXT = "done"


class FunctionInvoker:
    __slots__ = ("_awaits", "_context", "_function", "_lane", "_returns_nothing", "_tool", "context_type")

    def __init__(
        self,
        tool: str,
        function: Callable[..., object],
        context: ContextParameter | None,
        *,
        returns_nothing: bool,
        lane: str = "tools",
    ) -> None:
        """`context` is the parameter that receives the `RunContext`, if any; `lane` is a `ThreadLane`."""
        self._tool = tool
        self._function = function
        self._context = context.name if context is not None else None
        self.context_type = context.type if context is not None else None
        self._returns_nothing = returns_nothing
        self._awaits, self._lane = is_async(function), lane

    def with_function(self, function: Callable[..., object]) -> "FunctionInvoker":
        """A copy for another function, such as a bound method."""
        context = ContextParameter(self._context, self.context_type) if self._context is not None else None
        return FunctionInvoker(
            self._tool, function, context, returns_nothing=self._returns_nothing, lane=self._lane
        )

    async def __call__(
        self, positional: Sequence[Any], named: Mapping[str, Any], context: RunContext
    ) -> tuple[Text | Media, ...]:
        value = await self.call(positional, named, context)
        return make_result_parts(value, self._tool, returns_nothing=self._returns_nothing)

    def call(
        self, positional: Sequence[Any], named: Mapping[str, Any], context: RunContext
    ) -> Coroutine[Any, Any, object]:
        """The return value of the function, unconverted."""
        if self._context is not None:
            named = {**named, self._context: context}
        if self._awaits:
            awaited: Coroutine[Any, Any, object] = _load_threads().await_value(
                self._function(*positional, **named)
            )
            return awaited
        return _call_in_thread(functools.partial(self._function, *positional, **named), self._lane)


async def _call_in_thread(function: Callable[[], object], lane: str) -> object:
    value = await _load_threads().run_in_thread(function, lane)
    if inspect.isawaitable(value):
        value = await _load_threads().await_value(value)
    return value


@functools.cache
def _load_threads() -> Any:
    """Imported at the first call, because it needs asyncio, which is most of the import of a program without a loop."""
    return import_module(".threads", __package__)


def is_async(function: Callable[..., object]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an object may be called by an async method
    )


def make_invoker(tool: str, function: Callable[..., object]) -> FunctionInvoker:
    """An invoker for a function of one value and optionally the context, annotated or not."""
    context = find_context_parameter(function)
    nothing = inspect.signature(function).return_annotation in (None, "None", inspect.Signature.empty)
    return FunctionInvoker(tool, function, context, returns_nothing=nothing)


def make_result_parts(value: object, tool: str, *, returns_nothing: bool = False) -> tuple[Text | Media, ...]:
    """The value as parts; raises TypeError, naming the tool and the type, if it has no JSON form."""
    if isinstance(value, str):
        return (Text(text=_visible_text(value)),)
    if isinstance(value, Text | Media):
        return (_check_part(value),)
    if value is None:
        return (Text(text=DONE_TEXT if returns_nothing else "null"),)
    if isinstance(value, list | tuple) and any(isinstance(item, Text | Media) for item in value):
        return tuple(_make_part(item, tool) for item in value)
    try:
        form, media = lift_media(value)
        return (Text(text=msgspec.json.encode(form).decode()), *media)
    except TypeError as error:
        # guard: unreadable-result-refused
        raise TypeError(f"tool `{tool}` returned {error}; {_suggest_type(value)}") from None


def _make_part(item: object, tool: str) -> Text | Media:
    if isinstance(item, str):
        return Text(text=_visible_text(item))
    if isinstance(item, Text | Media):
        return _check_part(item)
    raise TypeError(
        f"tool `{tool}` returned parts with a {type(item).__name__} among them; use Text, Media or str"
    )


def _check_part(part: Text | Media) -> Text | Media:
    return part if isinstance(part, Media) or part.native is not None else Text(text=_visible_text(part.text))


def _visible_text(text: str) -> str:
    return repair_surrogates(text) if text.strip() else to_json_text(text)


def _suggest_type(value: object) -> str:
    if isinstance(value, bytes | bytearray | memoryview):
        return "return Media.from_bytes(...) for a picture or a file, or decode it to str"
    return "return str, numbers, dict, list, a dataclass, a pydantic model, Text or Media"
