"""Settings of an agent as it is now, in place of those that a log records.

What depends on the machine or on one run stays as recorded: the model of the chain that was in use, models without a
key, options given for one run, the command's default rule for tools, and the tools of servers, which are not connected.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from bridle.core.calls.server_tools import keep_order
from bridle.core.memory import carry_memory
from bridle.core.recovery.fallback import set_model
from bridle.core.state import State
from bridle.run.agent_settings import AgentParts
from bridle.run.calls.handover import Handover
from bridle.values.events import Configured
from bridle.values.request import ToolSpec
from bridle.values.settings import Settings

if TYPE_CHECKING:
    from bridle.run.agent import Agent

OPTION_FIELDS: Mapping[str, tuple[str, ...]] = {
    "model": ("model", "models", "output"),
    "instructions": ("instructions", "instruction_functions", "templates"),
    "tools": ("tools", "hidden_tools", "catalogue"),
    "tool_choice": ("tool_choice", "step_functions"),
    "thinking": ("thinking", "step_functions"),
    "sampling": ("sampling", "step_functions"),
    "max_tokens": ("max_tokens",),
    "output": ("output",),
}
"""Settings that an option of a run replaces."""


class AgentSettingsNow:
    """The settings of an agent, and of those that it may hand a run over to, for a session of the log."""

    def __init__(self, agent: "Agent[Any, Any]") -> None:
        self.agents = {each.settings.name: each for each in _list_agents(agent)}
        self._first = agent

    @property
    def parts(self) -> list[AgentParts[Any]]:
        return [agent.parts for agent in self.agents.values()]

    def __call__(self, event: Configured, state: State) -> Settings:
        recorded = event.settings
        agent = self.agents.get(event.handed_over_to or recorded.name, self._first)
        settings = _add_server_tools(agent.parts, recorded)
        if event.handed_over_to or state.run.origin.agents:
            settings = carry_memory(settings, state)
        used = recorded.model.model_key
        same = (each for each in settings.models or (settings.model,) if each.model_key == used)
        model = next(same, None)
        if model is not None:
            settings = set_model(settings, model)
        policy = settings.policy
        if policy.otherwise is None:
            policy = replace(policy, otherwise=recorded.policy.otherwise)
        kept = {name: getattr(recorded, name) for name in _list_kept_fields(recorded)}
        # Without instructions of its own, an agent uses those of an imported history.
        instructions = settings.instructions or state.conversation.imported_instructions
        if not instructions and not state.conversation.transcript.messages:
            instructions = recorded.instructions if not settings.instruction_functions else ""
        return replace(
            settings,
            **{
                "instructions": instructions,
                "policy": policy,
                "skipped_models": recorded.skipped_models,
                "overrides": recorded.overrides,
                **kept,
            },
        )


def _list_kept_fields(recorded: Settings) -> set[str]:
    """Settings that were given for one run only."""
    return {name for each in recorded.overrides for name in OPTION_FIELDS.get(each.option, ())}


def _add_server_tools(parts: AgentParts[Any], recorded: Settings) -> Settings:
    """The agent's settings with the recorded tools of its servers."""
    settings = parts.settings
    if not parts.sources:
        return settings
    prefixes = tuple(source.prefix for source in parts.sources)

    def merge(own: tuple[ToolSpec, ...], seen: Iterable[ToolSpec]) -> tuple[ToolSpec, ...]:
        return (*own, *(spec for spec in seen if spec.name.startswith(prefixes)))

    merged = replace(
        settings,
        tools=merge(settings.tools, recorded.tools),
        hidden_tools=merge(settings.hidden_tools, recorded.hidden_tools),
        catalogue=settings.catalogue or recorded.catalogue,
    )
    return keep_order(merged, recorded)


def _list_agents(agent: "Agent[Any, Any]") -> "list[Agent[Any, Any]]":
    """The agent and those that it may hand over to, each once."""
    found: list[Any] = []
    waiting: list[object] = [agent]
    while waiting:
        each: Any = waiting.pop()
        if isinstance(each, Handover):
            each = each.agent
        if not isinstance(each, str) and each not in found:
            found.append(each)
            waiting += each.handovers
    return found
