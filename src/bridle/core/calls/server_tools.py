"""Tools of servers, which may change while a session lives.

A session keeps what it has seen: definitions stay as recorded and in their order, because they are the start of every
prompt. New tools follow all others. A tool that its server does not offer any more stays, and calls of it get an error.
What differs is recorded (`ToolsChanged`), once per difference.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from bridle.core.state import State
from bridle.values import events as e
from bridle.values.request import ToolSpec
from bridle.values.settings import Settings


def keep_definitions(
    listed: Sequence[ToolSpec], recorded: Iterable[ToolSpec], prefix: str
) -> tuple[ToolSpec, ...]:
    """The tools of a server for a session: with recorded descriptions and schemas, and those that are gone.

    Only the prompt comes from the log: the effect of a tool and all else about calls is decided here.
    """
    seen = {spec.name: spec for spec in recorded if spec.name.startswith(prefix) and spec.native is None}
    kept = [_with_prompt_of(spec, seen.get(spec.name)) for spec in listed]
    names = {spec.name for spec in listed}
    gone = [
        ToolSpec(name=spec.name, description=spec.description, parameters=spec.parameters, effect="write")
        for spec in seen.values()
        if spec.name not in names
    ]
    return (*kept, *gone)


def _with_prompt_of(spec: ToolSpec, seen: ToolSpec | None) -> ToolSpec:
    if seen is None:
        return spec
    return replace(spec, description=seen.description, parameters=seen.parameters)


def compare_tools(
    server: str,
    prefix: str,
    listed: Sequence[ToolSpec],
    recorded: Iterable[ToolSpec],
    error: str,
    notes: tuple[str, ...],
) -> e.ToolsChanged:
    """The report about a server whose tools the session has recorded."""
    by_name: Mapping[str, ToolSpec] = {spec.name: spec for spec in listed}
    seen = [spec for spec in recorded if spec.name.startswith(prefix) and spec.native is None]
    return e.ToolsChanged(
        server=server,
        missing=tuple(spec.name for spec in seen if spec.name not in by_name and not error),
        changed=tuple(
            spec.name
            for spec in seen
            if spec.name in by_name and _with_prompt_of(by_name[spec.name], spec) != by_name[spec.name]
        ),
        error=error,
        notes=notes,
    )


def is_reported(state: State, report: e.ToolsChanged) -> bool:
    """True if the log has this report already; a server without any difference needs none."""
    latest = next((each for each in state.tools.server_reports if each.server == report.server), None)
    return report == (latest or e.ToolsChanged(server=report.server))


def keep_order(settings: Settings, recorded: Settings) -> Settings:
    """The settings with their tools in the recorded order; new ones follow."""
    return replace(
        settings,
        tools=_sort_as_recorded(settings.tools, recorded.tools),
        hidden_tools=_sort_as_recorded(settings.hidden_tools, recorded.hidden_tools),
    )


def _sort_as_recorded(specs: tuple[ToolSpec, ...], recorded: tuple[ToolSpec, ...]) -> tuple[ToolSpec, ...]:
    places = {spec.name: place for place, spec in enumerate(recorded)}
    return tuple(sorted(specs, key=lambda spec: places.get(spec.name, len(places))))
