"""Runs operations on one session: prompt, resume, answer an approval, compensate.

The session's lease is held during each operation, so no other process is inside it.  Before a prompt is
added, an event closes whatever an earlier run left open: a killed or cancelled session accepts a new prompt.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from bridle.core.calls.catalogue import is_handover_due
from bridle.core.context.view import rename_imported_calls
from bridle.core.loop import next_effects
from bridle.core.recovery.fallback import keep_model
from bridle.core.state import Phase, State
from bridle.ports.clock import Clock
from bridle.ports.store import Store, SupportsApprovalKey, WatchableStore
from bridle.run.budget.nested import current_nested_run
from bridle.run.budget.sources import check_tenant_budget
from bridle.run.calls.approval import find_pending_approval, list_pending_approvals
from bridle.run.calls.compensation import ABANDONED_REASON, close_programs, run_compensations
from bridle.run.calls.handover import (
    Successor,
    describe_unknown_agent,
    hand_over,
    list_agents,
    open_driver,
)
from bridle.run.calls.tool_sources import connect_tools
from bridle.run.context.run_context import ContextNeed, check_context, list_due_needs, list_tool_needs
from bridle.run.recovery.session_log import WriteEpoch, take_over_subruns
from bridle.stores.locks import wait_for_lease
from bridle.tools.collect_tools import collect_compensations
from bridle.values.calls import ApprovalVerdict, Compensation, PendingApproval
from bridle.values.errors import Conflict, MisuseError, SessionNotFound
from bridle.values.events import Configured, Imported, Prompted, Resumed, RunEnded
from bridle.values.result import History
from bridle.values.settings import Settings
from bridle.values.usage import Budget

from .agent_settings import AgentParts
from .cancellation import finish_despite_cancel
from .control.listener import CancelRequest, ControlListener
from .control.requests import SessionControl, is_run_elsewhere
from .driver import Driver
from .private_extras import describe_new_settings
from .stream import RunControl
from .validate_input import check_new, check_tenant

FINISHED_STOPS = ("done", "refused")
OWN_INSTRUCTIONS_NOTE = "the imported system prompt is not sent: the agent has instructions of its own"
CANCELLED_REASON = "cancelled by the caller"
CLOSE_ATTEMPTS_MAX = 5


@dataclass(frozen=True, kw_only=True)
class Session:
    session: str
    settings: Callable[[], Settings]  # for a new prompt
    store: Store
    new_driver: Callable[[], Driver]
    """Makes a fresh driver for this session; a broken driver is replaced, not repaired."""
    clock: Clock
    control: RunControl | None = None  # records for a person while a run works
    restore_overrides: "Callable[[State], Session] | None" = None  # with the options recorded for the run
    successors: Mapping[str, Successor] = field(default_factory=dict)
    """Agents that the run may be handed over to, by name."""
    unknown_agents: tuple[str, ...] = ()  # named in `handover`, and in no agent of the run
    parts: AgentParts[Any]
    reopen: "Callable[[AgentParts[Any]], Session]"  # with other parts of the agent
    fence: WriteEpoch
    open_other: "Callable[[str], Session]"  # another session, with the same agent

    @asynccontextmanager
    async def lease(self, *, queue: bool = False, take_over: bool = False) -> AsyncIterator[None]:
        """Hold the lease of the session; every driver of this operation writes under its epoch."""
        async with (
            wait_for_lease(self.store, self.session, self.clock.sleep)
            if queue
            else self.store.lease(self.session, take_over=take_over)
        ) as lease:
            self.fence.epoch, self.fence.took_over = lease.epoch, take_over
            if (outer := current_nested_run()) is not None:
                await outer.check_owned()
            yield

    async def prompt(
        self,
        prompted: Prompted,
        history: History | None = None,
        *,
        new: bool | None = None,
        tenant: str | None = None,
        queue: bool = False,
        take_over: bool = False,
    ) -> State:
        """Run a prompt.  The session must not exist (`new=True`), must exist (False), or either (None).

        With `queue`, wait until the session is free; otherwise a session in use raises `Conflict`.
        """
        async with self.lease(queue=queue, take_over=take_over):
            driver = self.new_driver()
            await driver.restore_and_repair()
            check_new(self.session, new, begun=driver.has_begun)
            opened, driver = await connect_tools(self, driver) if self.parts.sources else (self, driver)
            opened.check_context(driver, "run")
            prompted = replace(prompted, cross_tenant=check_tenant(self.session, driver.state, tenant))
            if driver.state.phase not in (Phase.NEW, Phase.IDLE):
                await driver.record(RunEnded(stop="cancelled", reason=ABANDONED_REASON))
            imported = history.instructions if history is not None else ""
            await opened._configure(driver, opened.settings(), imported)
            await opened._finish_hooks(driver)
            if history is not None:
                await opened._import_history(driver, history)
            await driver.record(prompted)
            if (outer := current_nested_run()) is not None:
                await outer.record_program(self.session)
            return await opened._drive(driver)

    async def resume(
        self,
        budget: Budget | None,
        tenant: str | None = None,
        *,
        trusts_approvals: bool = False,
        take_over: bool = False,
    ) -> State:
        """Finish the run; `take_over` takes it from a process that is alive and does not answer."""
        async with self.lease(take_over=take_over):
            driver = self.new_driver()
            await driver.restore_and_repair()
            if driver.state.phase is Phase.NEW:
                raise SessionNotFound(f"there is no session {self.session!r} in this store")
            if driver.state.run.origin.agents:
                return await list_agents(self, driver.state)[-1].continue_run(
                    budget, tenant, trusts=trusts_approvals
                )
            return await self.continue_run(budget, tenant, trusts=trusts_approvals, driver=driver)

    async def continue_run(
        self, budget: Budget | None, tenant: str | None, *, trusts: bool, driver: Driver | None = None
    ) -> State:
        """Resume the run with the agent that has it; the caller holds the lease."""
        if driver is None:
            driver = self.new_driver()
            await driver.restore()
        state = driver.state
        if not state.conversation.transcript.messages:
            raise MisuseError(f"session {self.session!r} was never prompted: there is nothing to resume")
        across = check_tenant(self.session, state, tenant)
        is_finished = state.phase is Phase.IDLE and state.run.end.stop in FINISHED_STOPS
        if is_finished and not state.run.prompt.steering.waiting:
            return await self._finish_hooks(driver)
        check_tenant_budget(budget or state.run.budget.limits, state.run.origin.tenant)
        opened = self
        if state.settings.overrides and self.restore_overrides is not None:
            opened = self.restore_overrides(state)
            driver = opened.new_driver()
            await driver.restore_and_repair()
        opened, driver = await connect_tools(opened, driver) if opened.parts.sources else (opened, driver)
        opened.check_context(driver, "resume")
        await opened._configure(driver, keep_model(opened.settings(), state))
        took_over = self.fence.took_over
        await driver.record(Resumed(budget=budget, cross_tenant=across, took_over=took_over))
        if took_over:  # after the record, by which the old process notices the takeover
            await take_over_subruns(self.store, state, self.fence.taken_subruns)
        await driver.review_calls(trusts_approvals=trusts)
        return await opened._drive(driver)

    async def prompt_once(self, prompted: Prompted, history: History | None = None) -> State:
        """Run a prompt in a session of its own; a run that is there is finished, or its end is the result."""
        driver = self.new_driver()
        await driver.restore()
        state, outer = driver.state, current_nested_run()
        take_over = outer is not None and driver.has_begun and outer.claim_takeover(self.session)
        if outer is not None and not driver.has_begun and self.parts.tool_layout.tools:
            outer.check_stored(self.session)
        if not state.conversation.prompt_ids:
            return await self.prompt(prompted, history, take_over=take_over)
        if outer is not None:
            await outer.record_program(self.session)
            await outer.charge_missing(self.session, state)
        if state.phase is Phase.IDLE and state.run.end.stop != "cancelled":
            async with self.lease(take_over=take_over):
                return await self._finish_hooks(await open_driver(self))
        state = await self.resume(None, take_over=take_over)
        if outer is not None:  # replies under review were not counted before
            await outer.charge_missing(self.session, state)
        return state

    def check_context(self, driver: Driver, method: str) -> None:
        needs = self.list_context_needs(prompting=method == "run")
        needs = list_due_needs(needs, driver.state, prompting=method == "run")
        check_context(needs, driver.contexts.context, method)

    def list_context_needs(self, *, prompting: bool) -> tuple[ContextNeed, ...]:
        """The needs of this agent and of those that may take over; of these without functions on resume.

        Raises `MisuseError` if one of them names an unknown agent.
        """
        if self.unknown_agents:
            raise MisuseError(describe_unknown_agent(self))
        following = (each for each in self.successors.values() if not each.is_named)
        later = (each.open_session().list_context_needs(prompting=prompting) for each in following)
        needs = (need for each in later for need in each if need.function is None or prompting)
        return (*self.parts.context_needs, *needs)

    async def list_approvals(self, tenant: str | None = None) -> tuple[PendingApproval, ...]:
        """List the pending approvals; nothing is written."""
        driver = self.new_driver()
        await driver.restore()
        check_tenant(self.session, driver.state, tenant)
        return list_pending_approvals(self.session, driver.state)

    async def answer(
        self, wanted: str, verdict: ApprovalVerdict, tenant: str | None = None
    ) -> PendingApproval:
        """Record a person's answer in the log; `resume` then continues the run. A live run takes it at once."""
        if await is_run_elsewhere(self.store, self.session):
            return await SessionControl(self.store, self.session, tenant=tenant).answer(wanted, verdict)
        async with self.lease():
            driver = await open_driver(self)
            if across := check_tenant(self.session, driver.state, tenant):
                verdict = replace(verdict, by=f"{verdict.by} of tenant {across}".strip())
            question = find_pending_approval(list_pending_approvals(self.session, driver.state), wanted)
            await driver.answer(question, verdict)
            return question

    async def compensate(
        self, settled: Collection[str] = (), tenant: str | None = None
    ) -> tuple[Compensation, ...]:
        """Undo the calls of the last run, also those of programs and of other agents that had it."""
        async with AsyncExitStack() as held, self.lease():
            driver = self.new_driver()
            await driver.restore_and_repair()
            if driver.state.phase is Phase.NEW:
                raise SessionNotFound(f"there is no session {self.session!r} in this store")
            across = check_tenant(self.session, driver.state, tenant)
            agents = list_agents(self, driver.state)
            tools = collect_compensations(*(agent.parts.tool_layout.tools for agent in agents))
            check_context(list_tool_needs(tools), driver.contexts.context, "compensate")
            drivers = await close_programs(driver, self.open_other, held)
            return await run_compensations(drivers, tools, settled, across)

    async def _import_history(self, driver: Driver, history: History) -> None:
        if driver.state.conversation.transcript.messages:
            raise MisuseError(
                f"session {self.session!r} already exists; a history can only start a new session"
            )
        messages, imported = rename_imported_calls(history.messages), history.instructions
        repairs, own = history.repairs, driver.state.settings.instructions
        if imported and own != imported:
            repairs = (*repairs, OWN_INSTRUCTIONS_NOTE)
        await driver.record(Imported(messages=messages, repairs=repairs, instructions=imported))

    async def _configure(self, driver: Driver, settings: Settings, imported: str = "") -> None:
        """Record changed settings.  `imported` is the system prompt of a history about to be imported."""
        instructions = imported or driver.state.conversation.imported_instructions
        if instructions and not settings.instructions:
            settings = replace(settings, instructions=instructions)
        if driver.state.phase is Phase.NEW:
            await driver.record(Configured(settings=settings, session=self.session))
        elif driver.state.settings != settings:
            await driver.record(describe_new_settings(driver.state.settings, settings))
        for report in self.parts.tool_reports:
            await driver.record(report)

    async def _finish_hooks(self, driver: Driver) -> State:
        """Run the `on_end` hooks that a crash prevented."""
        is_due = driver.state.settings.hooks and next_effects(driver.state)
        return await self._drive(driver) if is_due else driver.state

    async def _drive(self, driver: Driver) -> State:
        session = self
        # No other process can open a store that holds its own key: the one in memory.
        is_shared = isinstance(self.store, WatchableStore) and not isinstance(self.store, SupportsApprovalKey)
        listener = ControlListener(self.store, self.session) if is_shared else None
        try:
            async with listener or nullcontext():
                session.attach_control(driver, listener)
                await driver.run_effects()
                while is_handover_due(driver.state):
                    session, driver = await hand_over(session, driver)
                    session.attach_control(driver, listener)
                    await driver.run_effects()
        except asyncio.CancelledError:
            request = listener.cancel_request if listener is not None else None
            state = await finish_despite_cancel(session._close(driver, request))
            if listener is None or not listener.absorb_cancel():
                raise
            return state
        return driver.state

    def attach_control(self, driver: Driver, listener: ControlListener | None) -> None:
        if listener is not None:
            listener.attach(driver)
        if self.control is not None:
            self.control.attach(driver.record)

    async def _close(self, driver: Driver, request: CancelRequest | None) -> State:
        """Record the end of a cancelled run, with a fresh driver if a write of this one was interrupted."""
        partial, usage, usd, latency = driver.partial_text, driver.usage, driver.usd, driver.latency
        for _ in range(CLOSE_ATTEMPTS_MAX):
            try:
                if driver.is_broken:
                    driver = self.new_driver()
                    await driver.restore_and_repair()
                if driver.state.phase in (Phase.NEW, Phase.IDLE):
                    break
                end = RunEnded(
                    stop="cancelled",
                    reason=f"cancelled by {request.by}" if request else CANCELLED_REASON,
                    by=request.by if request else "",
                    request=request.hash if request else "",
                    partial_text=partial,
                    usage=usage,
                    usd=usd,
                    discarded_tools=driver.discarded_tools,
                    latency=latency,
                )
                await driver.record(end)
                await driver.run_effects()
            except Conflict:
                continue  # the interrupted write succeeded after all: read again
            break
        return driver.state
