"""The objects of this process that an agent's runs use, and the sessions opened with them."""

import os
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from dataclasses import replace as replace_fields
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from msgspec.structs import replace

from bridle.core.state import State
from bridle.ports.clock import Clock, RandomSource
from bridle.ports.store import Store
from bridle.ports.watcher import Watcher
from bridle.run.agent_settings import AgentParts, make_parts, must_stream
from bridle.run.budget.nested import NestedRun
from bridle.run.budget.sources import BudgetPool
from bridle.run.calls.approval import Approver
from bridle.run.calls.code_mode import BoundCodeMode
from bridle.run.calls.handover import Handover, LentResources, SessionOptions, Successor, open_successors
from bridle.run.calls.server_requests import ask_model_for_server
from bridle.run.driver import Driver
from bridle.run.memory.retrieval import Retriever
from bridle.run.model_connection import ModelConnection, settings_for_first_model
from bridle.run.recovery.session_log import WriteEpoch
from bridle.run.session import Session
from bridle.run.stream import RunControl
from bridle.run.validate_input import check_session
from bridle.stores import open_store
from bridle.transports.deadlines import Deadlines
from bridle.values.settings import Settings
from bridle.values.usage import Budget

if TYPE_CHECKING:
    from bridle.run.agent import Agent
    from bridle.run.control.gate import EffectGate

    from .telemetry import TracingChoice

AgentT = TypeVar("AgentT", bound="Agent[Any, Any]")
StoreLike = Store | str | os.PathLike[str] | None


@dataclass(frozen=True, kw_only=True)
class RunResources:
    """The resources of an agent's runs besides its settings, which are logged: objects of this process."""

    store_location: StoreLike
    pool: BudgetPool
    deadlines: Deadlines | None
    clock: Clock
    random_source: RandomSource
    watchers: tuple[Watcher, ...]
    approver: Approver | None
    retriever: Retriever | None
    hooks: Mapping[str, object]
    handovers: tuple[Handover, ...] = ()
    tracing: "TracingChoice" = None
    budget: Budget | None = None

    @cached_property
    def store(self) -> Store:
        given = self.store_location
        return open_store(given) if isinstance(given, str | os.PathLike | None) else given

    def use_store(self, store: Store) -> "RunResources":
        return replace_fields(self, store_location=store)

    def open_session(
        self,
        session: str,
        parts: AgentParts[Any],
        inside: NestedRun | None = None,
        lent: LentResources | None = None,
        *,
        stream: bool = False,
        control: RunControl | None = None,
        context: object = None,
        fence: WriteEpoch | None = None,
        gate: "EffectGate | None" = None,
        restore_overrides: Callable[[State], Session] | None = None,
    ) -> Session:
        """Open a session; nothing is read or written yet.

        `inside` is the tool call whose run lends its store and approver if the agent has none.
        `lent` belongs to the agent that hands the session over.
        """
        check_session(session)
        lending = self._choose_resources(inside, lent, control)
        outer = inside.parent_budget.run if inside is not None else None
        streams = stream or (outer is not None and outer.streams) or must_stream(parts.settings)
        connections = parts.model_chain.open_connections(self.clock, self.deadlines, parts.private_extras)
        settings = _note_skipped_models(parts)
        own = SessionOptions(stream=stream, control=control, context=context, inside=inside, lent=lent)
        own["gate"], own["fence"] = gate, (fence := fence or WriteEpoch())
        successors = self._open_successors(session, parts, lent, restore_overrides, {**own, "lent": lending})

        opener = _SessionOpener(
            self, session, parts, own, restore_overrides, lending, streams, connections, settings
        )
        return Session(
            session=session,
            settings=opener.choose_settings,
            store=lending.store,
            new_driver=opener.new_driver,
            clock=self.clock,
            control=control,
            restore_overrides=restore_overrides,
            successors=successors,
            unknown_agents=tuple(each.name for each in self.handovers if each.name not in successors),
            parts=parts,
            reopen=opener.reopen,
            fence=fence,
            open_other=opener.open_other,
            budget=self.budget,
        )

    def _choose_resources(
        self, inside: NestedRun | None, lent: LentResources | None, control: RunControl | None
    ) -> LentResources:
        """The resources of a session: those of this agent, of the outer run or of the agent that hands it over."""
        lender = lent or (inside.parent_budget.run if inside is not None else None)
        # A run inside a tool may have a store of its own; a session that is handed over stays in its store.
        store = lender.store if lender is not None and (lent or self.store_location is None) else self.store
        approver = self.approver or (lender.approver if lender is not None else None)
        tracing = lent.tracing if lent is not None else self.tracing
        pool, agents = (lent.pool, dict(lent.agents)) if lent is not None else (self.pool, {})
        return LentResources(store, approver, self._list_watchers(control, lent), tracing, pool, agents)

    def _list_watchers(self, control: RunControl | None, lent: LentResources | None) -> tuple[Watcher, ...]:
        if lent is not None:
            return (*(each for each in self.watchers if each not in lent.watchers), *lent.watchers)
        return self.watchers if control is None else (*self.watchers, control.viewers)

    def _open_successors(
        self,
        session: str,
        parts: AgentParts[Any],
        lent: LentResources | None,
        restore: Callable[[State], Session] | None,
        options: SessionOptions,
    ) -> dict[str, Successor]:
        if not self.handovers:
            return {}
        again = partial(self.open_session, session, parts, restore_overrides=restore)
        return open_successors(session, parts.settings.name, self.handovers, again, lent, options)


