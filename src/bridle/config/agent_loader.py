"""Loads agents from Python files and modules, from one name in them, and from agent files.

agents.py           every agent at the top level, by its own name, else by the name of its variable
shop.agents:helper  one agent of a file or module
support.toml        the agent that the file defines, by the name of the file
"""

import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from typing import Any, cast

from bridle.core.state import State
from bridle.run.agent import Agent
from bridle.run.context.made_context import MakeContext
from bridle.run.context.resources import StoreLike
from bridle.stores import find_store_file
from bridle.values.errors import MisuseError

from .agent_file import load_agent
from .tool_loader import load_module, load_reference


def load_agents(names: Sequence[str]) -> dict[str, Agent[Any, Any]]:
    """The agents of these files and modules, by name; raises `MisuseError` if two have one name."""
    found: dict[str, Agent[Any, Any]] = {}
    for source in names:
        for name, agent in _load_source(source):
            if found.setdefault(name, agent) is not agent:
                raise MisuseError(
                    f"{source}: two agents have the name {name!r}; give one of them another: Agent(name=…)"
                )
    return found


def find_first_agent(agents: Mapping[str, Agent[Any, Any]], state: State) -> Agent[Any, Any] | None:
    """The agent that began the run of a session, by its name; a session without a name belongs to the only agent."""
    name = (state.run.origin.first_settings or state.settings).name
    return agents.get(name) or (next(iter(agents.values())) if not name and len(agents) == 1 else None)


def _load_source(source: str) -> list[tuple[str, Agent[Any, Any]]]:
    """The agents of one file or module, each with its name."""
    if source.endswith(".toml"):
        agent = load_agent(source)
        return [(agent.settings.name, agent)]
    if ":" in source:
        one = load_reference(source)
        if not isinstance(one, Agent):
            raise MisuseError(f"{source} is not an agent but {type(one).__name__}")
        return [(one.settings.name or source.rpartition(":")[2], one)]
    with redirect_stdout(sys.stderr):
        module = load_module(source)
    agents = [(name, value) for name, value in vars(module).items() if isinstance(value, Agent)]
    if not agents:
        raise MisuseError(f"{source} has no agent at its top level; write: agent = Agent(…)")
    return [(agent.settings.name or variable, agent) for variable, agent in agents]


def load_context_maker(name: str) -> MakeContext:
    """The function that `FILE.py:name` or `module:name` refers to; it makes contexts of runs from their owners."""
    found = load_reference(name)
    if not callable(found):
        raise MisuseError(f"{name} is not a function that makes a context but {type(found).__name__}")
    return cast("MakeContext", found)


def find_agents_store(agents: Mapping[str, Agent[Any, Any]]) -> StoreLike:
    """The store that the agents name; None if none does. Raises `MisuseError` if they name several."""
    found: dict[object, StoreLike] = {}
    for name, agent in agents.items():
        if not isinstance(agent, Agent):
            raise MisuseError(f"{name!r} is not an agent but {type(agent).__name__}")
        place = cast("StoreLike", agent.parts.inputs.store)
        if place is not None:
            found[find_store_file(place) or place] = place
    if len(found) > 1:
        raise MisuseError("the agents have different stores, and a server has one; choose it: --store PATH")
    return next(iter(found.values()), None)
