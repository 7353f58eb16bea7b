"""Replaces parts of an agent for tests: `with agent.override(model=…, tools=…, store=…)`.

The agents that it hands over to, and those that are its tools, get the model and the store as well, so that a test
of an application reaches no provider by another way.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from msgspec.structs import replace as replace_setting

from bridle.ports.store import Store
from bridle.ports.tool import Tool, ToolSource
from bridle.stores import open_store
from bridle.values.errors import MisuseError
from bridle.values.settings import Compaction

from .agent_settings import AgentParts, make_parts
from .calls.agent_tool import AgentTool
from .calls.handover import add_handover_tools
from .context.resources import RunResources, StoreLike
from .model_connection import ModelLike
from .validate_input import check_given

if TYPE_CHECKING:
    from .agent import Agent


@contextmanager
def override_agent(
    agent: "Agent[Any, Any]",
    *,
    model: ModelLike | Sequence[ModelLike] | None,
    tools: Iterable[Tool[Any] | Callable[..., object] | ToolSource] | None,
    store: StoreLike,
) -> Iterator[None]:
    if model is None and tools is None and store is None:
        raise MisuseError("override needs a model, tools or a store")
    check_given(store=store)
    tools = None if tools is None else tuple(tools)
    opened = open_store(store) if isinstance(store, str | os.PathLike) else store
    agents = _list_agents(agent, tools or ())
    given = Override(model, tools, opened)
    entries = [
        (each, given if each is agent else given._replace(tools=None, is_own=False)) for each in agents
    ]
    for each, entry in entries:
        each.overrides.add(each, entry)
    try:
        yield
    finally:
        for each, entry in entries:
            each.overrides.remove(each, entry)


class Override(NamedTuple):
    """What one `with` block replaces in one agent."""

    model: ModelLike | Sequence[ModelLike] | None
    tools: Iterable[Tool[Any] | Callable[..., object] | ToolSource] | None
    store: Store | None
    is_own: bool = True
    """False if the block overrides another agent, whose runs may involve this one."""


class Overrides:
    """The open blocks that override one agent; they may end in any order."""

    def __init__(self) -> None:
        self._entries: list[Override] = []
        self._own: tuple[AgentParts[Any], RunResources] | None = None
        """The agent's own parts, while a block is open."""

    def __bool__(self) -> bool:
        return bool(self._entries)

    def add(self, agent: "Agent[Any, Any]", entry: Override) -> None:
        if self._own is None:
            self._own = agent.exchange_parts()
        self._entries.append(entry)
        try:
            self._apply(agent)
        except BaseException:
            self.remove(agent, entry)
            raise

    def remove(self, agent: "Agent[Any, Any]", entry: Override) -> None:
        self._entries = [each for each in self._entries if each is not entry]
        self._apply(agent)

    def _apply(self, agent: "Agent[Any, Any]") -> None:
        assert self._own is not None
        parts, resources = self._own
        if not self._entries:
            self._own = None
            agent.exchange_parts(parts, resources)
            return
        given: dict[str, Any] = {}
        # Of the agent itself before those of agents around it, and a later one before an earlier one.
        for each in sorted(self._entries, key=lambda entry: entry.is_own):
            if each.model is not None:
                given["model"] = each.model
            if each.tools is not None:
                given["tools"] = add_handover_tools(each.tools, agent.handovers)
            if each.store is not None:
                resources = resources.use_store(each.store)
        settings = parts.inputs.settings
        if "model" in given and settings.compaction is not None:
            given["settings"] = replace_setting(
                settings, compaction=replace_setting(settings.compaction, model=Compaction().model)
            )
        made = make_parts(replace(parts.inputs, **given)) if given else parts
        hooks = made.inputs.hooks.match_tools(made.tool_layout.tools, made.sources)
        agent.exchange_parts(made, replace(resources, hooks=hooks))


def _list_agents(agent: "Agent[Any, Any]", tools: Iterable[object]) -> "list[Agent[Any, Any]]":
    """The agent and all that its runs may involve: it hands over to them, or they are its tools."""
    found = [agent]
    for each in found:
        others: list[object] = [handover.agent for handover in each.handovers]
        listed = (*each.tools.values(), *(tools if each is agent else ()))
        others += [tool.agent for tool in listed if isinstance(tool, AgentTool)]
        for other in others:
            if hasattr(other, "exchange_parts") and other not in found:
                found.append(cast("Agent[Any, Any]", other))
    return found