class _SessionOpener(NamedTuple):
    """Makes the drivers of one session, and opens sessions with the same options.

    Each open session has one. Closures instead of methods would hold a cell for every name that they use.
    """

    resources: RunResources
    session: str
    parts: AgentParts[Any]
    options: SessionOptions
    restore_overrides: Callable[[State], Session] | None
    lending: LentResources
    streams: bool
    connections: dict[str, ModelConnection]
    settings: Settings

    def new_driver(self) -> Driver:
        resources, parts, lending, options = self.resources, self.parts, self.lending, self.options
        return Driver(
            self.session,
            connections=self.connections,
            store=lending.store,
            clock=resources.clock,
            random_source=resources.random_source,
            tools=parts.tool_layout.tools,
            watchers=lending.watchers,
            stream=self.streams,
            choose_options=parts.choose_options,
            output=parts.output_checker,
            approver=lending.approver,
            search=parts.tool_layout.search,
            pools=(lending.pool, resources.pool),
            retriever=resources.retriever,
            instructions=parts.instructions,
            hooks=resources.hooks,
            context=options["context"],
            tracing=lending.tracing,
            sources=parts.connected_sources,
            fence=options["fence"],
            gate=options["gate"],
            ask_model=partial(ask_model_for_server, resources, parts, options["context"])
            if parts.connected_sources
            else None,
        )

    def choose_settings(self) -> Settings:
        """The settings of a new prompt."""
        now = self.resources.clock.monotonic()
        return settings_for_first_model(self.settings, self.connections, now)

    def reopen(self, parts: AgentParts[Any]) -> Session:
        """The session with other parts of the agent."""
        restore = self.restore_overrides
        return self.resources.open_session(self.session, parts, restore_overrides=restore, **self.options)

    def open_other(self, session: str) -> Session:
        return self.resources.open_session(session, self.parts, **self.options)


def _note_skipped_models(parts: AgentParts[Any]) -> Settings:
    """The settings, with the models of the chain that could not be used."""
    skipped = parts.model_chain.skipped_models
    return replace(parts.settings, skipped_models=skipped) if skipped else parts.settings


def copy_agent(
    agent: AgentT,
    *,
    store: StoreLike,
    watchers: Sequence[Watcher] = (),
    name: str = "",
    approver: Approver | None = None,
) -> AgentT:
    """A copy of an agent with another store, more watchers, if given another name, and an approver if it has none."""
    copied, inputs = copy(agent), agent.parts.inputs
    mode = inputs.code_mode
    bound = None if mode is None else BoundCodeMode(mode.mode, lambda: copied._resources)
    settings = replace(inputs.settings, name=name or inputs.settings.name)
    copied.parts = make_parts(replace_fields(inputs, settings=settings, store=store, code_mode=bound))
    copied._resources = replace_fields(
        agent._resources,
        store_location=store,
        watchers=(*agent._resources.watchers, *watchers),
        approver=agent._resources.approver or approver,
    )
    return copied
