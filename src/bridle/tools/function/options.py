"""The options of a tool: its effect, the resource it works on, approval, timeout, behaviour in doubt.

    @tool(effect="write", resource="file:{path}", approve=lambda amount: amount > 100)

Options that are data go into the tool's `ToolSpec`, which core reads.  Options that are code (resource,
approval, probe) stay here; the driver calls them and records the answers.

A function given as an option takes the arguments it names, or all of them as one dict.
"""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, Literal, TypedDict, cast, get_args

import msgspec

from bridle.ports.run_context import RunContext
from bridle.ports.tool import Json
from bridle.tools.names import check_tool_name
from bridle.values.errors import BadTool, MisuseError
from bridle.values.message import Media, Text
from bridle.values.request import TOOL_SECONDS_DEFAULT, ApprovalMode, OncePer, OnUnknown, ToolEffect, ToolSpec
from bridle.values.usage import RateLimit, read_tool_rate

from .context_parameter import find_context_parameter, is_context_annotation
from .invoker import is_async, make_invoker, make_result_parts

ResourceOption = str | Callable[..., object]
ProbeOption = Callable[..., object]


class ToolOptions(TypedDict, total=False):
    """The options shared by `@tool(…)`, `TypedTool`, `RawTool` and `CommandTool`."""

    effect: ToolEffect
    """"read" changes nothing, so calls may start early, run concurrently and be repeated; "write" changes
    something; "exclusive" never runs next to another call.  The default is treated like "exclusive"."""
    resource: ResourceOption
    """The resource a call works on: a template (`"file:{path}"`) or a function of the arguments.  Calls on
    different resources may run concurrently."""
    approve: bool | Callable[..., object]
    """Requires approval by a person; a function of the arguments may decide per call."""
    preview: Callable[..., object]
    """Shows what a call would do, such as a diff: a function of the arguments that returns a text for the person
    who is asked to approve the call."""
    timeout: float | None
    """Seconds until the call is abandoned; None for no limit."""
    on_unknown: OnUnknown
    """Handling of a call that a crash interrupted: "retry" it, "probe" for its outcome, "ask" a person, or
    "report" to the model that the outcome is unknown (the default unless the tool only reads)."""
    probe: ProbeOption
    """Finds the outcome of an interrupted call: takes the arguments it names and a `RunContext` with the
    call's key; returns what the tool would have returned, or None if the call never took effect."""
    once_per: Literal["run", "session"] | float
    """Treats equal arguments as the same action: a call that repeats one of the same run, of the same session
    or of the last so many seconds gets the earlier result, and the tool does not run again."""
    at_once: int
    """Maximum concurrent calls of this tool."""
    rate: str | RateLimit
    """Calls per period, which all runs in the store share: `"10/minute"` or `RateLimit(requests=10, seconds=30)`.
    A call that does not fit waits."""
    compensate: Callable[..., object]
    """Undoes a call: a tool or function that takes the same arguments, and optionally `receipt`."""
    always: bool
    """Always visible to the model, however many tools there are."""
    aliases: Sequence[str]
    """Earlier names of the tool: calls that wait under one of them are calls of this tool after an upgrade."""
    errors: Sequence[type[Exception]]
    """Exceptions by which the tool answers the model.  Any other one is taken for a bug: it is logged with its
    traceback, and `Agent(tool_errors="raise")` ends the run.  The model is told about both."""
    upgrade: Callable[[dict[str, Any]], Mapping[str, Json]]
    """Makes the arguments of a call that waits from those of an earlier version of the tool: a pure function that
    gets the old arguments with their defaults. Used if the name or the form of the arguments has changed."""


