"""How a tool is to be handled: what it does to the world, who must agree, what to do in doubt.

    @tool(effect="write", resource="file:{path}", approve=lambda amount: amount > 100)

What can be said as data goes into the tool's `ToolSpec`, where the core reads it.  What is
code (which thing a call works on, whether this one needs a person, what became of it) stays
here and is asked by the driver, which writes the answers down.

A function given here takes the arguments it names, or all of them as one dict.
"""

import inspect
import math
import string
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypedDict, cast, get_args

import msgspec

from bridle.ports.tool import CallContext, Json
from bridle.tools.names import check_tool_name
from bridle.values.errors import BadTool
from bridle.values.message import Media, Text
from bridle.values.request import TOOL_SECONDS_DEFAULT, ApprovalMode, OncePer, OnUnknown, ToolEffect, ToolSpec

from .invoker import is_async, is_context_annotation, make_invoker
from .results import make_result_parts

ResourceOption = str | Callable[..., object]
ProbeOption = Callable[..., object]


class ToolOptions(TypedDict, total=False):
    """What `@tool(…)`, `TypedTool` and `RawTool` all take."""

    effect: ToolEffect
    """"read" changes nothing, so it may run early, beside others and again; "write" changes something;
    "exclusive" must have the world to itself.  Undeclared is read as the most careful."""
    resource: ResourceOption
    """What a call works on: words with arguments in braces (`"file:{path}"`), or a function of the arguments.
    Calls on different things may run at the same time."""
    approve: bool | Callable[..., object]
    """Whether a person must agree first; a function of the arguments may decide."""
    timeout: float | None
    """Seconds until the call is given up; None for no limit."""
    on_unknown: OnUnknown
    """After a crash, with a call that was started and never finished: "retry" it, "probe" for what became
    of it, "ask" a person, or "report" to the model that nobody knows (the default unless it only reads)."""
    probe: ProbeOption
    """Looks for what became of a call: gets the arguments it names and a `CallContext` with the call's key;
    gives what the tool would have given, or None when the call surely never took effect."""
    once_per: Literal["run", "session"] | float
    """Equal arguments are the same action: a call that repeats one that was done in the same run, in the same
    session or in the last so many seconds gets the earlier result, and the tool does not run again."""
    at_once: int
    """How many calls of it may run at the same time."""
    compensate: Callable[..., object]
    """What undoes a call of it: a tool or function of the same arguments, and perhaps of `receipt`."""
    always: bool
    """Shown to the model from the beginning, however many tools there are."""


