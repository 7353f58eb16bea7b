"""`AgentHost`: the agents, the store, the runs and the feeds of one server."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, Unpack

from bridle.config.agent_loader import find_agents_store
from bridle.core.budget.scopes import client_budget, merge_budgets
from bridle.core.state import State
from bridle.ports.store import LeaseInspectable, Store, supports
from bridle.run.agent import Agent
from bridle.run.archive.sessions import find_due, find_parent_session, list_sessions
from bridle.run.context.resources import StoreLike, copy_agent
from bridle.run.context.run_context import check_context, list_certain_needs
from bridle.run.context.run_options import RunOptions
from bridle.run.recovery.session_log import fold_records, has_engine
from bridle.run.replay.replay_session import read_records
from bridle.stores import open_store
from bridle.values.errors import BridleError, Conflict, MisuseError
from bridle.values.message import Prompt, ToolResult
from bridle.values.text import escape_text
from bridle.values.usage import Budget

from .answers import WATCHED_MAX, AnswerWatch
from .api.types import StartedRun
from .errors import ServeError
from .feeds import FeedTable
from .metrics import ServerMetrics
from .options import ServeOptions, check_options
from .runs import SHUTDOWN_REASONS, RunTable

LOG = logging.getLogger("bridle")
WIRE_CALLER = "wire client"
"""Caller of runs that a client of a wire waits for; it is gone after a restart, so they are not resumed."""
SESSIONS_SEARCHED_MAX = 10_000
SESSIONS_NAMED_MAX = 5
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
    ) -> None:
        self.options = check_options(options or ServeOptions())
        place = find_agents_store(agents) if store is None else store
        self._owns_store = isinstance(place, str | os.PathLike | None)
        self.store: Store = open_store(place) if isinstance(place, str | os.PathLike | None) else place
        self.context = context
        self.metrics = ServerMetrics()
        self.runs = RunTable(self.store, self.options.runs_max, self._on_run_end)
        self.feeds = FeedTable(self.store, self.runs.__contains__)
        self.answers = AnswerWatch(self.store, self.runs, self._resume_answered)
        self.agents = {name: self.bind(name, agent) for name, agent in agents.items()}
        self.closers: list[Callable[[], Awaitable[None]]] = []
        """Functions that close parts of the server at its end."""
        self.is_ready = False
        self._resuming: asyncio.Task[None] | None = None

    def _on_run_end(self, session: str, stop: str) -> None:
        self.feeds.wake(session)
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
            check_context(list_certain_needs(agent.parts.context_needs), self.context, "run")
        except BridleError as error:
            raise MisuseError(f"agent {name!r} cannot be served: {error}") from None
        watchers = (self.runs, self.feeds, self.metrics)
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
        name = _name_first_agent(state)
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
            context=self.context,
            **options,
        )
        return await self.runs.start(self.name_agent(agent), stream)

    async def resume(
        self,
        session: str,
        *,
        agent: AnyAgent | None = None,
        budget: Budget | None = None,
        tenant: str | None = None,
        results: Mapping[str, ToolResult] | None = None,
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
        given = {"budget": budget, "tenant": tenant, "results": results, "context": self.context, **options}
        stream = agent.resume_stream(session, **given)  # type: ignore[arg-type]
        return await self.runs.start(self.name_agent(agent), stream)

    async def start(self) -> None:
        """Get ready, and continue the runs whose process ended in the background."""
        self.is_ready = True
        if self.options.resumes_runs and self.agents:
            self._resuming = asyncio.create_task(self._resume_due())

    async def _resume_due(self) -> None:
        not_served: list[str] = []
        waiting: list[str] = []
        try:
            for info in await list_sessions(self.store, SESSIONS_SEARCHED_MAX):
                outcome = await self._try_resume(info.id)
                if outcome == "not served":
                    not_served.append(info.id)
                elif outcome == "waiting" and len(waiting) < WATCHED_MAX:
                    waiting.append(info.id)
        except BridleError as error:
            LOG.warning("%s", escape_text(f"runs are not resumed: {error}"))
        for session in reversed(waiting):  # the oldest first, which is given up first
            self.answers.add(session)
        if not_served:
            names = ", ".join(not_served[:SESSIONS_NAMED_MAX])
            more = (
                f" and {len(not_served) - SESSIONS_NAMED_MAX} more"
                if len(not_served) > SESSIONS_NAMED_MAX
                else ""
            )
            LOG.warning("%s", escape_text(f"not resumed, because the agent is not served: {names}{more}"))

    async def _try_resume(self, session: str) -> Literal["", "waiting", "not served"]:
        """Continue a run if it is due; `waiting` if it waits for an answer, `not served` if its agent is not."""
        try:
            return await self._resume_if_due(session)
        except (ServeError, BridleError) as error:
            if isinstance(error, ServeError) and error.detail.code == "agent_not_served":
                return "not served"
            LOG.warning("%s", escape_text(f"session {session} is not resumed: {error}"))
        return ""

    async def _resume_if_due(self, session: str) -> Literal["", "waiting"]:
        records = await read_records(self.store, session)
        if session in self.runs or find_parent_session(records):
            return ""
        state = (await fold_records(records)).state
        due = await find_due(self.store, state)
        if due and await has_engine(self.store, session, state):
            return ""  # the engine continues its runs itself
        is_wanted = state.run.origin.caller != WIRE_CALLER
        is_broken = due == "interrupted" or state.run.end.reason.startswith(SHUTDOWN_REASONS)
        if due != "answered" and not (is_broken and is_wanted):
            return "waiting" if due == "waiting" and _name_first_agent(state) in self.agents else ""
        # The watch resumes an answered run when the process that has it, such as `bridle approve`, lets go.
        otherwise: Literal["", "waiting"] = "waiting" if due == "answered" else ""
        if supports(self.store, LeaseInspectable) and await self.store.is_leased(session):
            return otherwise
        agent = self.find_agent_of(state)
        await self.runs.wait_for_room()
        try:
            await self.resume(session, agent=agent)
        except Conflict:
            return otherwise
        return ""

    async def drain(self) -> None:
        """Take no more work, end the runs so that they can be resumed, and end the views."""
        self.is_ready = False
        if self._resuming is not None:
            self._resuming.cancel()
        self.answers.close()
        await self.runs.close(self.options.shutdown_seconds)
        self.feeds.close()

    async def stop(self) -> None:
        """`drain`, and close the store."""
        await self.drain()
        for close in self.closers:
            await close()
        if self._owns_store:
            await self.store.close()


def _name_first_agent(state: State) -> str:
    """Name of the agent that began the run; others may have taken it over."""
    return (state.run.origin.first_settings or state.settings).name