class ToolBehavior:
    """The validated options of one tool."""

    def __init__(self, name: str, description: str, parameters: str, options: ToolOptions) -> None:
        check_tool_name(name)
        self._name = name
        unknown = set(options) - set(ToolOptions.__annotations__)
        if unknown:
            known = ", ".join(ToolOptions.__annotations__)
            raise BadTool(f"tool `{name}`: unknown option {min(unknown)!r}; choose one of: {known}")
        self._properties = _parameter_defaults(parameters)
        self._resource = self._check_resource(options.get("resource"))
        self._approve = options.get("approve", False)
        self._probe = options.get("probe")
        self.preview_call = self._read_preview(options.get("preview"))
        """Shows what a call would do; None without `preview`."""
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
            rate=self._read_rate(options.get("rate")),
            compensation=self._name_compensation(effect),
            always_visible=self._read_always(options.get("always", False)),
            aliases=self._read_aliases(options.get("aliases", ())),
        )
        self.declared_errors = self._read_errors(options.get("errors", ()))
        self.upgrade_arguments = self._read_upgrade(options.get("upgrade"))
        """Makes the arguments of a waiting call from those of an earlier version; None without `upgrade`."""

    @property
    def arguments(self) -> Mapping[str, object]:
        """The tool's parameters by name, each with its default or None."""
        return self._properties

    def claim_resource(self, arguments: Mapping[str, Json]) -> tuple[str | None, bool]:
        """The resource of a call, and True if it needs approval; raises what the options' functions raise."""
        resource: str | None = None
        if isinstance(self._resource, str):
            resource = _load_formatter().vformat(self._resource, (), self._with_defaults(arguments))
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
        self, arguments: Mapping[str, Json], context: RunContext
    ) -> tuple[Text | Media, ...] | None:
        if self._probe is None:
            raise BadTool(f"tool `{self._name}`: it has no `probe` function")
        positional, named = self._match_arguments(self._probe, arguments)
        value = await make_invoker(self._name, self._probe).call(positional, named, context)
        return None if value is None else make_result_parts(value, self._name)

    @property
    def probe_context_type(self) -> object:
        """Type of the context that the probe needs; None if any will do."""
        context = find_context_parameter(self._probe) if self._probe is not None else None
        return context.type if context is not None else None

    def _call_option(self, function: Callable[..., object], arguments: Mapping[str, Json]) -> object:
        positional, named = self._match_arguments(function, arguments)
        return function(*positional, **named)

    def _match_arguments(
        self, function: Callable[..., object], arguments: Mapping[str, Json]
    ) -> tuple[tuple[object, ...], dict[str, object]]:
        """The arguments the function names, or all of them as one dict."""
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
            for _, field, _, _ in _load_formatter().parse(resource):
                name = (field or "").split(".")[0].split("[")[0]
                if field is not None and name not in self._properties:
                    raise BadTool(
                        f"tool `{self._name}`: resource={resource!r} names {name!r}, which is not a parameter"
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
            raise BadTool(f"tool `{self._name}`: {option}={given!r} is not callable; pass a function")
        if is_async(given):
            raise BadTool(f"tool `{self._name}`: {option} must not be async; make it a plain def")
        for name in _parameter_names(given):
            if name not in self._properties and len(_parameter_names(given)) > 1:
                raise BadTool(
                    f"tool `{self._name}`: {option} takes {name!r}, which is not a parameter of the tool"
                )
        return given

    def _read_preview(self, preview: object) -> Callable[[Mapping[str, Json]], str] | None:
        if preview is None:
            return None
        show = self._check_callable("preview", preview)
        return lambda arguments: str(self._call_option(show, arguments))

    def _read_aliases(self, names: object) -> tuple[str, ...]:
        is_list = isinstance(names, Sequence) and not isinstance(names, str)
        if not is_list or not all(isinstance(each, str) for each in cast("Sequence[object]", names)):
            raise BadTool(f"tool `{self._name}`: aliases={names!r} must be a list of earlier names")
        found = tuple(cast("Sequence[str]", names))
        for each in found:
            check_tool_name(each)
            if each == self._name:
                raise BadTool(f"tool `{self._name}`: aliases names the tool itself; list only earlier names")
        return found

    def _read_errors(self, given: object) -> tuple[type[Exception], ...]:
        listed = tuple(given) if isinstance(given, Sequence) and not isinstance(given, str) else (given,)
        for each in listed:
            if not isinstance(each, type) or not issubclass(each, Exception):
                raise BadTool(f"tool `{self._name}`: errors={given!r} must be a list of exception types")
        return cast("tuple[type[Exception], ...]", listed)

    def _read_upgrade(self, upgrade: object) -> Callable[[dict[str, Any]], Mapping[str, Json]] | None:
        if upgrade is None:
            return None
        if not callable(upgrade) or is_async(upgrade):
            raise BadTool(
                f"tool `{self._name}`: upgrade={upgrade!r} must be a plain function of the old arguments"
            )
        return cast("Callable[[dict[str, Any]], Mapping[str, Json]]", upgrade)

    def _read_on_unknown(self, wanted: object, effect: object) -> OnUnknown:
        if wanted is None:
            if self._probe is not None:
                return "probe"
            return "retry" if effect == "read" else "report"
        chosen: OnUnknown = self._check_choice("on_unknown", wanted, OnUnknown)
        if chosen == "probe" and self._probe is None:
            raise BadTool(
                f'tool `{self._name}`: on_unknown="probe" needs probe=…, a function that finds the outcome'
            )
        return chosen

    def _read_timeout(self, seconds: object) -> float | None:
        if seconds is None:
            return None
        number = not isinstance(seconds, bool) and isinstance(seconds, int | float)
        if not number or not math.isfinite(cast("float", seconds)) or cast("float", seconds) <= 0:
            raise BadTool(
                f"tool `{self._name}`: timeout={seconds!r} is invalid; use seconds above 0, or None for no limit"
            )
        return float(cast("float", seconds))

    def _read_once_per(self, span: object) -> OncePer | None:
        if span is None or (isinstance(span, str) and span in ("run", "session")):
            return cast("OncePer | None", span)
        number = isinstance(span, int | float) and not isinstance(span, bool)
        if number and math.isfinite(cast("float", span)) and cast("float", span) > 0:
            return float(cast("float", span))
        raise BadTool(
            f'tool `{self._name}`: once_per={span!r} is invalid; use "run", "session" or seconds above 0'
        )

    def _read_concurrency(self, limit: object) -> int | None:
        if limit is None or (isinstance(limit, int) and not isinstance(limit, bool) and limit >= 1):
            return limit
        raise BadTool(f"tool `{self._name}`: at_once={limit!r} is invalid; use 1 or more")

    def _read_rate(self, rate: object) -> RateLimit | None:
        try:
            return None if rate is None else read_tool_rate(self._name, rate)
        except MisuseError as error:
            raise BadTool(f"tool `{self._name}`: rate={rate!r} {error}") from None

    def _read_always(self, wanted: object) -> bool:
        if not isinstance(wanted, bool):
            raise BadTool(f"tool `{self._name}`: always={wanted!r} must be True or False")
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
            raise BadTool(f"tool `{self._name}`: {option}={given!r} is invalid; use one of {listed}")
        return given


class DeclaredTool:
    """Base of the tools that take `ToolOptions`; a subclass adds `run`."""

    def __init__(self, behavior: ToolBehavior, context_type: object = None) -> None:
        self.behavior, self.spec = behavior, behavior.spec
        self.claim_resource, self.probe = behavior.claim_resource, behavior.probe
        self.preview_call = behavior.preview_call
        self.upgrade_arguments = behavior.upgrade_arguments
        self.declared_errors = behavior.declared_errors
        self.context_type = context_type or behavior.probe_context_type
        """Type of the context that the tool or its probe needs; None if any will do."""

    def __repr__(self) -> str:
        return f"<tool {self.spec.name}>"


def _load_formatter() -> Any:
    """The formatter of templates, imported at the first one because its module is slow to load."""
    return import_module("string").Formatter()


def _parameter_defaults(parameters: str) -> dict[str, object]:
    """The parameters of a schema by name, each with its default or None."""
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
