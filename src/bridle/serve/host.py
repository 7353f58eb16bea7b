"""`AgentHost`: the agents, the store, the runs and the feeds of one server."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Unpack

from bridle.config.agent_loader import find_agents_store
from bridle.core.budget.scopes import client_budget, merge_budgets
from bridle.core.state import State
from bridle.ports.store import LiveStore, Store, SupportsApprovalKey, supports
from bridle.ports.watcher import Watcher
from bridle.run.agent import Agent
from bridle.run.context.made_context import MakeContext, Owner, find_owner_of, make_run_context
from bridle.run.context.resources import StoreLike, copy_agent
from bridle.run.context.run_context import check_context, list_certain_needs
from bridle.run.context.run_options import RunOptions
from bridle.run.control.live import LivePublisher
from bridle.run.recovery.session_log import fold_records, has_engine
from bridle.run.replay.replay_session import read_records
from bridle.stores import open_store
from bridle.values.errors import BridleError, Conflict, MisuseError, Unusable
from bridle.values.message import Prompt, ToolResult
from bridle.values.usage import Budget

from .adoption import Adoption, name_first_agent
from .answers import AnswerWatch
from .api.types import StartedRun
from .census import Census
from .errors import ServeError
from .feeds import FeedTable
from .identity import HOLDER, UNKNOWN, WIRE_CALLER, Access, Identify
from .metrics import ServerMetrics
from .options import ServeOptions, check_options
from .runs import RunTable

AnyAgent = Agent[Any, Any]


class AgentHost:
    """Agents that share a store, with their runs."""

    def __init__(
        self,
        agents: Mapping[str, AnyAgent],
        *,
        store: StoreLike = None,
        options: ServeOptions | None = None,
        context: object = None,
        identify: Identify | None = None,
        make_context: MakeContext | None = None,
        default_access: Access | None = HOLDER,
    ) -> None:
        """`default_access` is that of every request, if there is no `identify`; None to let nobody in."""
        self.options = check_options(options or ServeOptions(), has_identify=identify is not None)
        # guard: trusted-caller-unknown
        if default_access is HOLDER and self.options.trusts_callers and not self.options.has_secret:
            default_access = UNKNOWN
        if context is not None and (identify is not None or make_context is not None):
            raise MisuseError(
                "one context= for all is not possible with identities: return Identity(context=…) from identify,"
                " or give make_context=…"
            )
        self.identify, self.default_access, self._make_context = identify, default_access, make_context
        place = find_agents_store(agents) if store is None else store
        self._owns_store = isinstance(place, str | os.PathLike | None)
        self.store: Store = open_store(place) if isinstance(place, str | os.PathLike | None) else place
        self.context = context
        self.metrics = ServerMetrics(self.options.metric_labels)
        self.runs = RunTable(self.store, self.options.runs_max, self._on_run_end)
        self.census = Census(self.store, self.runs.__contains__)
        self.feeds = FeedTable(self.store, self.runs.__contains__)
        self._live: tuple[LivePublisher, ...] = ()
        if supports(self.store, LiveStore) and not supports(self.store, SupportsApprovalKey):
            self._live = (LivePublisher(self.store),)  # another process cannot open a store in memory
        self.answers = AnswerWatch(self.store, self.runs, self._resume_answered)
        self.agents = {name: self.bind(name, agent) for name, agent in agents.items()}
        self.closers: list[Callable[[], Awaitable[None]]] = []
        """Functions that close parts of the server at its end."""
        self.is_ready = False
        self.adoption = Adoption(self)
        self._draining: asyncio.Task[None] | None = None

    def _on_run_end(self, session: str, stop: str, error: BridleError | None) -> None:
        self.feeds.wake(session)
        if isinstance(error, Unusable):
            self.adoption.retry(session)
        elif not stop and not isinstance(error, Conflict):  # else another process has the run
            self.adoption.orphans.leave(session)
        if stop == "waiting":
            self.answers.add(session)
        elif stop:  # else the run raised, and may have been resumed by the watch, which decides what to do
            self.answers.drop(session)

    async def _resume_answered(self, session: str, state: State) -> None:
        if await has_engine(self.store, session, state):
            raise ServeError(409, "engine_run", "the engine that has this run continues it")
        await self.resume(session, agent=self.find_agent_of(state))

    def bind(self, name: str, agent: AnyAgent) -> AnyAgent:
        """A copy of the agent that uses the store of the host and shows it its runs."""
        if agent.settings.name not in ("", name):
            own = agent.settings.name
            raise MisuseError(f"the agent {own!r} is served as {name!r}; use one name, which sessions record")
        try:
            if self.identify is None and self._make_context is None:  # else each run has its own
                check_context(list_certain_needs(agent.parts.context_needs), self.context, "run")
        except BridleError as error:
            raise MisuseError(f"agent {name!r} cannot be served: {error}") from None
        watchers: list[Watcher] = [self.runs, self.feeds, self.metrics, *self._live]
        return copy_agent(agent, store=self.store, watchers=watchers, name=name)

    def find_agent(self, name: str) -> AnyAgent:
        """The agent of this name; the only one if the name is empty."""
        if not name and len(self.agents) == 1:
            return next(iter(self.agents.values()))
        if name in self.agents:
            return self.agents[name]
        known = ", ".join(self.agents) or "none"
        problem = f"there is no agent {name!r}" if name else "the request names no agent"
        raise ServeError(404 if name else 400, "unknown_agent", problem, f"agents of this server: {known}")

    def cancel(self, session: str) -> None:
        """End the run that this server has of a session, if it has one."""
        if (live := self.runs.find(session)) is not None:
            live.handle.cancel()

    def name_agent(self, agent: AnyAgent) -> str:
        return next(name for name, each in self.agents.items() if each is agent)

    async def find_session_agent(self, session: str) -> AnyAgent:
        """The agent that had the first or the current run of a session; raises `ServeError` if it is not served."""
        state = (await fold_records(await read_records(self.store, session))).state
        return self.find_agent_of(state)

    def find_agent_of(self, state: State) -> AnyAgent:
        name = name_first_agent(state)
        for agent in self.agents.values():
            if agent.settings.name == name:
                return agent
        raise ServeError(
            409,
            "agent_not_served",
            f"the session belongs to the agent {name!r}, which this server does not serve",
            "name one of its agents in the request, or start the server with that agent",
        )

    async def prompt(
        self,
        agent: AnyAgent,
        prompt: Prompt,
        session: str | None = None,
        *,
        new: bool | None = None,
        budget: Budget | None = None,
        caller: str = "",
        tenant: str = "",
        access: Access = HOLDER,
        **options: Unpack[RunOptions],
    ) -> StartedRun:
        """Start a run of an agent and return once its prompt is durable. `budget` can only lower its limits."""
        if caller == WIRE_CALLER:  # such runs are not resumed at the next start
            raise MisuseError(
                f"the caller {WIRE_CALLER!r} is reserved for clients of the wires; use another name"
            )
        stream = agent.stream(
            prompt,
            session,
            new=new,
            budget=budget and merge_budgets(agent.budget or Budget(), budget),
            caller=caller,
            tenant=tenant,
            context=await self.find_context(access, Owner(tenant, caller)),
            **options,
        )
        return await self.runs.start(self.name_agent(agent), stream)

    async def find_context(self, access: Access, owner: Owner) -> object:
        """The context of a run of this tenant and caller, for a request with this access.

        That of the identity is for its own runs: tools of another person's run must not act with it.
        """
        # guard: context-of-caller
        if access.context is not None and access.owner == owner:
            return access.context
        if self._make_context is not None:
            return await make_run_context(self._make_context, owner)
        if access.context is not None:
            raise _unknown_context(owner)
        return self.context

    async def check_resume_context(self, access: Access, session: str) -> None:
        """Raise `ServeError` if a request with this access cannot continue the run of a session."""
        if access.context is None or self._make_context is not None:
            return
        state = (await fold_records(await read_records(self.store, session))).state
        # guard: context-known-before-answer
        if access.owner != (owner := find_owner_of(state)):
            raise _unknown_context(owner)

    async def find_resume_context(self, access: Access, session: str) -> object:
        """The context to continue the run of a session with."""
        if access.context is None and self._make_context is None:
            return self.context
        state = (await fold_records(await read_records(self.store, session))).state
        return await self.find_context(access, find_owner_of(state))

    async def resume(
        self,
        session: str,
        *,
        agent: AnyAgent | None = None,
        budget: Budget | None = None,
        tenant: str | None = None,
        results: Mapping[str, ToolResult] | None = None,
        access: Access = HOLDER,
        **options: Unpack[RunOptions],
    ) -> StartedRun:
        """Continue the unfinished run of a session here; `results` are those of calls that the client ran, by id.

        `budget` is a client's: it raises no limit above the agent's, nor one that the agent does not have.
        """
        agent = agent or await self.find_session_agent(session)
        if budget is not None:
            state = (await fold_records(await read_records(self.store, session))).state
            # guard: client-budget
            budget = client_budget(agent.budget, state.run.budget.limits, budget)
        context = await self.find_resume_context(access, session)
        given = {"budget": budget, "tenant": tenant, "results": results, "context": context, **options}
        stream = agent.resume_stream(session, **given)  # type: ignore[arg-type]
        return await self.runs.start(self.name_agent(agent), stream)

    async def start(self) -> None:
        """Get ready, and continue in the background the runs whose process has ended or ends."""
        self.is_ready = True
        await self.adoption.start()

    def begin_drain(self) -> "asyncio.Task[None]":
        """Take no more work, and end the runs and the views in the background."""
        if self._draining is None:
            self._draining = asyncio.create_task(self._drain())
        return self._draining

    async def drain(self) -> None:
        """Take no more work, end the runs so that they can be resumed, and end the views."""
        await self.begin_drain()

    async def _drain(self) -> None:
        self.is_ready = False
        await self.adoption.close()
        self.answers.close()
        await self.runs.close(self.options.shutdown_seconds)
        await self.adoption.withdraw()
        self.feeds.close()
        for close in self.closers:
            await close()

    async def stop(self) -> None:
        """`drain`, and close the store."""
        await self.drain()
        if self._owns_store:
            await self.store.close()


def _unknown_context(owner: Owner) -> ServeError:
    problem = (
        f"the run belongs to {owner.caller or 'another caller'!r}, whose context this server cannot make"
    )
    return ServeError(
        409, "context_unknown", problem, "the server needs make_context=…; nothing was recorded"
    )
