"""Replaces parts of an agent for tests: `with agent.override(model=…, tools=…, store=…)`.

The agents that it hands over to, and those that are its tools, get the model and the store as well, so that a test
of an application reaches no provider by another way.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bridle.ports.store import Store
from bridle.ports.tool import Tool, ToolSource
from bridle.stores import open_store
from bridle.values.errors import MisuseError

from .agent_settings import make_parts
from .calls.agent_tool import AgentTool
from .calls.handover import add_handover_tools
from .context.resources import StoreLike
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
    opened = open_store(store) if isinstance(store, str | os.PathLike) else store
    with ExitStack() as undoing:
        for each in _list_agents(agent):
            if each is agent or not each.is_overridden:
                given: dict[str, Any] = {} if model is None else {"model": model}
                if tools is not None and each is agent:
                    given["tools"] = add_handover_tools(tools, each.handovers)
                undoing.enter_context(_replace_parts(each, given, opened))
        yield


@contextmanager
def _replace_parts(agent: "Agent[Any, Any]", given: dict[str, Any], store: Store | None) -> Iterator[None]:
    parts, resources = agent.exchange_parts()
    made = make_parts(replace(parts.inputs, **given)) if given else parts
    used = resources if store is None else resources.use_store(store)
    hooks = made.inputs.hooks.match_tools(made.tool_layout.tools, made.sources)
    agent.exchange_parts(made, replace(used, hooks=hooks))
    was_overridden, agent.is_overridden = agent.is_overridden, True
    try:
        yield
    finally:
        agent.is_overridden = was_overridden
        agent.exchange_parts(parts, resources)


def _list_agents(agent: "Agent[Any, Any]") -> "list[Agent[Any, Any]]":
    """The agent and all that its runs may involve: it hands over to them, or they are its tools."""
    found = [agent]
    for each in found:
        others: list[object] = [handover.agent for handover in each.handovers]
        others += [tool.agent for tool in each.tools.values() if isinstance(tool, AgentTool)]
        found += [other for other in others if isinstance(other, type(agent)) and other not in found]
    return found
