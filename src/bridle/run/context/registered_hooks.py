"""Checks the hooks of an agent when it is built: methods, signatures, names, timeouts, tools and contexts.

A hook with a wrong signature or a misspelled tool would otherwise be found only in the run it should have guarded.
"""

import inspect
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import NamedTuple

from bridle.hooks.function_hook import FunctionHook
from bridle.ports.tool import ToolSource
from bridle.run.context.run_context import ContextNeed
from bridle.run.validate_input import can_call
from bridle.tools.function.context_parameter import find_context_parameter
from bridle.values.errors import MisuseError
from bridle.values.hooks import HOOK_POINTS, HOOK_SECONDS_DEFAULT, HookPoint, HookSpec

PARAMETERS: Mapping[HookPoint, tuple[str, ...]] = {
    "before_model": ("run", "request"),
    "after_model": ("run", "reply"),
    "before_tool": ("run", "call"),
    "after_tool": ("run", "call", "result"),
    "on_end": ("run", "end"),
}
"""Positional arguments of each method of a hook."""
POINT_PREFIXES = ("before_", "after_", "on_")
METHOD_SIMILARITY = 0.8
WATCHER_METHOD = "on_event"
"""A hook may be a watcher too."""


class RegisteredHooks(NamedTuple):
    specs: tuple[HookSpec, ...]
    by_name: dict[str, object]
    context_needs: tuple[ContextNeed, ...]

    def match_tools(self, known: Collection[str], sources: Sequence[ToolSource] = ()) -> Mapping[str, object]:
        """The hooks by name; raises `MisuseError` if one is limited to a tool that the agent does not have."""
        prefixes = tuple(source.prefix for source in sources)  # the tools of servers are not known yet
        for name, hook in self.by_name.items():
            missing = [
                each
                for each in _list_tools(name, hook)
                if each not in known and not each.startswith(prefixes)
            ]
            if missing:
                there_are = f"its tools: {', '.join(known)}" if known else "it has none"
                raise MisuseError(f"hook `{name}`: the agent has no tool named `{missing[0]}`; {there_are}")
        return self.by_name


def register_hooks(hooks: object) -> RegisteredHooks:
    """Check the hooks; return their specs for the settings, and the hooks by name."""
    if isinstance(hooks, str) or not isinstance(hooks, Iterable):
        raise MisuseError("hooks is a list; write hooks=[…]")
    specs, by_name, needs = list[HookSpec](), dict[str, object](), list[ContextNeed]()
    for hook in hooks:
        spec = _make_spec(hook)
        if spec.name in by_name:
            raise MisuseError(f"two hooks have the name {spec.name!r}; give one of them another `name`")
        specs.append(spec)
        by_name[spec.name] = hook
        needs += _list_needs(spec, hook)
    return RegisteredHooks(tuple(specs), by_name, tuple(needs))


def _make_spec(hook: object) -> HookSpec:
    if isinstance(hook, type):
        raise MisuseError(f"hooks=[{hook.__name__}] is a class; write {hook.__name__}()")
    if inspect.isroutine(hook):
        wanted = ", ".join(f"@{point}()" for point in HOOK_POINTS)
        raise MisuseError(f"{hook.__name__} is a function; decorate it with one of bridle.hooks: {wanted}")
    name = str(getattr(hook, "name", "") or type(hook).__name__)
    points = tuple(point for point in HOOK_POINTS if callable(getattr(hook, point, None)))
    if not points and not callable(getattr(hook, "text_filter", None)):
        wanted = ", ".join(HOOK_POINTS)
        raise MisuseError(f"{name} is not a hook: it has none of the methods {wanted}")
    _check_method_names(name, hook)
    for point in points:
        _check_signature(name, point, hook)
    _list_tools(name, hook)
    seconds = getattr(hook, "timeout_seconds", HOOK_SECONDS_DEFAULT)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
        raise MisuseError(f"the timeout of hook {name!r} must be a number of seconds above 0")
    return HookSpec(name=name, points=points, timeout_seconds=float(seconds))


def _check_method_names(name: str, hook: object) -> None:
    """Raise `MisuseError` for a public method that was probably meant to be a method of a hook."""
    own: Mapping[str, object] = getattr(hook, "__dict__", {})
    for method in sorted({*dir(type(hook)), *own}):
        if method.startswith("_") or method in (*HOOK_POINTS, WATCHER_METHOD):
            continue
        if not callable(own.get(method, getattr(type(hook), method, None))):
            continue
        near = get_close_matches(method, HOOK_POINTS, n=1, cutoff=METHOD_SIMILARITY)
        if near or method.startswith(POINT_PREFIXES):
            meant = f"did you mean {near[0]}?" if near else f"a hook has {', '.join(HOOK_POINTS)}."
            raise MisuseError(
                f"hook `{name}`: {method} is never called; {meant} Begin the name of a helper method with _"
            )


def _check_signature(name: str, point: HookPoint, hook: object) -> None:
    function, wanted = _find_function(hook, point), PARAMETERS[point]
    if isinstance(hook, FunctionHook):
        wanted = hook.parameters or wanted
    if not can_call(function, *wanted):
        raise MisuseError(
            f"hook `{name}`: {point} is called with ({', '.join(wanted)}), and takes {inspect.signature(function)}"
        )


def _find_function(hook: object, point: HookPoint) -> Callable[..., object]:
    """The user's function: the decorated one, or the method of a hook that is an object."""
    if isinstance(hook, FunctionHook):
        return hook.function
    method: Callable[..., object] = getattr(hook, point)
    return method


def _list_tools(name: str, hook: object) -> tuple[str, ...]:
    """Names of the tools a hook is limited to; empty if it is not limited."""
    tools = getattr(hook, "tools", None)
    if tools is None:
        return ()
    if isinstance(tools, str):
        raise MisuseError(f"hook `{name}`: tools is a list of names; write [{tools!r}]")
    if not isinstance(tools, Collection) or not all(isinstance(each, str) for each in tools):
        raise MisuseError(f"hook `{name}`: tools is a list of names of tools")
    return tuple(tools)


def _list_needs(spec: HookSpec, hook: object) -> list[ContextNeed]:
    found = [find_context_parameter(_find_function(hook, point)) for point in spec.points]
    return [ContextNeed(f"hook `{spec.name}`", each.type) for each in found if each and each.type is not None]