class ToolBehavior:
    """The options of one tool, checked."""

    def __init__(self, name: str, description: str, parameters: str, options: ToolOptions) -> None:
        check_tool_name(name)
        self._name = name
        unknown = set(options) - set(ToolOptions.__annotations__)
        if unknown:
            known = ", ".join(ToolOptions.__annotations__)
            raise BadTool(f"tool `{name}`: there is no option {min(unknown)!r}; there are {known}")
        self._properties = _parameter_defaults(parameters)
        self._resource = self._check_resource(options.get("resource"))
        self._approve = options.get("approve", False)
        self._probe = options.get("probe")
        self.compensate = options.get("compensate")
        effect = options.get("effect", "undeclared")
        self.spec = ToolSpec(
            name=name,
            description=description,
            parameters=parameters,
            effect=self._check_choice("effect", effect, ToolEffect),
            on_unknown=self._read_on_unknown(options.get("on_unknown"), effect),
            timeout_seconds=self._read_timeout(options.get("timeout", TOOL_SECONDS_DEFAULT)),
            approve=self._read_approval_mode(),
            claims_resource=self._resource is not None,
            once_per=self._read_once_per(options.get("once_per")),
            at_once_max=self._read_concurrency(options.get("at_once")),
            compensation=self._name_compensation(effect),
            always_visible=self._read_always(options.get("always", False)),
        )

    @property
    def arguments(self) -> Mapping[str, object]:
        """What the tool takes, by name, each with its default or None."""
        return self._properties

    def claim_resource(self, arguments: Mapping[str, Json]) -> tuple[str | None, bool]:
        """Raises whatever the functions raise."""
        resource: str | None = None
        if isinstance(self._resource, str):
            resource = string.Formatter().vformat(self._resource, (), self._with_defaults(arguments))
        elif self._resource is not None:
            found = self._call_option(self._resource, arguments)
            resource = None if found is None else str(found)
        ask = (
            self._approve
            if isinstance(self._approve, bool)
            else bool(self._call_option(self._approve, arguments))
        )
        return resource, ask

    async def probe(
        self, arguments: Mapping[str, Json], context: CallContext
    ) -> tuple[Text | Media, ...] | None:
        if self._probe is None:
            raise BadTool(f"tool `{self._name}`: it has nothing to probe with")
        positional, named = self._match_arguments(self._probe, arguments)
        value = await make_invoker(self._name, self._probe).call(positional, named, context)
        return None if value is None else make_result_parts(value, self._name)

    def _call_option(self, function: Callable[..., object], arguments: Mapping[str, Json]) -> object:
        positional, named = self._match_arguments(function, arguments)
        return function(*positional, **named)

    def _match_arguments(
        self, function: Callable[..., object], arguments: Mapping[str, Json]
    ) -> tuple[tuple[object, ...], dict[str, object]]:
        """The arguments by the names the function has for them, or all of them as one dict."""
        given = self._with_defaults(arguments)
        wanted = _parameter_names(function)
        if len(wanted) == 1 and wanted[0] not in self._properties:
            return (given,), {}
        return (), {name: given[name] for name in wanted if name in given}

    def _with_defaults(self, arguments: Mapping[str, Json]) -> dict[str, object]:
        return {**self._properties, **arguments} if self._properties else dict(arguments)

    def _check_resource(self, resource: object) -> ResourceOption | None:
        if resource is None:
            return None
        if isinstance(resource, str):
            for _, field, _, _ in string.Formatter().parse(resource):
                name = (field or "").split(".")[0].split("[")[0]
                if field is not None and name not in self._properties:
                    raise BadTool(
                        f"tool `{self._name}`: resource={resource!r} names {name!r}, no argument of it"
                    )
            return resource
        return self._check_callable("resource", resource)

    def _read_approval_mode(self) -> ApprovalMode:
        if isinstance(self._approve, bool):
            return "always" if self._approve else "never"
        self._check_callable("approve", self._approve)
        return "depends"

    def _check_callable(self, option: str, given: object) -> Callable[..., object]:
        if not callable(given):
            raise BadTool(f"tool `{self._name}`: {option}={given!r} cannot be called; give it a function")
        if is_async(given):
            raise BadTool(
                f"tool `{self._name}`: {option} is decided before anything runs; make it a plain def"
            )
        for name in _parameter_names(given):
            if name not in self._properties and len(_parameter_names(given)) > 1:
                raise BadTool(
                    f"tool `{self._name}`: {option} takes {name!r}, which is no argument of the tool"
                )
        return given

    def _read_on_unknown(self, wanted: object, effect: object) -> OnUnknown:
        if wanted is None:
            if self._probe is not None:
                return "probe"
            return "retry" if effect == "read" else "report"
        chosen: OnUnknown = self._check_choice("on_unknown", wanted, OnUnknown)
        if chosen == "probe" and self._probe is None:
            raise BadTool(
                f'tool `{self._name}`: on_unknown="probe" needs probe=…, a function to look it up with'
            )
        return chosen

    def _read_timeout(self, seconds: object) -> float | None:
        if seconds is None:
            return None
        number = not isinstance(seconds, bool) and isinstance(seconds, int | float)
        if not number or not math.isfinite(cast("float", seconds)) or cast("float", seconds) <= 0:
            raise BadTool(
                f"tool `{self._name}`: timeout={seconds!r} is no deadline; write seconds above 0,"
                " or None for no limit"
            )
        return float(cast("float", seconds))

    def _read_once_per(self, span: object) -> OncePer | None:
        if span is None or (isinstance(span, str) and span in ("run", "session")):
            return cast("OncePer | None", span)
        number = isinstance(span, int | float) and not isinstance(span, bool)
        if number and math.isfinite(cast("float", span)) and cast("float", span) > 0:
            return float(cast("float", span))
        raise BadTool(
            f'tool `{self._name}`: once_per={span!r} is unknown; write "run", "session" or seconds above 0'
        )

    def _read_concurrency(self, limit: object) -> int | None:
        if limit is None or (isinstance(limit, int) and not isinstance(limit, bool) and limit >= 1):
            return limit
        raise BadTool(f"tool `{self._name}`: at_once={limit!r} is no number of calls; write 1 or more")

    def _read_always(self, wanted: object) -> bool:
        if not isinstance(wanted, bool):
            raise BadTool(f"tool `{self._name}`: always={wanted!r} is neither True nor False")
        return wanted

    def _name_compensation(self, effect: object) -> str:
        if self.compensate is None:
            return ""
        if effect == "read":
            raise BadTool(f"tool `{self._name}`: it only reads, so there is nothing to compensate")
        own = getattr(self.compensate, "spec", None)
        if isinstance(own, ToolSpec):
            return own.name
        name = str(getattr(self.compensate, "__name__", ""))
        return name if name.isidentifier() else f"undo_{self._name}"

    def _check_choice(self, option: str, given: object, choices: object) -> Any:
        if given not in get_args(choices):
            listed = ", ".join(f'"{choice}"' for choice in get_args(choices) if choice != "undeclared")
            raise BadTool(f"tool `{self._name}`: {option}={given!r} is unknown; write one of {listed}")
        return given


def _parameter_defaults(parameters: str) -> dict[str, object]:
    """The arguments by name, each with its default or None."""
    schema = msgspec.json.decode(parameters, type=dict[str, object])
    found = schema.get("properties")
    if not isinstance(found, dict):
        return {}
    return {name: about.get("default") if isinstance(about, dict) else None for name, about in found.items()}


def _parameter_names(function: Callable[..., object]) -> list[str]:
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    try:
        given = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [item.name for item in given if item.kind in kinds and not is_context_annotation(item.annotation)]
