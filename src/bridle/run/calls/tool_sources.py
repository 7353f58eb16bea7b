"""Adds the tools of servers to an agent when a run starts, and follows their changes while it works.

All servers are connected at the same time, each within its own time limit.  core/calls/server_tools.py decides what
a session keeps of the tools that it has seen.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace as replace_parts
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from bridle.core.calls.server_tools import compare_tools, is_reported, keep_definitions, keep_order
from bridle.core.state import State
from bridle.ports.tool import Tool, ToolListing, ToolSource
from bridle.run.agent_settings import AgentParts, make_parts
from bridle.tools.collect_tools import split_sources
from bridle.values.errors import MisuseError
from bridle.values.events import ToolsChanged
from bridle.values.request import ToolSpec

if TYPE_CHECKING:
    from bridle.run.driver import Driver
    from bridle.run.session import Session

LOG = logging.getLogger("bridle")
T = TypeVar("T")


async def connect_tools(session: "Session", driver: "Driver") -> "tuple[Session, Driver]":
    """The session with the tools of its agent's servers, and a driver that has them."""
    parts = await connect_sources(session.parts, driver.state)
    if not driver.is_watched:  # without one, only the log would say it
        for report in parts.tool_reports:
            if report.error:
                LOG.warning("%s", f"{report.error}; the run goes on without its tools")
    opened = session.reopen(parts)
    connected = opened.new_driver()
    await connected.restore()
    return opened, connected


async def connect_sources(parts: AgentParts[T], state: State) -> AgentParts[T]:
    """The parts of an agent with the tools of its servers, for a session with this state.

    Raises `MisuseError` if a required server cannot be used.
    """
    listings = await asyncio.gather(*(source.list_tools() for source in parts.sources))
    recorded, tools, reports = state.settings.all_tools, list[Tool](), list[ToolsChanged]()
    for source, listing in zip(parts.sources, listings, strict=True):
        if listing.error and source.is_required:
            raise MisuseError(f"{listing.error}. It is required: correct it, or set required=False")
        specs = [tool.spec for tool in listing.tools]
        tools += [source.restore_tool(spec) for spec in keep_definitions(specs, recorded, source.prefix)]
        reports.append(_compare(source, listing, recorded))
    own, _ = split_sources(parts.inputs.tools)
    made = make_parts(replace_parts(parts.inputs, tools=(*own, *tools)))
    settings = replace(keep_order(made.settings, state.settings), overrides=parts.settings.overrides)
    return replace_parts(
        made,
        settings=settings,
        sources=(),
        connected_sources=parts.sources,
        tool_reports=tuple(report for report in reports if not is_reported(state, report)),
    )


async def find_tool_changes(
    sources: Sequence[ToolSource], state: State, tools_known: Collection[str]
) -> tuple[tuple[Tool, ...], tuple[ToolsChanged, ...]]:
    """The tools that servers have added since the run began, and the reports to record.

    `tools_known` also has those that only programs call.
    """
    recorded, tools, reports = state.settings.all_tools, list[Tool](), list[ToolsChanged]()
    known = state.settings.tools_by_name
    for source in sources:
        listing = await source.refresh()
        if listing.error:
            continue  # a call of one of its tools reports it
        added = tuple(
            tool.spec
            for tool in listing.tools
            if tool.spec.name not in known and tool.spec.name not in tools_known
        )
        report = _compare(source, listing, recorded)
        if added or not is_reported(state, report):
            tools += [source.restore_tool(spec) for spec in added]
            reports.append(replace(report, added=added))
    return tuple(tools), tuple(reports)


def _compare(source: ToolSource, listing: ToolListing, recorded: Iterable[ToolSpec]) -> ToolsChanged:
    specs = [tool.spec for tool in listing.tools]
    return compare_tools(source.name, source.prefix, specs, recorded, listing.error, listing.notes)
